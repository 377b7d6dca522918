"""What acceptance rules keep, as expectations: held to the engines' own coins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from harness.models import load_pair
from reference_impl import rules
from reference_impl.acceptance import BlockVerification, SamplerMatching, TypicalAcceptance
from reference_impl.drafters.ngram import NgramDrafter
from reference_impl.engine import SpeculativeEngine
from reference_impl.proposal import Proposal

ENGINES = {
    "token-wise": SpeculativeEngine,
    "block": BlockVerification,
    "matching": SamplerMatching,
    "typical": TypicalAcceptance,
}
COINS = 20_000


def laws(seed: int, drafts: int = 3, vocab: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    p = torch.randn(1, drafts + 1, vocab, generator=rng).mul(1.5).softmax(-1)
    q = torch.randn(1, drafts, vocab, generator=rng).softmax(-1)
    return p, q, torch.multinomial(q[0], 1, generator=rng).view(1, -1)


def judged(rule: str, p: Tensor, q: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    """Accepted drafts and the tokens after them, [COINS] each."""
    engine = ENGINES[rule](load_pair("micro").target, NgramDrafter(3, 1), p.shape[-1])
    k = drafts.shape[1]
    u = torch.rand(COINS, k + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    many = Proposal(
        drafts.expand(COINS, -1), torch.full((COINS,), k).numpy(), q.expand(COINS, -1, -1)
    )
    return engine.judge(p.expand(COINS, -1, -1), many, torch.full((COINS,), k), u)


@pytest.mark.parametrize("rule", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_expected_lengths_are_the_means_over_coins(rule: str, seed: int) -> None:
    p, q, drafts = laws(seed)
    accepted = judged(rule, p, q, drafts)[0].double()
    expected = rules.expected_lengths(p, q, drafts)[rule]
    error = 5 * float(accepted.std()) / COINS**0.5 + 1e-6
    assert float(accepted.mean()) == pytest.approx(expected, abs=error)


@pytest.mark.parametrize("rule", ENGINES)
def test_the_next_law_is_that_of_a_block_of_one(rule: str) -> None:
    p, q, _ = laws(7, drafts=1)
    law = torch.zeros(5, dtype=torch.float64)
    for token in range(5):
        accepted, after = judged(rule, p, q, torch.tensor([[token]]))
        first = torch.where(accepted > 0, token, after)
        law += q[0, 0, token] * first.bincount(minlength=5) / COINS
    found = rules.next_laws(p[0, 0].double(), q[0, 0].double())[rule]
    torch.testing.assert_close(found, law, atol=0.02, rtol=0)
    off = float((found - p[0, 0].double()).abs().sum()) / 2
    assert off > 1e-3 if rule == "typical" else off < 1e-6


def test_the_command_measures_every_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rules.json"
    size = ["--prompts", "2", "--max-new-tokens", "16", "--draft-tokens", "2"]
    assert rules.main(["--pair", "tiny", *size, "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [row["task"] for row in rows] == ["chat", "code", "math", "creative"]
    assert all(0 < row["typical"] < 2 and row["blocks"] > 4 for row in rows)
    assert "block - token-wise" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--pair huge", "unknown pair 'huge'"),
        ("--prompts 0", "--prompts is 0: ask for at least 1"),
        ("--max-new-tokens 0", "--max-new-tokens is 0"),
        ("--draft-tokens -3", "--draft-tokens is -3"),
        ("--temperature nan", "--temperature is nan: the rules are for sampling, above 0"),
        ("--temperature 0", "--temperature is 0.0"),
        ("--temperature 1e-40", "--temperature is 1e-40: the rules are for sampling, above 0"),
        ("--temperature inf", "give at least 1e-06"),
        ("--max-new-tokens 1", "ask for at least 2, as the last token is never drafted"),
    ],
)
def test_bad_input_is_refused(options: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rules.main(options.split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_a_single_prompt_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--prompts", "1", "--max-new-tokens", "2", "--temperature", "1e-6"]
    assert rules.main(["--pair", "tiny", *size]) == 0
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert all(" -  " in line and "[" not in line for line in lines), lines
