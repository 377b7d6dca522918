"""The suites as somebody runs them: options, exit codes, records, files of expectations.

Most runs are a pytest within this one, for torch is imported already; two are processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from harness import record
from harness.checks.budget import ALPHA
from harness.models import load_pair
from harness.verdict import Status

ROOT = Path(__file__).parent.parent
SMOKE, GREEDY = "suites/test_smoke.py", "suites/test_greedy.py::test_identity"
Suites = Callable[..., "Run"]


@dataclass
class Run:
    code: int
    output: str
    record: record.Record | None

    @property
    def verdicts(self) -> list[record.VerdictRow]:
        assert self.record is not None
        assert self.record.problems == []
        return self.record.verdicts


@pytest.fixture
def suites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Suites:
    """Run suites with some arguments, and a record of them."""
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> Run:
        path = tmp_path / "record.jsonl"
        path.unlink(missing_ok=True)
        quiet = ["--capture=no", "-pno:cacheprovider", "-pno:faulthandler", "-pno:xdist"]
        capsys.readouterr()
        code = pytest.main(["--results", str(path), *quiet, *arguments])
        output = "".join(capsys.readouterr())
        begun = path.exists() and path.stat().st_size > 0  # before, it was tried whether it can be
        return Run(int(code), output, record.read(path) if begun else None)

    return run


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[str], str]:
    """A file of expectations."""

    def write(text: str) -> str:
        (tmp_path / "expected.txt").write_text(text + "\n")
        return str(tmp_path / "expected.txt")

    return write


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--decoder nope", "unknown decoder 'nope': known are "),
        ("--decoder no_such_module:build", "cannot import 'no_such_module'"),
        ("--decoder decoders:nothing", "module 'decoders' has no function 'nothing'"),
        ("--decoder-option max_batch", "'max_batch': it must be KEY=VALUE"),
        ("--decoder-option =3", "'=3': it must be KEY=VALUE"),
        ("--decoder-option colour=red", "unexpected keyword argument 'colour'"),
        ("--pair tinny", "unknown pair 'tinny': known are tiny,"),
        ("--target HERE", "give both --target and --draft"),
        ("--draft HERE", "give both --target and --draft"),
        ("--pair tiny --target HERE --draft HERE", "give one of --pair, --target with --draft"),
        ("--pair tiny --vocab-size 64", "give one of --pair, --target with --draft"),
        ("--vocab-size -1", "--vocab-size is -1: it must be at least 1"),
        ("--target HERE --draft HERE", "cannot load 'HERE' as a causal LM"),
        ("--profile huge", "unknown profile 'huge': known are smoke, ci, nightly"),
        ("--draft-tokens 0", "--draft-tokens is 0: it must be at least 1"),
        ("--samples -3", "--samples is -3: it must be at least 1"),
        ("--seconds 0", "--seconds is 0.0: it must be above 0"),
        ("--device abacus", "device 'abacus' cannot be used here"),
        ("--results HERE", "cannot write --results HERE: Is a directory"),
        ("--results HERE/file/record.jsonl", "cannot write --results HERE/file/record.jsonl"),
        ("--xfails-file HERE/missing", "cannot read HERE/missing"),
        ("--skips-file HERE/file", "HERE/file, line 1: an entry needs a reason after '#'"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_code_2(
    suites: Suites, tmp_path: Path, arguments: str, words: str
) -> None:
    (tmp_path / "file").write_text("test_wired*\n")
    run = suites(SMOKE, *arguments.replace("HERE", str(tmp_path)).split())
    assert run.code == 2
    assert "Traceback" not in run.output
    told = [line for line in run.output.splitlines() if "error" in line.lower()]
    assert len(told) == 1, run.output
    assert words.replace("HERE", str(tmp_path)) in told[0]
    assert "passed" not in run.output


def test_a_bad_option_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "pytest", SMOKE, "--draft-tokens", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    words = "Exit: error: --draft-tokens is 0: it must be at least 1\n"
    assert (done.returncode, done.stdout + done.stderr) == (2, words)


def test_the_header_says_what_is_tested(suites: Suites) -> None:
    arguments = ["--pair=tiny-bad", "--seed=7", "--decoder=decoders:longer", "--decoder-option"]
    run = suites(SMOKE, *arguments, "by=0")
    assert "decoder: decoders:longer {'by': '0'}\n" in run.output
    assert "pair: tiny-bad on cpu; profile: smoke\n" in run.output
    assert f"seed: 7; alpha: {ALPHA} for the whole run\n" in run.output
    assert (
        f"versions: {', '.join(f'{k} {v}' for k, v in record.versions().items())}\n" in run.output
    )
    assert "verdicts of decoders:longer: 1 PASS\n" in run.output
    assert run.record is not None
    header = run.record.header
    assert (header.seed, header.alpha, header.pair.name) == (7, ALPHA, "tiny-bad")
    assert (header.decoders, header.options["decoder_options"]) == (
        ["decoders:longer"],
        {"by": "0"},
    )


def test_options_reach_the_decoder_and_the_budget(suites: Suites) -> None:
    options = ["--decoder=decoders:longer", "--draft-tokens=2", "--decoder-option=by=1"]
    [row] = suites(GREEDY, *options, "--pair=micro-bad").verdicts
    assert row.verdict.status is Status.FAIL
    assert max(row.verdict.evidence["got"]) < 8
    assert "load_pair(name='micro-bad', " in row.verdict.repro
    assert "draft_tokens=1" in row.verdict.repro  # the smallest that fails
    assert "load_decoder('decoders:longer', pair, {'by': '1'})" in row.verdict.repro
    [row] = suites(GREEDY, "--draft-tokens=2", "--seed=3").verdicts
    assert "over K 2..2," in row.verdict.ruled_out


def test_alpha_is_shared_and_samples_are_limited(suites: Suites) -> None:
    run = suites("suites/test_distribution.py", "--samples=20", "--pair=micro")
    assert run.code == 1
    assert "5 INCONCLUSIVE" in run.output
    family = [r.verdict for r in run.verdicts if r.verdict.check == "distribution.family"]
    assert [verdict.status for verdict in family] == [Status.INCONCLUSIVE] * 4
    assert {verdict.evidence["samples"] for verdict in family} == {20}
    assert {row.verdict.evidence["alpha"] for row in run.verdicts} == {ALPHA / 7}


def test_a_pair_from_directories_is_tested_and_reproduced(
    suites: Suites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    tiny = load_pair("tiny-bad")
    models = [f"--target={tiny.directory('target')}", f"--draft={tiny.directory('draft')}"]
    [row] = suites(GREEDY, *models, "--decoder=decoders:last_token").verdicts
    assert row.verdict.status is Status.FAIL
    capsys.readouterr()
    exec(row.verdict.repro, {})
    assert f"tokens={row.verdict.evidence['got']}" in capsys.readouterr().out


# --- verdicts and records -----------------------------------------------------------------------


def test_without_weights_there_is_no_oracle_and_the_arms_are_compared(suites: Suites) -> None:
    chosen = [SMOKE, "suites/test_arms.py", "suites/test_contract.py", "suites/test_acceptance.py"]
    run = suites(*chosen, "--decoder", "decoders:elsewhere", "--vocab-size", "64")
    assert run.code == 0
    assert "no weights, 64 ids" in run.output
    passed = {row.verdict.check for row in run.verdicts if row.verdict.status is Status.PASS}
    assert passed >= {"arms.greedy", "arms.sampled", "contract.form", "acceptance.identities"}
    others = {row.verdict.message for row in run.verdicts if not row.verdict.passed}
    assert others == {"needs the target's weights: give --target and --draft"}


def test_a_fault_is_a_failed_item_with_its_reproduction(suites: Suites) -> None:
    run = suites(GREEDY, "--decoder=decoders:last_token")
    assert run.code == 1
    [row] = run.verdicts
    assert (row.item, row.suite, row.decoder) == (
        f"{GREEDY}[tiny]",
        "greedy",
        "decoders:last_token",
    )
    assert row.verdict.status is Status.FAIL
    assert row.seconds > 0
    assert "reproduce:" in run.output
    assert "show(pair, requests, decoder.generate(requests))" in run.output
    assert "verdicts of decoders:last_token: 1 FAIL" in run.output


@pytest.mark.parametrize(
    ("decoder", "words"),
    [
        ("raises", "the decoder raised RuntimeError: out of memory"),
        ("cannot_be_built", "RuntimeError: no licence found"),
        ("refuses_the_pair", "cannot be built: only for large models"),
    ],
)
def test_a_crash_is_an_error_row(
    suites: Suites, lines: Callable[[str], str], decoder: str, words: str
) -> None:
    run = suites(SMOKE, f"--decoder=decoders:{decoder}")
    assert run.code == 1
    [row] = run.verdicts
    assert (row.verdict.status, words in row.verdict.message) == (Status.ERROR, True)
    assert (row.verdict.check, row.expected_failure) == ("smoke.wired", "")
    # It stays one where it is expected, which takes its words: a name does not stand for them.
    run = suites(SMOKE, f"--decoder=decoders:{decoder}", "--xfails-file", lines("test_w*  # known"))
    assert run.code == 1
    [row] = run.verdicts
    assert (row.verdict.status, row.expected_failure) == (Status.ERROR, "")
    entry = f"test_w* | {words}  # known"
    run = suites(SMOKE, f"--decoder=decoders:{decoder}", "--xfails-file", lines(entry))
    assert run.code == 0
    [row] = run.verdicts
    assert (row.verdict.status, row.expected_failure) == (Status.ERROR, "known")


@pytest.mark.parametrize(
    ("decoder", "words"),
    [
        ("too_few", "requests were answered by "),
        ("beyond_the_vocabulary", "token 64 is outside the vocabulary 0..63"),
        ("nothing_at_all", "a completion is a NoneType"),
        ("nan_logprobs", "log probability nan is above 0 or not a number"),
        ("sorted_rows", "the answers come in another order than the requests"),
        ("raises", "the decoder raised RuntimeError: out of memory"),
    ],
)
def test_answers_that_are_none_are_errors_and_the_run_goes_on(
    suites: Suites, decoder: str, words: str
) -> None:
    run = suites("suites/test_contract.py", f"--decoder=decoders:{decoder}")
    assert run.code == 1
    form, requests, nothing = (row.verdict for row in run.verdicts)
    assert (form.status, words in form.message) == (Status.ERROR, True), str(form)
    assert requests.status is Status.ERROR
    assert nothing.status is (Status.FAIL if decoder == "raises" else Status.PASS)


def test_what_is_not_declared_is_skipped_and_recorded(suites: Suites) -> None:
    run = suites("suites/test_exact_law.py")
    assert run.code == 0
    assert "1 skipped" in run.output
    [row] = run.verdicts
    assert row.verdict.status is Status.UNSUPPORTED


def test_several_processes_write_the_same_record(
    suites: Suites, lines: Callable[[str], str], tmp_path: Path
) -> None:
    files = [
        SMOKE,
        "suites/test_exact_law.py",
        "suites/test_randomness.py",
        GREEDY,
    ]
    expected = lines("test_id*[tiny]  # known\ntest_nothing*  # gone")
    arguments = [*files, "--decoder=decoders:last_token", "--xfails-file", expected]
    alone = suites(*arguments)
    path = tmp_path / "parallel.jsonl"
    command = [sys.executable, "-m", "pytest", "-n2", *arguments, "--results", str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    for name in [name for name in environment if name.startswith("PYTEST")]:
        del environment[name]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == alone.code, done.stdout
    parallel = record.read(path)
    assert parallel.problems == []

    def rows(verdicts: list[record.VerdictRow]) -> list[record.VerdictRow]:
        timeless = [msgspec.structs.replace(row, seconds=0.0) for row in verdicts]
        return sorted(timeless, key=lambda row: row.item)

    assert len(parallel.verdicts) == 6
    assert rows(parallel.verdicts) == rows(alone.verdicts)
    for output in (alone.output, done.stdout):
        stale = [line for line in output.splitlines() if "stale" in line]
        assert stale == ["stale entry, matches no item of this run: test_nothing*"]


# --- expectations -------------------------------------------------------------------------------


def test_a_known_failure_is_expected_with_its_reason(
    suites: Suites, lines: Callable[[str], str]
) -> None:
    path = lines("test_greedy.py::test_identity[tiny]  # see issue 5")
    run = suites(GREEDY, "--decoder=decoders:last_token", "--xfails-file", path)
    assert run.code == 0
    assert "1 xfailed" in run.output
    assert "see issue 5" in run.output
    assert "stale" not in run.output
    [row] = run.verdicts
    assert (row.verdict.status, row.expected_failure) == (Status.FAIL, "see issue 5")


def test_another_failure_than_the_known_one_is_none(
    suites: Suites, lines: Callable[[str], str]
) -> None:
    path = lines("test_identity[tiny] | IndexError  # the context\ntest_identity* | token  # last")
    run = suites(GREEDY, "--decoder=decoders:last_token", "--xfails-file", path)
    assert (run.code, "1 xfailed" in run.output) == (0, True)
    [row] = run.verdicts
    assert row.expected_failure == "last"
    path = lines("~test_identity[tiny] | IndexError  # the context")
    run = suites(GREEDY, "--decoder=decoders:last_token", "--xfails-file", path)
    assert (run.code, "1 failed" in run.output) == (1, True)
    [row] = run.verdicts
    assert (row.verdict.status, row.expected_failure) == (Status.FAIL, "")


def test_a_failure_that_is_gone_is_told(suites: Suites, lines: Callable[[str], str]) -> None:
    run = suites(GREEDY, "--xfails-file", lines("test_identity*  # see issue 5"))
    assert run.code == 1
    assert "[XPASS(strict)] see issue 5" in run.output
    [row] = run.verdicts
    assert row.verdict.status is Status.PASS


def test_a_failure_that_comes_and_goes_may_pass(
    suites: Suites, lines: Callable[[str], str]
) -> None:
    run = suites(GREEDY, "--xfails-file", lines("~test_identity*  # at times"))
    assert run.code == 0
    assert "1 xpassed" in run.output
    [row] = run.verdicts
    assert row.verdict.status is Status.PASS


def test_what_is_left_out_has_no_verdict(suites: Suites, lines: Callable[[str], str]) -> None:
    run = suites(SMOKE, GREEDY, "--skips-file", lines("test_identity*  # takes too long"))
    assert run.code == 0
    assert "takes too long" in run.output
    assert [row.suite for row in run.verdicts] == ["smoke"]
