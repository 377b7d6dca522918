"""Names of the built-in tasks. No imports: the command line reads this before anything heavy."""

from __future__ import annotations

TASKS = ("chat", "code", "math", "creative")  # what a report measures unless told otherwise
EXTRA = ("summarisation",)  # answers repeat the prompt, which is what prompt lookup lives on
CONTROLS = ("repetitive", "random")  # made, not written: easy to draft, and hard
WRITTEN = (*TASKS, *EXTRA)  # those with a file in ``harness/prompts``
KNOWN = (*WRITTEN, *CONTROLS)
ALL_TASKS = "all"  # of figures over every task
DRAFTS = ("right", "mismatched", "identical")  # beside one target: ``harness.bench.drafts``


class WorkloadError(ValueError):
    """A workload that cannot be had; the message says what to do."""
