"""What a check concludes, and what it rests on. Imports nothing else from the project."""

from __future__ import annotations

import enum
from typing import Any

import msgspec


class Status(enum.Enum):
    """Five outcomes that stay apart to the last table."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"  # budget too small to say: never a pass
    UNSUPPORTED = "UNSUPPORTED"  # capability not declared: never a pass
    ERROR = "ERROR"  # crash, malformed output, or the oracle does not describe this decoder


class FaultClass(enum.Enum):
    """Kinds of fault that a FAIL may name; the classes of the mutant gallery."""

    ACCEPTANCE = "acceptance rule"
    RESIDUAL = "residual distribution"
    BONUS = "bonus token"
    PROPOSAL = "proposal q mismatch"
    PARAMETERS = "temperature and filters"
    PROCESSORS = "penalties, bias and grammar"
    GREEDY = "argmax, ties and numerics"
    END = "EOS, stop and length"
    EDGE = "prompt and context edge"
    CACHE = "cache and rollback"
    POSITIONS = "position ids"
    TREE = "tree"
    BATCH = "batch and ragged acceptance"
    RANDOMNESS = "randomness and seeds"
    VOCABULARY = "vocabulary and padding"
    LOGPROBS = "log probabilities"
    STREAM = "streaming"
    METRICS = "metrics"
    SPEED = "speed"
    CONTRACT = "contract and adapter"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one check.

    Attributes
    ----------
    check : str
        Name of the check that ran.
    status : Status
    message : str
        One sentence for a person.
    ruled_out : str
        For a PASS: the smallest effect that this run would have caught.
    likely_fault : str
        For a FAIL: the fault that would look like this, if known.
    fault_class : FaultClass or None
        What kind of fault that is.
    evidence : dict
        Values, expectation, sample sizes, alpha: JSON types only.
    repro : str
        Python that shows the failure in a fresh process.
    """

    check: str
    status: Status
    message: str
    ruled_out: str = ""
    likely_fault: str = ""
    fault_class: FaultClass | None = None
    evidence: dict[str, Any] = {}
    repro: str = ""

    @property
    def passed(self) -> bool:
        """Only PASS is a pass."""
        return self.status is Status.PASS

    def __str__(self) -> str:
        lines = [f"{self.status.value} {self.check}: {self.message}"]
        if self.ruled_out:
            lines.append(f"  ruled out: {self.ruled_out}")
        if self.likely_fault:
            lines.append(f"  likely fault: {self.likely_fault}")
        if self.fault_class:
            lines.append(f"  class of fault: {self.fault_class.value}")
        lines += [f"  {name}: {value}" for name, value in self.evidence.items()]
        if self.repro:
            lines += ["  reproduce:", *(f"    {line}" for line in self.repro.splitlines())]
        return "\n".join(lines)


class Unsupported(Exception):
    """A check has nothing to judge here; the message says what is missing, and what to do."""


def worst(statuses: list[Status]) -> Status:
    """The status that describes a group: the first found of the order below."""
    order = [Status.FAIL, Status.ERROR, Status.INCONCLUSIVE, Status.UNSUPPORTED, Status.PASS]
    return next((s for s in order if s in statuses), Status.INCONCLUSIVE)
