"""Records: append-only JSON lines. A header, rows, a footer; the report reads nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

import msgspec

from harness.contract import Round
from harness.provenance import check_writable as check_writable
from harness.provenance import command_line as command_line
from harness.provenance import machine as machine
from harness.provenance import now as now
from harness.provenance import provenance as provenance
from harness.provenance import versions as versions
from harness.provenance import write_json as write_json
from harness.verdict import Verdict

SCHEMA: Final = 1
PARTS = ("prompt", "draft", "verify")  # of a generation's time, where the decoder tells them
COUNTS = ("tokens", "target_calls", "drafted", "accepted")  # that a decoder tells of an answer


class PairInfo(msgspec.Struct, frozen=True):
    """Which models were used.

    Attributes
    ----------
    fingerprint : str
        Of the weights of target and draft (``ModelPair.fingerprint``); empty where they are not
        here, and where each suite has pairs of its own (``Header.fingerprints``).
    """

    name: str
    source: str
    fingerprint: str
    device: str
    dtype: str


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="header", tag_field="kind"):
    """What ran, where, with what.

    Attributes
    ----------
    seed : int
        That was asked for.
    seeds : dict of str to int
        All that the run draws from, by what is drawn.
    fingerprints : dict of str to str
        Of each pair by name, where each suite has pairs of its own.
    """

    schema: Literal[1] = SCHEMA
    command: str
    started: str
    seed: int
    seeds: dict[str, int] = {}
    alpha: float
    decoders: list[str]
    pair: PairInfo
    fingerprints: dict[str, str] = {}
    versions: dict[str, str]
    machine: dict[str, str]
    options: dict[str, Any] = {}
    run: str = ""  # of the records that are shards of one run (``harness.record_merge``)


class VerdictRow(msgspec.Struct, frozen=True, kw_only=True, tag="verdict", tag_field="kind"):
    """One check of one decoder, as pytest ran it."""

    decoder: str
    item: str
    suite: str
    seconds: float
    expected_failure: str = ""  # the reason given in the xfails file
    decoder_versions: dict[str, str] = {}  # as the decoder says
    retries: int = 0  # requests that had to be sent again, where the decoder counts them
    verdict: Verdict


class GenerationRow(msgspec.Struct, frozen=True, kw_only=True, tag="generation", tag_field="kind"):
    """One prompt decoded plainly and speculatively by one decoder, one after the other.

    Seconds are the harness's own clock around ``generate``; tokens are counted by the harness. The
    first token is timed by the same clock in a short stream of its own, after both arms.
    """

    decoder: str
    task: str
    prompt_id: str
    repeat: int
    prompt_tokens: int
    plain_tokens: list[int]
    plain_seconds: float
    tokens: list[int]
    seconds: float
    first: str  # the arm that ran first: "plain" or "speculative"
    plain_finish_reason: str = ""
    finish_reason: str = ""
    drafted: list[int] | None = None  # per round, where the decoder tells
    accepted: list[int] | None = None
    plain_parts: dict[str, float] = {}  # seconds of prompt, draft and verify, where it tells
    parts: dict[str, float] = {}
    plain_counts: dict[str, int] = {}  # of ``COUNTS``, as the decoder tells them
    counts: dict[str, int] = {}
    plain_first_seconds: float | None = None  # to the first token, where the decoder streams
    first_seconds: float | None = None
    plain_peak_bytes: int | None = None  # allocated on a CUDA device, the models included
    peak_bytes: int | None = None
    overlap: list[float] | None = None  # sum of min(p, q) at every token, where the models are here
    batch: str = ""  # decoded together with others: seconds and parts are shared by tokens
    identical: bool | None = None  # ids of both arms; None where sampled
    retries: int = 0  # requests that had to be sent again since the decoder's row before
    near_tie: str = ""  # why a divergence is not a fault, if it is not
    fault: str = ""  # where and by how much the outputs differ, if it is
    error: str = ""

    @property
    def rounds(self) -> list[Round] | None:
        """Rounds of the speculative arm; None where the decoder does not tell them."""
        if self.drafted is None or self.accepted is None:
            return None
        return list(map(Round, self.drafted, self.accepted))


class Footer(msgspec.Struct, frozen=True, kw_only=True, tag="footer", tag_field="kind"):
    """Present where a run came to its end."""

    finished: str
    rows: int


Row = Header | VerdictRow | GenerationRow | Footer
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Row)


class Writer:
    """Appends rows to a file, each in one write; a context manager that adds the footer."""

    def __init__(self, path: Path, header: Header) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        self._open(path, rows=0)
        self._write(header)

    @classmethod
    def behind(cls, path: Path, size: int, rows: int) -> Writer:
        """Go on with a file after its first ``size`` bytes: a header, and so many rows."""
        os.truncate(path, size)
        writer = cls.__new__(cls)
        writer._open(path, rows)
        return writer

    def _open(self, path: Path, rows: int) -> None:
        # No buffer: a process that is killed has written a row, or nothing of it.
        self._file = path.open("ab", buffering=0)
        self._rows = rows

    def _write(self, row: Row) -> None:
        try:
            line = _encoder.encode(row) + b"\n"
        except UnicodeEncodeError:  # a stranger's message may hold what is no text
            told = json.dumps(msgspec.to_builtins(row), ensure_ascii=False)
            line = told.encode("utf-8", "replace") + b"\n"
        if self._file.write(line) != len(line):
            raise OSError(f"only a part of a row could be written to {self._file.name}")

    def add(self, row: VerdictRow | GenerationRow) -> None:
        """Append one row."""
        self._write(row)
        self._rows += 1

    def close(self) -> None:
        """Write the footer: the run came to its end."""
        self._write(Footer(finished=now(), rows=self._rows))
        self._file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._file.close()


class Record(msgspec.Struct, frozen=True):
    """A record file, read back.

    Attributes
    ----------
    problems : list of str
        What is wrong with the file: no footer, a torn line. The rest is good.
    """

    header: Header
    verdicts: list[VerdictRow]
    generations: list[GenerationRow]
    problems: list[str]


class RecordError(ValueError):
    """Not a record file at all."""


def read(path: Path) -> Record:
    """Read a record file.

    Raises
    ------
    RecordError
        If it cannot be read, or its first line is not a header of this schema.
    """
    problems: list[str] = []
    try:
        with path.open("rb") as lines:  # line by line: a long file is not held twice
            rows = list(_rows(lines, problems))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from None
    header = rows[0] if rows else None
    schema = header.schema if isinstance(header, Header) else _schema(path)
    if schema not in (SCHEMA, None):
        raise RecordError(f"{path} has schema {schema}, this version reads {SCHEMA}")
    if not isinstance(header, Header):
        raise RecordError(f"{path} is not a record of this harness: its first line is no header")
    if not isinstance(rows[-1], Footer):
        problems.append("no footer: the run did not come to its end")
    elif rows[-1].rows != len(rows) - 2:
        problems.append(f"the footer counts {rows[-1].rows} rows, {len(rows) - 2} are readable")
    return Record(
        header=header,
        verdicts=[row for row in rows if isinstance(row, VerdictRow)],
        generations=[row for row in rows if isinstance(row, GenerationRow)],
        problems=problems,
    )


def _schema(path: Path) -> object:
    """The schema that a header of another one names; None where there is no header at all."""
    try:
        with path.open("rb") as lines:
            found = msgspec.json.decode(lines.readline())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return (
        found.get("schema") if isinstance(found, dict) and found.get("kind") == "header" else None
    )


def _rows(lines: Iterable[bytes], problems: list[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        try:
            row = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            problems.append(f"line {number} is torn or not of this schema: left out")
            continue
        if isinstance(row, GenerationRow) and row.tokens == row.plain_tokens:
            # as most are: half of the memory of a long record
            msgspec.structs.force_setattr(row, "tokens", row.plain_tokens)
        yield row
