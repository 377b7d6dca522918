"""False alarms: every statistic is counted, wrong levels are told, many runs are as one run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.checks.members import round_starts
from harness.contract import Round
from harness.stats import calibration, chi_square, experts, false_alarms, many_runs, right_decoders
from harness.stats.calibration import CONFIDENCE, Calibration, main
from harness.stats.certificate import LEAK
from harness.stats.eprocess import EProcess
from harness.stats.false_alarms import CHAIN, LEVELS, MODELS, STUDIES, Study
from harness.stats.right_decoders import DRAFTS, LEAKS, RIGHT, Rule, Runs, decode
from harness.stats.trials import Trials

STATISTICS = {
    *(
        f"e-process, {kind}{slack}"
        for kind in ("q known", "q unknown", "tilt alone")
        for slack in ("", ", slack")
    ),
    *(f"certificate of {family}" for family in ("leak", "over-acceptance")),
    *(f"chi-square, one prompt, {statistic}" for statistic in ("pearson", "log-likelihood")),
    "chi-square family, Holm",
    "PIT chi-square",
    "permutation of scores",
    "paired bets",
    "Hamming MMD",
    *(f"acceptance, {d} {w}" for d in ("more", "less") for w in ("first", "later", "all")),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def starts(count: int) -> torch.Tensor:
    return torch.randint(len(MODELS.rows), (count,), generator=seeded(count))


def rounds_of(made: Runs, run: int) -> list[Round]:
    """As a decoder reports them; the last one drafted and accepted what is seen of it."""
    rounds, accepted = [], 0
    for goes_on in made.accepted[run].tolist():
        accepted += goes_on
        if not goes_on:
            rounds.append(Round(drafted=DRAFTS, accepted=accepted))
            accepted = 0
    return [*rounds, Round(drafted=DRAFTS, accepted=accepted)] if accepted else rounds


def likeliest(
    p: torch.Tensor, q: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The argmax in place of a draw: a fault."""
    return p.argmax(1), u[0] < 0


# --- the command ---------------------------------------------------------------------------------


def test_every_statistic_has_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Few runs of each: the table, and the same as JSON."""
    file = tmp_path / "calibration.json"
    assert main(["--runs", "4", "--jobs", "1", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    found = json.loads(file.read_text())
    counted = [Calibration(**row) for row in found["statistics"]]
    assert {c.statistic for c in counted} == STATISTICS
    for c in counted:
        assert c == Calibration.of(c.statistic, c.decoder, c.alpha, c.alarms, c.runs)
        assert c.runs == 4
        assert any(
            line.startswith(c.statistic) and c.decoder in line and f" {c.alpha:g} " in line
            for line in printed.splitlines()
        )
    for statistic in STATISTICS:
        for decoder in {c.decoder for c in counted if c.statistic == statistic}:
            rows = [c for c in counted if (c.statistic, c.decoder) == (statistic, decoder)]
            assert [c.alpha for c in rows] == list(LEVELS)
    assert {c.decoder for c in counted if c.statistic == "e-process, q known"} == set(RIGHT)
    assert {"command", "date", "machine", "versions", "seed"} < set(found)
    assert found["confidence"] == CONFIDENCE
    assert "no interval lies above its level" in printed


def test_as_a_command(tmp_path: Path) -> None:
    """In a process of its own, with processes of its own, it gives what it gives in this one."""
    arguments = ["--runs", "200", "--seed", "5", "--only", "PIT chi-square C3"]
    files = [tmp_path / name for name in ("here.json", "there.json")]
    command = [sys.executable, "-m", "harness.stats.calibration", *arguments, "--json"]
    found = subprocess.run([*command, str(files[1])], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert main([*arguments, "--jobs", "1", "--json", str(files[0])]) == 0
    here, there = (json.loads(file.read_text()) for file in files)
    assert here["statistics"] == there["statistics"]
    assert [c["alpha"] for c in there["statistics"]] == list(LEVELS)
    assert there["command"].startswith("python -m harness.stats.calibration --runs 200")


def test_runs_of_several_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They add up, and what is left out changes nothing."""
    monkeypatch.setattr(calibration, "AT_ONCE", 10)
    file = tmp_path / "found.json"
    found = []
    for word in ("PIT chi-square C3", "PIT"):
        assert main(["--runs", "25", "--jobs", "1", "--only", word, "--json", str(file)]) == 0
        rows = json.loads(file.read_text())["statistics"]
        found.append([row for row in rows if row["decoder"] == "C3 candidates"])
    assert found[0] == found[1]
    assert {row["runs"] for row in found[0]} == {25}


