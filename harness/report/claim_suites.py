"""Claims that output is unchanged, judged from verdicts of the suites and from timed outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harness.record import VerdictRow
from harness.report.claim_evidence import NOTHING, OF_LAW, Evidence, Judgement, Outcome, some

MISMATCHED = ("bad", "hostile")  # drafts of tiny pairs that are made not to match
ORDINARY = "an ordinary draft"
QUALITY = re.compile(r"\[(?:tiny|micro)(?:-gpt2|-window|-mamba|-ties)?-(bad|hostile|self)\b")


def greedy_unchanged(found: Evidence) -> Judgement:
    """Outputs of benchmarks, and the greedy suite."""
    from scipy.stats import binomtest  # takes a second to import

    passed, failed = found.of("greedy.")
    good = [row.decoder for row in passed]
    bad = [row.decoder for row in failed]
    told = []
    counts = {"identical": 0, "near ties": 0, "different": 0}
    for of in found.outputs:
        kinds = (of.losslessness.identical, of.losslessness.near_ties, of.losslessness.faults)
        counts = {name: counts[name] + count for name, count in zip(counts, kinds, strict=True)}
        good += [of.decoder] * bool(kinds[0])
        bad += [of.decoder] * bool(kinds[2])
    if total := sum(counts.values()):
        most = binomtest(counts["different"], total).proportion_ci(0.95, "exact").high
        words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        told = [f"outputs that were timed: {words}; at most {most:.1%} differ (95%)"]
    return _of_decoders(good, bad, told)


def sampled_unchanged(found: Evidence) -> Judgement:
    """The distribution suites, by quality of the draft."""
    passed, failed = found.of(*OF_LAW, "exact_law.")
    by_draft: dict[str, set[str]] = {}
    for row in passed:
        by_draft.setdefault(_draft(row), set()).add(row.decoder)
    told = [f"passed with {draft}: {len(names)}" for draft, names in by_draft.items()]
    told += [f"failed with {draft}" for draft in dict.fromkeys(_draft(row) for row in failed)]
    if passed and not failed and not (ORDINARY in by_draft and _mismatched(by_draft)):
        told.append("it takes an ordinary draft and a bad one")
        return Judgement(Outcome.UNDECIDED, told)
    return _of_decoders([row.decoder for row in passed], [row.decoder for row in failed], told)


def cache_unchanged(found: Evidence) -> Judgement:
    """The cache suite: what was rejected must leave no trace."""
    passed, failed = found.of("cache.")
    return _of_decoders([row.decoder for row in passed], [row.decoder for row in failed], [])


def _draft(row: VerdictRow) -> str:
    match = QUALITY.search(row.item)
    return f"a {match[1]} draft" if match else ORDINARY


def _mismatched(drafts: Iterable[str]) -> bool:
    return any(f"a {word} draft" in drafts for word in MISMATCHED)


def _of_decoders(good: Sequence[str], bad: Sequence[str], told: list[str]) -> Judgement:
    """One decoder that fails is enough against what is said of all."""
    wrong = list(dict.fromkeys(bad))
    right = [name for name in dict.fromkeys(good) if name not in wrong]
    if not wrong and not right:
        return NOTHING
    count = f"holds for {len(right)} of {len(right) + len(wrong)} decoders"
    against = [f"not for {some(wrong)}"] if wrong else []
    outcome = Outcome.CONTRADICTED if wrong else Outcome.SUPPORTED
    return Judgement(outcome, [count, *against, *told])
