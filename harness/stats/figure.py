"""Wealth against tokens: how the e-process finds four faults, and leaves a right decoder alone.

``python -m harness.stats.figure``: draws the figure of ``docs/statistics.md`` and prints what it
shows. Tokens are drawn from the exact laws of ``harness.stats.simulated``; the draft's law is
known, and all experts bet. With the same seed and versions it writes the same file.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.command_line import Parser, refuse
from harness.stats import experts
from harness.stats.eprocess import EProcess
from harness.stats.gallery import everything
from harness.stats.simulated import Simulated, observed, one_token

ALPHA = 1e-6
STEP = 0.03  # from one point of a line to the next
MOST, HIGHEST, LOWEST = 60_000, 9.0, -3.0  # tokens, and log10 wealth
COMMAND = "python -m harness.stats.figure"
LABELS = {  # of each fault: words, on which side of its line, colour (Okabe and Ito 2008), dashes
    "accept all": ("drafts accepted\nunverified", "right", "#0072B2", ()),
    "resample from target": ("rejected: drawn\nfrom the target", "right", "#D55E00", (6, 2)),
    "one number for coin and choice":
        ("coin reused\n(learned tilt)", "left", "#009E73", (6, 2, 1, 2)),
    "over-accept 1.1": ("over-acceptance\nby 1.1", "left", "#A3527C", (2, 1.5)),
}  # fmt: skip


def wealth(fault: Simulated, seed: int) -> tuple[list[tuple[int, float]], EProcess]:
    """Tokens and log10 wealth of the mixture, at every look, up to the figure's edge."""
    rng = np.random.default_rng(seed)
    process = EProcess(experts.NAMED, q=True, alpha=ALPHA)
    path = [(1, 0.0)]
    while path[-1][0] < MOST and path[-1][1] < HIGHEST:
        counts = fault.draw(rng, max(1, round(STEP * process.tokens)))
        process.update(observed(fault.rows, counts, q=True))
        path.append((process.tokens, process.log_wealth / math.log(10)))
    return path, process


def draw(out: Path, seed: int) -> list[str]:
    """Write the figure; what it shows, a line a decoder."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    faults = {fault.name: fault for fault in everything()}
    threshold = -math.log10(ALPHA)
    said = [f"e-process of all experts, q known, alpha {ALPHA:g}, seed {seed}"]
    style = {"svg.hashsalt": COMMAND, "font.size": 9, "axes.spines.top": False,
             "axes.spines.right": False, "lines.linewidth": 1.8}  # fmt: skip
    with rc_context(style):
        figure = Figure(figsize=(7.6, 4.4), layout="constrained")
        axes = figure.subplots()
        axes.set(xscale="log", xlim=(1, MOST), ylim=(LOWEST, HIGHEST), xlabel="tokens",
                 ylabel="evidence against the decoder, log10 wealth")  # fmt: skip
        axes.axhline(threshold, color="black", linewidth=0.9)
        axes.text(1.1, threshold + 0.15, "1/α = 10⁶: not lossless", va="bottom")
        axes.axhline(0, color="0.75", linewidth=0.6, zorder=0)
        for name, (words, side, colour, dashes) in LABELS.items():
            path, process = wealth(faults[name], seed)
            bound = -math.log(ALPHA) / faults[name].information
            axes.plot(*zip(*path, strict=True), color=colour, dashes=dashes or (None, None))
            axes.plot(bound, threshold, "D", color=colour, markersize=6, mec="black", zorder=3)
            axes.annotate(words, (path[-1][0], HIGHEST), (8 if side == "left" else -8, 0),
                          textcoords="offset points", ha=side, va="top", color=colour,
                          weight="bold")  # fmt: skip
            crosses = "does not cross 1/alpha"
            if process.crossed_at is not None:
                crosses = f"crosses 1/alpha after {process.crossed_at:,} tokens"
            says = process.decision().expert.says
            said.append(f"{name}: {crosses}, bound {bound:,.0f}; {says}")
        path, process = wealth(one_token("right", lambda at: at.p), seed)
        axes.plot(*zip(*path, strict=True), color="0.35", linewidth=1.2)
        axes.text(0.97 * MOST, -0.9, "a right decoder", ha="right", color="0.25")
        axes.text(1.1, 4.6, "◆ log(1/α) / KL: no test needs\n    fewer tokens on average", va="top")
        said.append(f"a right decoder: at most 10^{process.largest / math.log(10):.2f} in "
                    f"{process.tokens:,} tokens")  # fmt: skip
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": COMMAND})
    return said


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figure: exit code 2 if it cannot be."""
    parser = Parser(COMMAND, __doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/wealth.svg"), metavar="FILE.svg")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        if options.seed < 0:
            raise ValueError(f"--seed is {options.seed}: it must not be negative")
        print(*draw(options.out, options.seed), sep="\n")
    except (ValueError, OSError) as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