def test_a_level_that_is_not_held(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A p-value that is half of what it should be."""

    def broken(_: Rule, runs: int, generator: torch.Generator) -> false_alarms.Levels:
        return {"halved": torch.rand(runs, generator=generator).numpy() / 2}

    monkeypatch.setitem(STUDIES, "halved", Study(broken, {"draws": RIGHT["draws from p"]}))
    assert main(["--runs", "2000", "--jobs", "1", "--only", "halved"]) == 1
    assert "above its level: halved, draws, 0.05" in capsys.readouterr().out


def test_many_runs_that_are_not_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the sums over many runs go astray, nothing is counted."""
    monkeypatch.setattr(many_runs, "peaks", lambda process, gains: gains.sum((1, 2)))
    with pytest.raises(RuntimeError, match="runs at once give"):
        main(["--runs", "2", "--jobs", "1", "--only", "e-process"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--runs", "0"], "--runs is 0"),
        (["--jobs", "-1"], "--jobs is -1"),
        (["--only", "astrology"], "astrology"),
        (["--json", f"{__file__}/x.json"], f"{__file__}/x.json"),
        (["--json", "."], "--json ."),
    ],
)
def test_bad_input(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the value, before anything is run."""
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert says in error


def test_the_interval_by_hand() -> None:
    """No alarm in n runs: the upper end is where (1 - rate)^n is half of what is left out."""
    none = Calibration.of("s", "d", 0.01, 0, 100)
    assert none.low == 0
    assert none.high == pytest.approx(1 - ((1 - CONFIDENCE) / 2) ** (1 / 100))
    assert not none.too_many
    assert not Calibration.of("s", "d", 0.05, 60, 1000).too_many
    assert Calibration.of("s", "d", 0.05, 90, 1000).too_many


# --- what is counted can fail ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "rule"),
    [
        ("e-process", LEAKS[0.5]),
        ("e-process, slack", LEAKS[0.5]),
        ("chi-square, one prompt", LEAKS[0.5]),
        ("chi-square family, Holm", LEAKS[0.5]),
        ("PIT chi-square", partial(right_decoders.leaking, rate=1.0)),
        ("paired bets", partial(right_decoders.leaking, rate=1.0)),
        ("permutation of scores", partial(right_decoders.leaking, rate=1.0)),
        ("Hamming MMD", likeliest),
        ("acceptance", partial(right_decoders.rejection, factor=2.0)),
        ("certificate of leak, 0.5", partial(right_decoders.leaking, rate=0.03)),
        ("certificate of over-acceptance, 2", right_decoders.rejection),
    ],
)
def test_wrong_decoders_are_rejected(study: str, rule: Rule) -> None:
    """Else a level that is held would say nothing."""
    found = STUDIES[study].measure(rule, 20, seeded())
    # Some of what is in a study need not see this fault: less acceptance, say
    assert max(float((levels <= 0.05).mean()) for levels in found.values()) > 0.4


# --- many runs are as one run ---------------------------------------------------------------------


@pytest.mark.parametrize("q", [True, False])
@pytest.mark.parametrize("name", RIGHT)
def test_e_process_of_many_runs(name: str, q: bool) -> None:
    """Wealth of every expert, the tilt among them, and the peak of the mixture."""
    made = decode(RIGHT[name], MODELS, 150, starts(5), seeded())
    for run in range(5):
        process = EProcess(experts.NAMED, q=q, alpha=0.05)
        gains = torch.cat(
            [
                many_runs.fixed_gains(process, MODELS.rows, made),
                many_runs.tilt_gains(MODELS.rows, made, q).unsqueeze(2),
            ],
            2,
        )
        process.update(many_runs.rows_of(MODELS.rows, made, run, q))
        torch.testing.assert_close(gains[run].sum(0), process.log_wealths)
        assert float(many_runs.peaks(process, gains)[run]) == pytest.approx(process.largest)


@pytest.mark.parametrize("alpha", [0.05, 0.8])
def test_certificate_of_many_runs(alpha: float) -> None:
    """The bound after all looks."""
    made = decode(LEAKS[0.1], MODELS, 160, starts(5), seeded(), drafts=160)
    bounds = many_runs.uppers(LEAK, MODELS.rows, made, alpha)
    alone = [many_runs.upper(LEAK, MODELS.rows, made, run, alpha) for run in range(5)]
    assert bounds.tolist() == pytest.approx(alone)


# --- the decoders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RIGHT)
def test_right_decoders_follow_p(name: str) -> None:
    """Two tokens after one context: their joint law, bonus tokens among the second."""
    made = decode(RIGHT[name], CHAIN, 2, torch.zeros(40_000, dtype=torch.int64), seeded(), drafts=1)
    p = CHAIN.rows.p.numpy()
    counts = np.bincount((made.tokens[:, 0] * len(p) + made.tokens[:, 1]).numpy(), minlength=p.size)
    assert chi_square.goodness_of_fit(counts, (p[0][:, None] * p).ravel()).p_value > 1e-4
    assert bool((made.place[:, 1] == made.accepted[:, 0].long()).all())
    assert not made.accepted[:, 1][made.place[:, 1] == 1].any()


def test_how_often_they_accept() -> None:
    """Token-wise rejection at sum min(p, q), C1 at sum q p, C2 at p of q's argmax, C3 above it."""
    p, q = CHAIN.rows.p[0], CHAIN.rows.q[0]
    expected = {
        "draws from p": 0.0,
        "rejection": float(torch.minimum(p, q).sum()),
        "C1 point mass": float(q @ p),
        "C2 sampler match": float(p[q.argmax()]),
        "C3 candidates": float(p[q.topk(3).indices].sum()),
    }
    for name, chance in expected.items():
        made = decode(RIGHT[name], CHAIN, 1, torch.zeros(20_000, dtype=torch.int64), seeded())
        rate = float(made.accepted.double().mean())
        assert rate == pytest.approx(chance, abs=4 * math.sqrt(0.25 / 20_000)), name


def test_trials_and_rounds() -> None:
    """Runs laid out as rounds give the trials, and the starts of rounds, that the checks take."""
    made = decode(RIGHT["rejection"], MODELS, 64, starts(20), seeded())
    beta = MODELS.rows.kept()[made.contexts, 0].numpy()
    for run in range(20):
        expected = Trials.of(rounds_of(made, run), beta[run])
        trials = false_alarms.trials_of(made, run, 0, 64)
        for name in ("position", "accepted", "beta"):
            assert getattr(trials, name).tolist() == getattr(expected, name).tolist()


def test_what_follows_a_round() -> None:
    """The same tokens as the family of a decoder's outputs would take."""
    answers, length = false_alarms.ANSWERS, DRAFTS + 2
    root = torch.zeros(answers, dtype=torch.int64)
    made = decode(RIGHT["rejection"], CHAIN, length, root, seeded())
    rounds = [rounds_of(made, run) for run in range(answers)]
    expected = round_starts(rounds, DRAFTS, length, length)
    assert expected is not None
    for accepted, at in enumerate(expected):
        assert (at >= 0).any()
        assert made.after(accepted).tolist() == at.tolist()


def test_calibration_names_its_alphas() -> None:
    """What is promised in the docstring is what is done."""
    assert calibration.__doc__ is not None
    assert all(f"{alpha:g}" in calibration.__doc__ for alpha in LEVELS)
