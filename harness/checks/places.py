"""Where in its round each token stands, from what a decoder reports: labels for the evidence.

Under token-wise rejection each label is known before its token is drawn: which draft of the round
it is, and whether all drafts before it were accepted, is settled by the tokens before. A rule that
looks at the whole block settles it later. So the labels are for diagnosis, and for a certificate
that names the rule it assumes; no verdict rests on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.contract import Round

PLACE, ROLE, AFTER = "place in the round", "draft or bonus", "round after"
NAMES: Mapping[str, Mapping[int, str]] = {
    ROLE: {0: "drafted", 1: "bonus after a fully accepted block"},
    AFTER: {0: "a rejection", 1: "a fully accepted block"},
}


def places(tokens: Sequence[int], rounds: Sequence[Round] | None) -> dict[str, list[int]]:
    """Labels of every token; none where no rounds are reported.

    Returns
    -------
    dict of str to list of int
        ``PLACE``: 0 for the first token of a round. ``ROLE``: 1 for the token after a fully
        accepted block, 0 for others of a round with drafts. ``AFTER``, of the first token of a
        round: 1 if all drafts of the round before were accepted, 0 if not; -1 for all other
        tokens, and in the first round. Where nothing was drafted, nothing was accepted or
        rejected either: -1.
    """
    if rounds is None:
        return {}
    labels: dict[str, list[int]] = {PLACE: [], ROLE: [], AFTER: []}
    after = -1
    for entry in rounds:
        for place in range(entry.accepted + 1):
            labels[PLACE].append(place)
            labels[ROLE].append(int(place == entry.drafted) if entry.drafted else -1)
            labels[AFTER].append(after if place == 0 else -1)
        after = int(entry.accepted == entry.drafted) if entry.drafted else -1
    n = len(tokens)  # the last round may have been cut, and rounds may not add up
    return {name: (values + [-1] * n)[:n] for name, values in labels.items()}
