"""A badge: the verdicts of a run as JSON for an endpoint badge of shields.io."""

from __future__ import annotations

import json
from collections.abc import Sequence

from harness.record import VerdictRow
from harness.report.standings import KNOWN, counts

LABEL = "speculative decoding"
COLOURS = {"FAIL": "red", "ERROR": "orange", "INCONCLUSIVE": "yellow", KNOWN: "yellow"}


def badge(rows: Sequence[VerdictRow], profile: str, as_expected: bool) -> str:
    """The JSON text; green only where something passed, nothing is known to fail, and all ran.

    Parameters
    ----------
    rows : sequence of VerdictRow
    profile : str
        How much was run: a badge must not promise more.
    as_expected : bool
        Whether the run came to its end and every item ended as expected.
    """
    found = counts(rows)
    worst = next((kind for kind in COLOURS if kind in found), "")
    if found.get("PASS", 0) == 0 and worst in ("", KNOWN):
        message, colour = "nothing passed", "lightgrey"
    elif worst and worst != KNOWN:
        message, colour = f"{found[worst]} {worst}", COLOURS[worst]
    elif not as_expected:
        message, colour = "run incomplete or xfails stale", "lightgrey"
    else:
        known = f", {found[KNOWN]} known failures" if KNOWN in found else ""
        message, colour = f"{found['PASS']} PASS{known}", COLOURS.get(worst, "brightgreen")
    return json.dumps(
        {
            "schemaVersion": 1,
            "label": LABEL,
            "message": f"{message} ({profile})",
            "color": colour,
        }
    )
