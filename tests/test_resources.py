"""First token, counts and memory: measured beside the timed calls, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from harness import record
from harness.adapters import load_decoder
from harness.bench.measure import Settings, measure, schedule
from harness.bench.memory import cache_bytes, footprint
from harness.bench.probes import PeakMemory, first_seconds
from harness.bench.resources import resources
from harness.bench.workload import Prompt
from harness.contract import Completion, Metrics, Request, Round
from harness.models import load_pair
from harness.record import GenerationRow, Writer
from harness.report import formats
from harness.report.render import render
from tests.records import header, made, unwrapped
from tests.timed_rows import PROMPTS, SETTINGS, Scripted, row, rows_of, says

REQUEST = Request(prompt=(1, 2, 3), max_new_tokens=5)


class Streaming(Scripted):
    """It streams what it is told to, and notes what was asked and closed."""

    def __init__(self, pieces: Any, capabilities: frozenset[str] | None = None) -> None:
        answer = says(5, 6, 7, 8)
        super().__init__(answer, answer, *([capabilities] if capabilities is not None else []))
        self.pieces = pieces
        self.log: list[str] = []

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        self.log.append(f"generate {requests[0].speculate}")
        return super().generate(requests)

    def stream(self, request: Request) -> Iterator[list[int]]:
        self.log.append(f"stream {request.speculate} {request.max_new_tokens}")
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.log.append("closed")


def first(decoder: Any) -> float | None:
    return first_seconds(decoder, REQUEST, lambda: None)


# The first token


def test_a_stream_is_read_to_its_first_token_and_closed() -> None:
    decoder = Streaming([[], [5], [6], RuntimeError("read too far")])
    seconds = first(decoder)
    assert seconds is not None
    assert seconds > 0
    assert decoder.log == ["stream True 5", "closed"]


@pytest.mark.parametrize("pieces", [[], [[], []], [RuntimeError("boom")], None])
def test_a_stream_without_a_token_has_no_first_one(pieces: Any) -> None:
    assert first(Streaming(pieces)) is None


def test_only_a_declared_stream_is_asked() -> None:
    silent = Streaming([[5]], frozenset({"greedy", "plain"}))
    assert first(silent) is None
    assert silent.log == []
    assert first(Scripted(says(5), says(5))) is None  # declared, and not there


def test_streams_come_after_both_timed_calls_and_are_short() -> None:
    decoder = Streaming([[5]])
    found = rows_of(decoder)
    asked = [line for line in decoder.log if line != "closed"]
    few = min(SETTINGS.max_new_tokens, SETTINGS.draft_tokens + 2)
    streams = [f"stream False {few}", f"stream True {few}"]
    trial = ["generate False", "generate True", *streams]
    assert asked[:4] == ["generate False", streams[0], "generate True", streams[1]]  # warm-up
    assert asked[4:8] == trial
    assert len(asked) == 4 * (1 + len(PROMPTS))
    assert all(r.first_seconds and r.plain_first_seconds for r in found)


def test_an_arm_that_failed_is_not_streamed() -> None:
    decoder = Streaming([[5]])
    decoder.speculative = RuntimeError("boom")
    (found, *_) = rows_of(decoder)
    assert found.first_seconds is None
    assert found.plain_first_seconds is not None


# Counts


def test_counts_are_the_decoders_own_and_rounds_are_target_calls() -> None:
    metrics = Metrics(tokens=4, target_calls=2, drafted=6)
    told = Completion(tokens=[5, 6, 7, 8], finish_reason="length", metrics=metrics)
    rounds = says(5, 6, 7, 8, rounds=[Round(3, 2), Round(0, 0)])
    (found, *_) = rows_of(Scripted(told, rounds))
    assert found.plain_counts == {"tokens": 4, "target_calls": 2, "drafted": 6}
    assert found.counts == {"target_calls": 2}
    (silent, *_) = rows_of(Scripted(says(5, 6, 7, 8), says(5, 6, 7, 8)))
    assert silent.counts == silent.plain_counts == {}


def test_times_that_are_no_numbers_are_left_out() -> None:
    """JSON has none: the row could be written, but not read."""
    metrics = Metrics(draft_seconds=math.nan, verify_seconds=math.inf, prompt_seconds=0.5)
    told = Completion(tokens=[5, 6, 7, 8], finish_reason="length", metrics=metrics)
    (found, *_) = rows_of(Scripted(told, told))
    assert found.parts == found.plain_parts == {"prompt": 0.5}


def test_a_row_of_an_older_record_is_read(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    with Writer(path, header()) as writer:
        writer.add(row(first_seconds=0.5, counts={"tokens": 4}))
    new = ("plain_counts", "counts", "plain_first_seconds", "first_seconds", "plain_peak_bytes")
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        for name in (*new, "peak_bytes"):
            line.pop(name, None)
    path.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    (found,) = record.read(path).generations
    assert found == row()


# Memory


def test_the_cache_of_a_token_by_hand() -> None:
    """Two layers of two key-value heads, 8 numbers of 4 bytes each, keys and values."""
    pair = load_pair("tiny")
    assert cache_bytes(pair.target) == 2 * 2 * 8 * 4 * 2
    weights = sum(p.numel() for p in pair.target.parameters()) * 4
    found = footprint(pair)
    assert 0 <= found["target_weights"] - weights < 0.01 * weights  # and what it keeps beside them
    assert found["draft_weights"] == found["target_weights"]


def test_what_draft_and_target_share_counts_once() -> None:
    pair = load_pair("tiny")
    draft = pair.draft
    before = footprint(pair)["draft_weights"]
    draft.get_output_embeddings().weight = pair.target.get_output_embeddings().weight
    assert footprint(pair)["draft_weights"] == before - 64 * 32 * 4


def test_models_whose_cache_does_not_grow_or_that_are_elsewhere() -> None:
    assert set(footprint(load_pair("tiny-mamba"))) == {"target_weights", "draft_weights"}
    assert footprint(load_pair(vocab_size=64)) == {}


def test_a_cpu_tells_no_peak() -> None:
    assert PeakMemory.of(torch.device("cpu")) is None


def test_peaks_are_those_of_the_arm_that_was_timed() -> None:
    class Fake(PeakMemory):
        def __init__(self) -> None:
            self.peak = 0

        def reset(self) -> None:
            self.peak += 10

        def read(self) -> int:
            return self.peak

    pair = load_pair("tiny")
    settings = Settings(4, 3, pair.vocab_size)
    trials = schedule(["reference"], [Prompt("chat", "chat-1", (1, 2, 3))], 1, 0)
    decoders = {"reference": load_decoder("reference", pair)}
    (found,) = measure(decoders, trials, settings, lambda *_: ("", {}), memory=Fake())
    assert (found.plain_peak_bytes, found.peak_bytes) == (10, 20)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_peak_of_a_cuda_device_is_that_since_the_reset() -> None:
    device = torch.device("cuda")
    memory = PeakMemory.of(device)
    assert memory is not None
    memory.reset()
    before = memory.read()
    large = torch.empty(1 << 20, dtype=torch.uint8, device=device)
    del large
    assert memory.read() - before >= 1 << 20
    memory.reset()
    assert memory.read() == before


# Figures


def timed(**changes: Any) -> GenerationRow:
    told: dict[str, Any] = {
        "plain_first_seconds": 0.2,
        "first_seconds": 0.1,
        "plain_counts": {"target_calls": 4},
        "counts": {"target_calls": 2},
        "plain_peak_bytes": 3_000_000,
        "peak_bytes": 4_500_000,
    }
    return row(**(told | changes))


def test_figures_by_hand() -> None:
    (found,) = resources([timed(), timed(prompt="p2", first_seconds=0.4)], ["a"])
    assert (found.plain_first, found.first) == (0.2, 0.25)
    assert found.earlier is not None
    assert found.earlier.value == pytest.approx(1.0)  # of 2 and 1/2
    assert (found.plain_calls, found.calls) == (1.0, 0.5)
    assert (found.plain_peak, found.peak) == (3_000_000, 4_500_000)
    assert resources([row()], ["a"]) == []


def test_they_stand_in_the_report_and_are_struck_where_the_output_is_wrong() -> None:
    text = formats.terminal([render(made([timed()], decoders=["a"]))])
    assert "200 ms -> 100 ms" in text
    assert "1.00 -> 0.50" in text
    assert "3 MB -> 4.5 MB" in text
    wrong = made([timed(tokens=[9, 9, 9, 9])], decoders=["a"])
    assert "(2.00x) not lossless" in formats.terminal([render(wrong)]).split("First token,")[1]
    assert "First token," not in formats.terminal([render(made([row()], decoders=["a"]))])


def test_memory_on_a_cpu_is_computed_and_said_to_be() -> None:
    memory = {"target_weights": 5_000_000, "draft_weights": 90_000, "target_cache": 256}
    text = unwrapped(formats.terminal([render(made([row()], options={"memory": memory}))]))
    assert "target: weights 5 MB, cache 256 B a token" in text
    assert "draft: weights 90 kB (weights that it shares with the target not counted)" in text
    assert "the peak of either arm is not measured on a CPU" in text
