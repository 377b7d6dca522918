"""Lines of a record, as the report reads them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from harness import record
from harness.fuzz.mutations import nearly
from harness.fuzz.target import Target
from harness.verdict import Status, Verdict


def records() -> Target:
    header = record.Header(
        command="pytest",
        started=record.now(),
        seed=1,
        alpha=1e-4,
        decoders=["a"],
        pair=record.PairInfo("tiny", "", "", "cpu", "float32"),
        versions={"python": "3"},
        machine={"cores": "2"},
        options={"profile": "smoke"},
    )
    rows: list[Any] = [
        header,
        record.VerdictRow(
            decoder="a",
            item="suites/test_a.py::test_a",
            suite="a",
            seconds=1.0,
            verdict=Verdict(check="a.b", status=Status.FAIL, message="no", evidence={"a": [1]}),
        ),
        record.GenerationRow(
            decoder="a",
            task="chat",
            prompt_id="p",
            repeat=0,
            prompt_tokens=2,
            plain_tokens=[1, 2],
            plain_seconds=1.0,
            tokens=[1, 2],
            seconds=0.5,
            first="plain",
            drafted=[1],
            accepted=[1],
        ),
        record.Footer(finished=record.now(), rows=2),
    ]
    documents = [msgspec.to_builtins(row) for row in rows]
    good = [msgspec.json.encode(document) for document in documents]
    first = st.one_of(st.just(good[0]), st.just(good[0]), nearly(documents[:1]))
    examples = st.tuples(
        first, st.lists(st.one_of(st.sampled_from(good), nearly(documents)), max_size=3)
    )
    directory = tempfile.TemporaryDirectory()
    path = Path(directory.name) / "record.jsonl"

    def read(example: tuple[bytes, list[bytes]]) -> None:
        head, others = example
        path.write_bytes(b"\n".join([head, *others]))
        try:
            record.read(path)
        except record.RecordError:
            return
        finally:
            _ = directory  # it is there for as long as this function is

    return Target("records: lines of a file", examples, read)
