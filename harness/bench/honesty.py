"""What to doubt in a record: text that flatters, counts that do not add up, drafts that are not.

Pure functions of rows. None of it is a verdict: a doubt says what to look at.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from statistics import median

from harness.bench.baseline import of_baselines
from harness.bench.columns import columns
from harness.bench.summary import REPEATING
from harness.record import GenerationRow
from harness.stats.trials import wrong_rounds

TIMES = 3  # that a cycle comes at the end of an output before it is called a loop
LOOPING = 8  # tokens that those cycles have together, at least
MOSTLY = 0.5  # share of outputs that are cut from which on the end of answers is not measured
CLOCK = 1e-5  # seconds: three parts are rounded to 1e-7 each, and clocks differ
MANY_DRAFTS = 30  # of which some are accepted, if there is speculation
EASILY = 0.1  # acceptance rate of another decoder on the same prompts
BESIDE = 2  # target calls of an answer that are no rounds: for its prompt, and after its end
SHOWN = 3  # prompts that a doubt names


def doubts(
    rows: Sequence[GenerationRow], decoders: Sequence[str], draft_tokens: int | None, eos: bool
) -> list[str]:
    """All doubts, one sentence each.

    Parameters
    ----------
    draft_tokens : int or None
        K, the most that one round may draft; None for any number.
    eos : bool
        Whether the outputs were asked to end at an EOS.
    """
    found = list(of_text(rows, eos))
    known = columns(rows)
    timed = {decoder: known.rows_of(known.of_decoder(decoder).timed) for decoder in known.decoders}
    for decoder in decoders:
        own = timed.get(decoder, [])
        found += of_counts(own, draft_tokens)
        others = chain.from_iterable(of for name, of in timed.items() if name != decoder)
        found += of_speculation(own, others)
    return [*found, *of_baselines(rows, decoders, draft_tokens)]


# Text


def ending_loop(tokens: Sequence[int]) -> int:
    """Tokens at the end of an output that are one cycle, again and again; 0 for none.

    The cycle comes at least ``TIMES`` times, and they have ``LOOPING`` tokens or more together.
    """
    longest = 0
    for period in range(1, len(tokens) // TIMES + 1):
        if tokens[-1] != tokens[-1 - period]:
            continue
        same = 0  # tokens from the end that equal the one a period before
        while same < len(tokens) - period and tokens[-1 - same] == tokens[-1 - same - period]:
            same += 1
        if same + period >= max(LOOPING, TIMES * period):
            longest = max(longest, same + period)
    return longest


def of_text(rows: Sequence[GenerationRow], eos: bool) -> Iterator[str]:
    """Plain outputs that repeat themselves, end in a loop, or never end.

    Each text counts once: decoders share them where they are lossless.
    """
    found = columns(rows)
    timed = found.table.timed
    keys = zip(timed["task"].tolist(), timed["text"].tolist(), strict=True)
    texts = dict(zip(keys, timed.numbers.tolist(), strict=True))
    for number in dict.fromkeys(task for task, _ in texts):
        task, numbers = found.tasks[number], [text for of, text in texts if of == number]
        outputs = [found.texts[text] for text in numbers]
        repeated = float(found.repetitions[numbers].mean())
        if repeated > REPEATING:
            yield (
                f"{task}: {repeated:.0%} of the 4-grams of its outputs occurred before in them; "
                "such text is easier to draft than real text"
            )
        loops = sum(bool(ending_loop(tokens)) for tokens in outputs)
        if loops:
            yield (
                f"{task}: {loops} of {len(outputs)} outputs end in a loop, a cycle that comes "
                f"{TIMES} times or more; what is measured there is how well a loop is drafted"
            )
    told = [row for place in texts.values() if (row := found.rows[place]).plain_finish_reason]
    cut = [row for row in told if row.plain_finish_reason != "eos"]
    if eos and told and len(cut) >= MOSTLY * len(told):
        longest = max(len(row.plain_tokens) for row in cut)
        yield (
            f"EOS never came in {len(cut)} of {len(told)} outputs, the longest cut at {longest} "
            "tokens: --max-new-tokens N measures whole answers"
        )


# Counts


def of_counts(rows: Sequence[GenerationRow], draft_tokens: int | None) -> Iterator[str]:
    """Identities that do not hold in the rows of one decoder, one sentence each and where."""
    wrong: dict[str, list[str]] = {}
    for row in rows:
        for what, problem in _broken(row, draft_tokens):
            wrong.setdefault(what, []).append(f"{row.prompt_id}: {problem}")
    for what, where in wrong.items():
        more = f", and {len(where) - SHOWN} more" if len(where) > SHOWN else ""
        yield f"{rows[0].decoder}: {what} ({'; '.join(where[:SHOWN])}{more})"
    for arm, first, whole in (
        ("plain", [r.plain_first_seconds for r in rows], [r.plain_seconds for r in rows]),
        ("speculative", [r.first_seconds for r in rows], [r.seconds for r in rows]),
    ):
        came = [seconds for seconds in first if seconds is not None]
        if came and median(came) > median(whole):  # of different calls, so not one by one
            yield (
                f"{rows[0].decoder}: in the {arm} arm the first token of a stream takes "
                f"{median(came):.3g} s, the whole output of generate {median(whole):.3g} s "
                "(medians): the stream is not what was timed"
            )


def _adds_up(
    drafted: Sequence[int], accepted: Sequence[int], tokens: int, draft_tokens: int | None
) -> bool:
    """Whether ``wrong_rounds`` would find nothing, in a tenth of its time: most rows are right."""
    if not drafted or min(accepted) < 0 or any(map(operator.gt, accepted, drafted)):
        return False
    total = len(accepted) + sum(accepted)
    fits = draft_tokens is None or max(drafted) <= draft_tokens
    return fits and total - accepted[-1] - 1 < tokens <= total


def _broken(row: GenerationRow, draft_tokens: int | None) -> Iterator[tuple[str, str]]:
    """What is wrong with a row, and the figures."""
    if row.drafted is not None and row.accepted is not None:
        if len(row.drafted) != len(row.accepted):
            words = f"{len(row.drafted)} drafted and {len(row.accepted)} accepted"
            yield "its rounds do not add up", words
        elif not _adds_up(row.drafted, row.accepted, len(row.tokens), draft_tokens):
            problem = wrong_rounds(row.rounds, len(row.tokens), draft_tokens)
            yield "its rounds do not add up", problem
    for arm, counts, tokens in (
        ("plain", row.plain_counts, len(row.plain_tokens)),
        ("speculative", row.counts, len(row.tokens)),
    ):
        if counts.get("tokens", tokens) != tokens:
            yield f"it miscounts the tokens of its {arm} arm", f"{counts['tokens']} for {tokens}"
        calls, k = counts.get("target_calls"), 0 if arm == "plain" else draft_tokens
        # Where the pass over the prompt is not counted, it gives a token of its own.
        if calls is not None and k is not None and tokens > calls * (k + 1) + 1:
            words = f"{tokens} tokens of {calls} target calls, K is {k}"
            yield f"more tokens than its {arm} arm's target calls can give", words
    for arm, parts, seconds in (
        ("plain", row.plain_parts, row.plain_seconds),
        ("speculative", row.parts, row.seconds),
    ):
        if sum(parts.values()) > seconds + CLOCK:
            words = f"{sum(parts.values()):.4g} s of {seconds:.4g} s"
            yield f"the parts of its {arm} arm take longer than the whole", words
    for name, told in (("drafted", row.drafted), ("accepted", row.accepted)):
        count = row.counts.get(name)
        if told is not None and count is not None and count != sum(told):
            yield f"its count of {name} tokens is not that of its rounds", f"{count}, {sum(told)}"


# Speculation


def of_speculation(rows: Sequence[GenerationRow], others: Iterable[GenerationRow]) -> Iterator[str]:
    """Whether a decoder that reports rounds speculates at all.

    Parameters
    ----------
    rows : sequence of GenerationRow
        Of one decoder.
    others : iterable of GenerationRow
        Of all others in the record: they show whether drafts are accepted on these prompts.
    """
    told = [row for row in rows if row.drafted]
    if not told:
        return
    says = f"{told[0].decoder} reports speculation, but does not speculate"
    drafted, accepted = _drafts(told)
    rounds = sum(len(row.drafted or []) for row in told)
    calls = [row.counts["target_calls"] for row in told if "target_calls" in row.counts]
    tokens = [len(row.tokens) for row in told if "target_calls" in row.counts]
    if not drafted:
        yield f"{says}: all {rounds} rounds drafted 0 tokens"
    elif not accepted and drafted >= MANY_DRAFTS:
        rates = {name: a / d for name, (d, a) in _by_decoder(others).items() if d}
        best = max(rates, key=rates.__getitem__, default="")
        if best and rates[best] >= EASILY:
            yield (
                f"{says}: none of its {drafted} drafts was accepted, and {best} has "
                f"{rates[best]:.0%} accepted on the prompts of this record"
            )
        else:
            yield (
                f"none of the {drafted} drafts of {told[0].decoder} was accepted: a draft that "
                "knows the target's language is right now and then"
            )
    elif calls and sum(calls) >= sum(tokens) and accepted > BESIDE * len(calls):
        yield (
            f"{says}: {accepted} drafts count as accepted, and {sum(calls)} target calls gave "
            f"{sum(tokens)} tokens"
        )


def _drafts(rows: Sequence[GenerationRow]) -> tuple[int, int]:
    return sum(sum(r.drafted or []) for r in rows), sum(sum(r.accepted or []) for r in rows)


def _by_decoder(rows: Iterable[GenerationRow]) -> dict[str, tuple[int, int]]:
    found: dict[str, list[GenerationRow]] = {}
    for row in rows:
        found.setdefault(row.decoder, []).append(row)
    return {name: _drafts(own) for name, own in found.items()}
