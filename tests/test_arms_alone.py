"""Both arms compared where no weights are at hand."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec
import pytest
from decoders import ALL, Elsewhere

from harness.checks import arms_alone
from harness.checks.budget import PROFILES, Budget
from harness.checks.subject import Subject
from harness.contract import Completion, Request
from harness.models import NoWeightsError, load_pair
from harness.verdict import FaultClass, Status, Verdict

SMOKE = PROFILES["smoke"]
BUDGET = Budget(draft_tokens=(2,), prompts=2, new_tokens=8, samples=100, tables=1, alpha=1e-5)
load = functools.cache(load_pair)
COUNT = list(range(20, 20 + arms_alone.NEW_TOKENS))


class Told:
    """Answers as it is told: the plain arm counts up, the other one is changed at some places."""

    def __init__(self, change: dict[int, int], gap: float | None = None, rows: int = 1) -> None:
        self.capabilities = ALL if gap is not None else ALL - {"logprobs"}
        self._change, self._gap, self._rows = change, gap, rows

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        answers = []
        for row, request in enumerate(requests):
            tokens, logprobs = list(COUNT), [-1.0] * len(COUNT)
            if request.speculate and row < self._rows:
                for at, token in self._change.items():
                    tokens[at] = token
                    logprobs[at] -= self._gap or 0.0
            found = Completion(tokens=tokens, finish_reason="length")
            if self._gap is not None:
                found.logprobs = logprobs
            answers.append(found)
        return answers


def judge(decoder: Told | Elsewhere) -> Verdict:
    pair = load_pair(vocab_size=64)
    return arms_alone.greedy(Subject(decoder, pair, "no:name"), BUDGET)


def test_equal_arms_pass_and_say_what_would_have_shown() -> None:
    verdict = judge(Told({}))
    assert verdict.status is Status.PASS
    assert "a share of 0.009 of the tokens" in verdict.ruled_out  # 0.01 ** (1 / 512)
    assert verdict.evidence["tokens"] == 16 * arms_alone.NEW_TOKENS


def test_log_probabilities_tell_a_near_tie_from_a_fault() -> None:
    near, far = judge(Told({5: 3}, gap=1e-4)), judge(Told({5: 3}, gap=0.2))
    assert near.status is Status.PASS
    assert "near-tie" in near.message
    assert far.status is Status.FAIL
    assert far.fault_class is FaultClass.GREEDY
    assert "token 5 is 3, without speculation 25" in far.message
    assert "speculate=False" in far.repro


def test_without_log_probabilities_one_parting_is_no_proof_but_many_are() -> None:
    once, always = judge(Told({5: 3})), judge(Told({0: 3}, rows=16))
    assert once.status is Status.INCONCLUSIVE
    assert always.status is Status.FAIL
    assert always.evidence["partings"] == always.evidence["tokens"] == 16


def test_another_end_is_no_near_tie() -> None:
    class Shorter(Told):
        def generate(self, requests: Sequence[Request]) -> list[Completion]:
            answers = super().generate(requests)
            for request, answer in zip(requests, answers, strict=True):
                if request.speculate:
                    answer.tokens.pop()
            return answers

    class Another(Told):
        def generate(self, requests: Sequence[Request]) -> list[Completion]:
            reasons = {True: "stop", False: "length"}
            return [
                msgspec.structs.replace(answer, finish_reason=reasons[request.speculate])
                for request, answer in zip(requests, super().generate(requests), strict=True)
            ]

    for decoder, words in (
        (Shorter({}), "output has 31 tokens, without speculation 32"),
        (Another({}), "finish_reason is 'stop', without speculation 'length'"),
    ):
        verdict = judge(decoder)
        assert verdict.status is Status.FAIL
        assert verdict.fault_class is FaultClass.END
        assert words in verdict.message


def test_too_few_pairs_are_inconclusive() -> None:
    subject = Subject(Elsewhere("reference"), load_pair(vocab_size=64), "no:name")
    verdict = arms_alone.sampled(subject, BUDGET)
    assert verdict.status is Status.INCONCLUSIVE
    assert "--samples" in verdict.message


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("reference_impl.mutants:accept_all", arms_alone.greedy),
        ("reference_impl.mutants:accept_all_sampled", arms_alone.sampled),
    ],
)
def test_a_wrong_decoder_behind_a_server_is_found(name: str, check: object) -> None:
    assert callable(check)
    subject = Subject(Elsewhere(name), load_pair(vocab_size=64), "no:name")
    verdict = check(subject, SMOKE)
    assert verdict.status is Status.FAIL, str(verdict)


def test_a_large_target_with_weights_is_judged_by_the_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arms_alone, "LARGE", 1)
    verdict = arms_alone.sampled(Subject(Elsewhere("reference"), load("tiny"), "no:name"), BUDGET)
    assert verdict.status is Status.UNSUPPORTED
    assert "distribution.evidence" in verdict.message


def test_the_models_of_such_a_pair_cannot_be_used() -> None:
    with pytest.raises(NoWeightsError, match="give --target and --draft"):
        load_pair(vocab_size=64).target.config  # noqa: B018
