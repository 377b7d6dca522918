"""Claims of the field: what supports them, what contradicts them, and what decides nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.record import GenerationRow, PairInfo, Record, VerdictRow, Writer
from harness.report import formats
from harness.report.__main__ import main
from harness.report.claim_evidence import Judgement, Outcome, evidence
from harness.report.claims import CLAIMS, add, decided, section
from harness.report.document import Section
from harness.report.render import render
from harness.verdict import Status, Verdict
from tests.records import header, made, unwrapped
from tests.timed_rows import row

SUPPORTED, CONTRADICTED = Outcome.SUPPORTED, Outcome.CONTRADICTED
UNDECIDED, NOT_MEASURED = Outcome.UNDECIDED, Outcome.NOT_MEASURED


def rows(
    speedup: float,
    task: str = "chat",
    decoder: str = "a",
    count: int = 10,
    accepted: float | None = None,
    noise: float = 0.02,
    **rest: Any,
) -> list[GenerationRow]:
    """A task of one decoder: speedups about a value, rounds that accept about a share."""
    found = []
    for number in range(count):
        told: dict[str, Any] = {}
        if accepted is not None:
            kept = round(100 * accepted) + number % 3 - 1
            told = {"drafted": [100], "accepted": [max(0, kept)]}
        plain = speedup * math.exp(noise * (2 * number + 1 - count) / count)
        given: dict[str, Any] = {"prompt": f"{task}-{number}", "plain_seconds": plain, **rest}
        found.append(row(decoder, task=task, seconds=1.0, **told, **given))
    return found


def suite(status: str, check: str, on: str = "tiny", decoder: str = "a", **more: Any) -> VerdictRow:
    name, _, test = check.partition(".")
    return VerdictRow(
        decoder=decoder,
        item=f"suites/test_{name}.py::test_{test}[{on}]",
        suite=name,
        seconds=0.1,
        verdict=Verdict(check=check, status=Status[status], message="because"),
        **more,
    )


def record(
    generations: Sequence[GenerationRow] = (), verdicts: Sequence[VerdictRow] = (), **changes: Any
) -> Record:
    names = [r.decoder for r in generations] + [v.decoder for v in verdicts]
    given = {"decoders": list(dict.fromkeys(names))} | changes
    return made(generations, verdicts, **given)


def judged(claim: str, *records: Record) -> Judgement:
    [found] = [claim_.rule(evidence(records)) for claim_ in CLAIMS if claim_.id == claim]
    return found


def outcome(claim: str, *records: Record) -> Outcome:
    return judged(claim, *records).outcome


def pair(name: str = "tiny", dtype: str = "float32") -> PairInfo:
    return PairInfo(name, "", "", "cpu", dtype)


def options(**changes: Any) -> dict[str, Any]:
    return {"draft_tokens": 3, "temperature": 0.0} | changes


def test_nothing_measured_decides_nothing() -> None:
    for claim in CLAIMS:
        assert claim.rule(evidence([record()])).outcome is NOT_MEASURED
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids) == 14


# Unchanged output


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (record(rows(2)), SUPPORTED),
        (record(verdicts=[suite("PASS", "greedy.identity")]), SUPPORTED),
        (record(verdicts=[suite("FAIL", "greedy.identity")]), CONTRADICTED),
        (record(rows(2, tokens=(9, 9, 9, 9), fault="far")), CONTRADICTED),
        (record(rows(2, tokens=(1, 2, 3, 9), near_tie="1e-6 apart")), NOT_MEASURED),
        (record(verdicts=[suite("ERROR", "greedy.identity")]), NOT_MEASURED),
        (record(verdicts=[suite("UNSUPPORTED", "greedy.identity")]), NOT_MEASURED),
        (record(rows(2, identical=None)), NOT_MEASURED),
        (record(rows(2), options={"declared_lossy": ["a"]}), NOT_MEASURED),
    ],
)
def test_greedy(found: Record, expected: Outcome) -> None:
    assert outcome("greedy", found) is expected


def test_what_is_known_to_fail_fails_all_the_same() -> None:
    known = suite("FAIL", "greedy.identity", decoder="b", expected_failure="issue 1")
    found = judged("greedy", record(rows(2), [known]))
    assert found.outcome is CONTRADICTED
    assert found.figures[:2] == ["holds for 1 of 2 decoders", "not for b"]
    assert found.figures[2] == "outputs that were timed: 10 identical; at most 30.8% differ (95%)"


ORDINARY = suite("PASS", "distribution.family", "micro-T=1 K=4")
HOSTILE = suite("PASS", "distribution.family", "micro-hostile-T=1 K=4")
BAD = suite("PASS", "distribution.recovered", "micro-bad")
OWN = suite("PASS", "distribution.evidence", "tiny-self-T=1")


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([ORDINARY, HOSTILE], SUPPORTED),
        ([ORDINARY, BAD], SUPPORTED),
        ([ORDINARY], UNDECIDED),
        ([ORDINARY, OWN], UNDECIDED),
        ([HOSTILE], UNDECIDED),
        ([ORDINARY, HOSTILE, suite("FAIL", "distribution.family", "micro-bad-T=1")], CONTRADICTED),
        ([suite("INCONCLUSIVE", "distribution.family")], NOT_MEASURED),
    ],
)
def test_sampled(verdicts: list[VerdictRow], expected: Outcome) -> None:
    assert outcome("sampled", record(verdicts=verdicts)) is expected


def test_the_quality_of_the_draft_is_told() -> None:
    told = "; ".join(judged("sampled", record(verdicts=[ORDINARY, HOSTILE, BAD])).figures)
    assert "passed with a hostile draft: 1" in told
    assert "passed with an ordinary draft: 1" in told


def test_cache() -> None:
    good, bad = (suite(status, "cache.all_rejected") for status in ("PASS", "FAIL"))
    assert outcome("kv-cache", record(verdicts=[good])) is SUPPORTED
    assert outcome("kv-cache", record(verdicts=[good, bad])) is CONTRADICTED


# Gains


@pytest.mark.parametrize(
    ("claim", "task", "speedup", "expected"),
    [
        ("chat", "chat", 2.0, SUPPORTED),
        ("chat", "chat", 1.2, CONTRADICTED),
        ("chat", "chat", 3.5, CONTRADICTED),
        ("chat", "chat", 1.5, UNDECIDED),
        ("chat", "code", 2.0, NOT_MEASURED),
        ("code-math", "code", 1.35, SUPPORTED),
        ("code-math", "math", 1.9, CONTRADICTED),
        ("creative", "creative", 0.8, SUPPORTED),
        ("creative", "creative", 1.3, CONTRADICTED),
        ("creative", "creative", 1.05, UNDECIDED),
    ],
)
def test_ranges(claim: str, task: str, speedup: float, expected: Outcome) -> None:
    assert outcome(claim, record(rows(speedup, task))) is expected


def test_a_value_on_the_right_side_is_not_enough() -> None:
    found = judged("chat", record(rows(1.6, noise=0.3)))
    assert found.outcome is UNDECIDED
    assert found.figures[0].startswith("on both sides: a 1.")


def test_an_interval_takes_prompts() -> None:
    found = judged("chat", record(rows(2.0, count=7)))
    assert found.outcome is UNDECIDED
    assert found.figures == ["intervals take 8 prompts, and some figures have fewer"]


def test_one_decoder_is_enough_against_what_is_said_of_all() -> None:
    found = judged("chat", record(rows(2.0) + rows(1.1, decoder="b")))
    assert found.outcome is CONTRADICTED
    assert found.figures[0].startswith("against: b 1.1")
    assert found.figures[1].startswith("for: a 2.0")


def test_intervals_of_one_claim_share_their_error() -> None:
    alone = judged("chat", record(rows(2.0, noise=0.3)))
    others = [each for name in "bcdefg" for each in rows(2.0, noise=0.3, decoder=name)]
    beside = judged("chat", record(rows(2.0, noise=0.3) + others))
    [interval] = [figure.removeprefix("for: ") for figure in alone.figures]
    assert interval.startswith("a 2.00x [")
    assert interval not in beside.figures[0]
    assert len(beside.figures[0].split(", and 1 more")) == 2


@pytest.mark.parametrize(
    "found",
    [
        record(rows(2.0, tokens=(9, 9, 9, 9), fault="far")),
        record(rows(2.0), options={"declared_lossy": ["a"]}),
        record(rows(2.0) + rows(2.0, "code", tokens=(9, 9, 9, 9), fault="far")),
        record(rows(2.0), [suite("FAIL", "greedy.identity")]),
        record(rows(2.0), [suite("FAIL", "distribution.family")]),
    ],
)
def test_who_is_not_lossless_gains_nothing(found: Record) -> None:
    assert outcome("chat", found) is NOT_MEASURED


def of_the_run(status: str) -> VerdictRow:
    """The verdict on the sampled outputs that were timed."""
    found = suite(status, "bench.evidence")
    return msgspec.structs.replace(found, item="bench.evidence[T=1]", suite="benchmark")


def test_a_sampled_run_counts_where_its_distribution_was_judged() -> None:
    hot = record(rows(0.9, identical=None), options=options(temperature=1.0))
    assert outcome("creative", hot) is NOT_MEASURED
    assert outcome("creative", hot, record(verdicts=[ORDINARY])) is SUPPORTED
    evidence_of_the_run = of_the_run("PASS")
    by_its_own = record(hot.generations, [evidence_of_the_run], options=options(temperature=1.0))
    assert outcome("creative", by_its_own) is SUPPORTED
    refuted = record(hot.generations, [of_the_run("FAIL")], options=options(temperature=1.0))
    assert outcome("creative", refuted, record(verdicts=[ORDINARY])) is NOT_MEASURED
    assert outcome("sampled", refuted) is CONTRADICTED
    mild = record(rows(0.9, identical=None), options=options(temperature=0.5))
    assert outcome("creative", mild, record(verdicts=[ORDINARY])) is NOT_MEASURED


def test_code_and_creative_text() -> None:
    code = rows(2, "code", accepted=0.6)
    assert outcome("code-creative", record(code + rows(2, "creative", accepted=0.3))) is SUPPORTED
    other = record(code + rows(2, "creative", accepted=0.8))
    assert outcome("code-creative", other) is CONTRADICTED
    assert "-20 points" in judged("code-creative", other).figures[0]
    same = record(code + rows(2, "creative", accepted=0.6))
    assert outcome("code-creative", same) is UNDECIDED
    assert outcome("code-creative", record(code)) is NOT_MEASURED


def test_mismatch() -> None:
    assert outcome("mismatch", record(rows(0.6), pair=pair("tiny-bad"))) is SUPPORTED
    assert outcome("mismatch", record(rows(1.6), pair=pair("tiny-hostile"))) is CONTRADICTED
    assert outcome("mismatch", record(rows(0.6, accepted=0.03))) is SUPPORTED
    assert outcome("mismatch", record(rows(0.6, accepted=0.5))) is NOT_MEASURED
    shuffled = record(rows(0.6, accepted=0.5), options=options(draft_choice="mismatched"))
    assert outcome("mismatch", shuffled) is SUPPORTED


def test_useful_acceptance() -> None:
    good, bad = rows(2, accepted=0.7), rows(0.8, decoder="b", accepted=0.3)
    assert outcome("acceptance", record(good + bad)) is SUPPORTED
    assert outcome("acceptance", record(good)) is UNDECIDED
    counter = record(rows(1.4, accepted=0.3))
    assert outcome("acceptance", counter) is CONTRADICTED
    assert "at 30% [" in judged("acceptance", counter).figures[0]
    assert outcome("acceptance", record(rows(0.8, accepted=0.8))) is CONTRADICTED
    assert outcome("acceptance", record(rows(2))) is NOT_MEASURED


def test_stronger_drafts() -> None:
    weak = rows(2.0, decoder="a-small", accepted=0.3)
    slow = rows(1.5, decoder="a-large", accepted=0.9)
    fast = rows(3.0, decoder="a-large", accepted=0.9)
    found = judged("stronger", record(weak + slow))
    assert found.outcome is SUPPORTED
    assert "a-large gives 2.94 times the tokens per call of a-small, and 0.75x" in found.figures[0]
    assert outcome("stronger", record(weak + fast)) is UNDECIDED
    elsewhere = rows(1.5, decoder="other", accepted=0.9)
    assert outcome("stronger", record(weak + elsewhere)) is NOT_MEASURED
    assert outcome("stronger", record(weak), record(slow)) is NOT_MEASURED


def test_batches() -> None:
    one = record(rows(2.0), options=options(batch_size=1))
    unnamed = record(rows(2.0), options=options())
    many = record(rows(0.8), options=options(batch_size=16))
    found = judged("batch", one, many)
    assert found.outcome is SUPPORTED
    assert found.figures[0].startswith("for: a, batch 16 over 1 0.40x")
    assert found.figures[1].startswith("slower than plain decoding: a, batch 16 0.8")
    assert outcome("batch", unnamed, many) is SUPPORTED
    grown = record(rows(3.0), options=options(batch_size=16))
    assert outcome("batch", one, grown) is CONTRADICTED
    assert outcome("batch", one, unnamed) is NOT_MEASURED
    hot = record(rows(0.8), options=options(batch_size=16, draft_tokens=5))
    assert outcome("batch", one, hot) is NOT_MEASURED


def test_short_outputs() -> None:
    def of(speedup: float, length: int, task: str) -> list[GenerationRow]:
        tokens = tuple(range(length))
        found = rows(speedup, task, tokens=tokens, plain_tokens=tokens)
        assert all(each.plain_tokens == list(tokens) for each in found)
        return found

    long = of(2.0, 64, "chat")
    assert outcome("short", record(of(1.2, 8, "code") + long)) is SUPPORTED
    assert outcome("short", record(of(2.6, 8, "code") + long)) is CONTRADICTED
    assert outcome("short", record(of(2.0, 8, "code") + long)) is UNDECIDED
    assert outcome("short", record(long)) is NOT_MEASURED


def test_quantised_targets() -> None:
    int8 = {"pair": pair(dtype="int8")}
    assert outcome("int8", record(rows(1.5), **int8)) is SUPPORTED
    assert outcome("int8", record(rows(0.7), **int8)) is CONTRADICTED
    assert outcome("int8", record(rows(1.0), **int8)) is UNDECIDED
    broken = record(rows(1.5, tokens=(9, 9, 9, 9), fault="far"), **int8)
    assert outcome("int8", broken) is CONTRADICTED
    assert outcome("int8", record(rows(1.5))) is NOT_MEASURED


def test_memory() -> None:
    def of(draft: int, cache: int) -> Record:
        sizes = {"target_weights": 1000, "draft_weights": draft}
        sizes |= {"target_cache": 100, "draft_cache": cache}
        return record(rows(2.0), options=options(memory=sizes))

    assert outcome("memory", of(50, 5)) is SUPPORTED
    assert outcome("memory", of(300, 30)) is CONTRADICTED
    assert judged("memory", of(50, 30)).figures == ["on both sides: tiny in float32 5% [5%, 30%]"]
    assert outcome("memory", record(options=options(memory={}))) is NOT_MEASURED


def test_runs_of_one_decoder_are_told_apart_by_what_differs() -> None:
    found = judged(
        "chat",
        record(rows(2.0), options=options()),
        record(rows(2.0), options=options(draft_tokens=5)),
    )
    assert "a K=3 2.0" in found.figures[0]
    assert "a K=5 2.0" in found.figures[0]
    twice = judged("chat", record(rows(2.0)), record(rows(2.0), started="2026-02-02T02:02:02Z"))
    assert "a of 2026-02-02T02:02 2.0" in twice.figures[0]
    together = judged("chat", record(rows(2.0)), record(rows(2.0)))
    assert together.figures[0].count("(run 1)") == together.figures[0].count("(run 2)") == 1


# Where they are shown


def test_a_record_that_decides_nothing_has_no_claims_in_its_report() -> None:
    empty = Section("x", [])
    add(record(rows(2.0, identical=None)), empty)
    assert empty == Section("x", [])
    text = formats.terminal([render(record(rows(2.0)))])
    assert "Greedy output is unchanged" in text
    assert "draft costs little memory" not in text
    assert "more, which --claims lists" in unwrapped(text)


def test_all_claims_are_listed_with_what_would_decide_them() -> None:
    found = section([record(rows(2.0))])
    text = unwrapped(formats.terminal([found]))
    for claim in CLAIMS:
        assert claim.words in text
    assert text.count("takes ") >= 5
    assert "not measured here" in text
    assert decided(found)
    assert not decided(section([record()]))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for number, found in enumerate((record(rows(2.0)), record(verdicts=[ORDINARY, HOSTILE]))):
        paths.append(str(tmp_path / f"{number}.jsonl"))
        with Writer(Path(paths[-1]), found.header) as writer:
            for each in (*found.generations, *found.verdicts):
                writer.add(each)
    names = "terminal,markdown,html,json,csv,latex"
    assert main(["--claims", *paths, "--format", names, "--out", str(tmp_path)]) == 0
    assert "Chat gains 1.5 to 3 times" in capsys.readouterr().out
    for name in names.split(",")[1:]:
        assert "supported" in (tmp_path / formats.file_name(name, "claims")).read_text()
    nothing = tmp_path / "nothing.jsonl"
    with Writer(nothing, header()):
        pass
    assert main(["--claims", str(nothing)]) == 3
    assert main(["--claims", str(nothing), "--from", str(nothing)]) == 2
