"""Columns of an output matrix that mean no token: they are never said, whatever their logits."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from harness.checks import greedy
from harness.checks.acceptance import seed_of
from harness.checks.budget import Budget
from harness.checks.prompts import random_prompt
from harness.checks.subject import Refused, Subject, check, repro
from harness.contract import Request, Sampling
from harness.verdict import FaultClass, Status, Unsupported, Verdict

SAMPLED = 8  # requests of every K


@check("vocabulary.padding", "greedy")
def padding(subject: Subject, budget: Budget) -> Verdict:
    """Where a model is wider than the vocabulary, and mostly at its padding, no id is of it.

    Greedy outputs over K are plain decoding's; of sampled ones every id must mean a token.

    Kills alone: padding_proposed.
    """
    name, pair = "vocabulary.padding", subject.pair
    widths = [model.config.get_text_config().vocab_size for model in (pair.target, pair.draft)]
    if max(widths) <= pair.vocab_size:
        raise Unsupported(f"no model of {pair.name} has padding columns: use --pair tiny-padded")
    warm = Sampling(temperature=1.0)
    requests = [
        Request(
            prompt=random_prompt(pair, 4, budget.seed + seed),
            max_new_tokens=budget.new_tokens,
            draft_tokens=k,
        )
        for k in budget.draft_tokens
        for seed in range(budget.prompts)
    ]
    sampled = [
        replace(request, sampling=warm, seed=seed_of(subject, warm, seed))
        for request in requests[:: budget.prompts]
        for seed in range(SAMPLED)
    ]
    sampled = [request for request in sampled if subject.supports(request)]
    ruled_out = f"an id of {max(widths) - pair.vocab_size} columns that mean none"
    try:
        verdict = greedy.judge_all(subject, name, requests, ruled_out)
        if sampled:
            subject.ask(sampled)
    except Refused as error:
        if isinstance(error.__cause__, (ValueError, NotImplementedError)):  # it wants even widths
            raise Unsupported(str(error)) from error
        if "outside the vocabulary" not in str(error):
            raise
        blamed = _says_it_plainly(subject, error.requests)
        return Verdict(
            check=name,
            status=Status.ERROR if blamed else Status.FAIL,
            message=f"{error}{blamed}",
            likely_fault="padding columns of the draft or the target are not dropped",
            fault_class=FaultClass.VOCABULARY,
            repro=repro(subject, error.requests),
        )
    return verdict


def _says_it_plainly(subject: Subject, requests: Sequence[Request]) -> str:
    """That plain decoding is wrong as well, empty if it is not."""
    if "plain" not in subject.decoder.capabilities:
        return ""
    try:
        subject.anew().ask([replace(request, speculate=False) for request in requests])
    except Refused:
        return "; plain decoding too: speculation is not to blame"
    return ""
