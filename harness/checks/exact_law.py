"""The exact law of an output, enumerated: no samples, no noise.

For an acceptance step that takes its randomness from us. Laws are tables here: the law after an
output depends on its length and its last token, so a row taken from the wrong prefix shows.
Hypothesis draws the tables, K and the ends; every way the randomness can fall is walked through,
and the law of the output is compared with the target's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.checks.budget import Budget
from harness.checks.form import malformed
from harness.checks.greedy import wrong_end
from harness.checks.subject import Subject, check
from harness.contract import Completion, Request
from harness.verdict import FaultClass, Status, Verdict
from reference_impl.autoregressive import Laws, finished
from reference_impl.randomness import Randomness, enumerate_outcomes
from reference_impl.speculative import Propose, draft_with

Law = dict[tuple[tuple[int, ...], str], float]
"""Probability of every (tokens, finish_reason)."""

Table = list[list[list[float]]]
"""``table[length of the output][its last token, or 0]``: the law of the next token."""

ACCURACY = 1e-10  # of sums in float64


class Rule(Protocol):
    """A decoder in its barest form: laws and randomness come from the caller."""

    def __call__(
        self, target: Laws, propose: Propose, request: Request, randomness: Randomness
    ) -> Completion:
        """Decode one request."""
        ...


def laws_of(table: Table) -> Laws:
    """A model whose laws are a table's rows."""

    def laws(output: Sequence[int], count: int) -> Tensor:
        lengths = range(len(output) - count + 1, len(output) + 1)
        rows = [table[n][output[n - 1] if n else 0] for n in lengths]
        return torch.tensor(rows, dtype=torch.float64)

    return laws


def output_law(run: Callable[[Randomness], Completion]) -> Law:
    """The law of what a decoder answers, over all ways its randomness can fall."""
    total: Law = defaultdict(float)
    for completion, weight in enumerate_outcomes(run):
        total[tuple(completion.tokens), completion.finish_reason] += weight
    return total


def product_law(p: Laws, request: Request) -> Law:
    """The law of plain decoding, multiplied out token by token."""
    total: Law = {}
    open_prefixes: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while open_prefixes:
        prefix, mass = open_prefixes.pop()
        for token, probability in enumerate(p(prefix, 1)[0].tolist()):
            output = (*prefix, token)
            if probability == 0:
                continue
            if reason := finished(output, request):
                total[output, reason] = mass * probability
            else:
                open_prefixes.append((output, mass * probability))
    return total


def distance(one: Law, other: Law) -> float:
    """Total variation."""
    return sum(abs(one.get(key, 0) - other.get(key, 0)) for key in {*one, *other}) / 2


@st.composite
def distributions(draw: st.DrawFn, vocab: int) -> list[float]:
    """One-hot, with zeros, with ties, or anything."""
    weights = st.sampled_from([0, 0, 1, 1, 2, 5]) | st.integers(0, 10**6)
    row = draw(st.lists(weights, min_size=vocab, max_size=vocab).filter(any))
    return [w / sum(row) for w in row]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Table, Table, Request]:
    """Target, draft and request; now and then the draft is the target, or misses it entirely."""
    vocab = draw(st.integers(2, 4))
    tokens = st.integers(0, vocab - 1)
    stops = st.lists(st.lists(tokens, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple)
    request = Request(
        prompt=(0,),
        max_new_tokens=draw(st.integers(1, 3)),
        draft_tokens=draw(st.integers(1, 3)),
        eos=draw(st.just(()) | tokens.map(lambda token: (token,))),
        stop=draw(st.just(()) | stops),
    )

    def table() -> Table:
        # A few rows, each in several places: soon drawn, and soon shrunk.
        row = st.sampled_from(draw(st.lists(distributions(vocab), min_size=1, max_size=4)))
        return [[draw(row) for _ in range(vocab)] for _ in range(request.max_new_tokens)]

    p = table()
    kind = draw(st.sampled_from(["any", "any", "any", "same", "disjoint"]))
    if kind == "same":
        return p, p, request
    if kind == "any":
        return p, table(), request
    p = [[_halved(r, 0) for r in rows] for rows in p]
    return p, [[_halved(r, 1) for r in rows] for rows in p], request


def _halved(row: list[float], parity: int) -> list[float]:
    """A law on the even or on the odd tokens alone."""
    kept = [1 + w if i % 2 == parity else 0.0 for i, w in enumerate(row)]
    return [w / sum(kept) for w in kept]


class _Wrong(AssertionError):
    """A table on which the two laws differ; Hypothesis shrinks it."""


class _Broken(Exception):
    """A table on which the rule raises, or answers in another form than the contract's."""


@check("exact_law.tables", "exact_law")
def tables(subject: Subject, budget: Budget) -> Verdict:
    """The rule's exact output law is the target's, on tables of any kind."""
    rule = cast(Rule, cast(Any, subject.decoder).rule)
    smallest: dict[str, Any] = {}

    @settings(
        max_examples=budget.tables,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def compare(case: tuple[Table, Table, Request]) -> None:
        p, q, request = case
        seen = {"p": p, "q": q, "request": repr(request)}

        def run(randomness: Randomness) -> Completion:
            try:
                completion = rule(laws_of(p), draft_with(laws_of(q)), request, randomness)
            except Exception as error:  # a stranger's rule may raise anything
                smallest.update(seen)
                raise _Broken(f"the rule raised {type(error).__name__}: {error}") from None
            if problem := malformed(completion, len(p[0])):
                smallest.update(seen)
                raise _Broken(f"malformed output: {problem}")
            return completion

        law = output_law(run)
        off = distance(law, product_law(laws_of(p), request))
        if off > ACCURACY:
            smallest.update(seen, total_variation=off, kind=_kind(law, request))
            raise _Wrong

    try:
        compare()
    except _Broken as error:
        return Verdict(
            check="exact_law.tables",
            status=Status.ERROR,
            message=str(error),
            evidence=smallest,
            repro=_repro(subject, smallest),
        )
    except _Wrong:
        return Verdict(
            check="exact_law.tables",
            status=Status.FAIL,
            message=f"the output law is off by {smallest['total_variation']:.3g} (total variation)",
            fault_class=smallest.pop("kind"),
            evidence=smallest,
            repro=_repro(subject, smallest),
        )
    return Verdict(
        check="exact_law.tables",
        status=Status.PASS,
        message=f"the exact output law equals the target's on {budget.tables} tables",
        ruled_out=f"any difference of the output law above {ACCURACY:g} on these tables",
    )


def _kind(law: Law, request: Request) -> FaultClass:
    """A wrong end if any output has one, else a wrong rule."""
    outputs = [Completion(tokens=list(t), finish_reason=cast(Any, reason)) for t, reason in law]
    wrong = any(wrong_end(request, output) for output in outputs)
    return FaultClass.END if wrong else FaultClass.ACCEPTANCE


def _repro(subject: Subject, smallest: dict[str, Any]) -> str:
    return "\n".join(
        [
            "from harness.adapters import load_decoder",
            "from harness.checks.exact_law import laws_of, output_law, product_law",
            "from harness.contract import Request, Sampling",
            "from harness.models import load_pair",
            "from reference_impl.speculative import draft_with",
            f"rule = load_decoder({subject.name!r}, load_pair('tiny'), {subject.options!r}).rule",
            f"p, q = laws_of({smallest['p']}), draft_with(laws_of({smallest['q']}))",
            f"request = {smallest['request']}",
            "print('got     ', dict(output_law(lambda r: rule(p, q, request, r))))",
            "print('expected', product_law(p, request))",
        ]
    )
