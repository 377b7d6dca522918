"""The kill matrix: which checks see which known-wrong decoder, and how soon."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import msgspec

from harness.adapters import load_decoder
from harness.checks.budget import Budget
from harness.checks.subject import Subject
from harness.contract import ClosingDecoder
from harness.items import Item, budget_of, items
from harness.models import ModelPair, load_pair
from harness.verdict import FaultClass, Status, Verdict

RAISED = "the check itself raised"
MUTANTS, CONTROLS = "reference_impl.mutants", "reference_impl.controls"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One check on one decoder.

    Attributes
    ----------
    decoder : str
        As ``load_decoder`` takes it.
    item, check : str
        The suite item, and the same without pair and case.
    status : Status
    seconds : float
    named : FaultClass or None
        The class of fault that the verdict names.
    message : str
        Empty for PASS.
    """

    decoder: str
    item: str
    check: str
    status: Status
    seconds: float
    named: FaultClass | None = None
    message: str = ""

    @property
    def kills(self) -> bool:
        """Whether the suites call this decoder wrong."""
        return self.status in (Status.FAIL, Status.ERROR)


def matches(item: Item, patterns: Sequence[str]) -> bool:
    """Whether an item is named by one of the patterns: ``suite``, ``suite.test`` or more of it."""
    name = str(item)
    return any(name == p or name.startswith((f"{p}[", f"{p}.", f"{p}-")) for p in patterns)


@dataclass(frozen=True)
class Row:
    """Items that are run on one decoder.

    Attributes
    ----------
    decoder : str
        As ``load_decoder`` takes it.
    items : sequence of str
        In the order to run them.
    profile : str
    until_killed : bool
        Whether to stop at the first that kills it.
    seed : int or None
        Of prompts and sampled requests; None for the profile's own.
    options : dict of str to str
        Of the decoder.
    """

    decoder: str
    items: Sequence[str]
    profile: str = "smoke"
    until_killed: bool = False
    seed: int | None = None
    options: dict[str, str] = field(default_factory=dict)


def run(row: Row) -> list[Cell]:
    """Run the items of a row."""
    cells: list[Cell] = []
    for name in row.items:
        cells.append(_cell(row, name))
        if row.until_killed and cells[-1].kills:
            break
    return cells


def run_all(rows: Sequence[Row], executor: Executor) -> Iterator[list[Cell]]:
    """Run many rows; yields them in their order, each when it is complete."""
    yield from executor.map(run, rows)


def judge(row: Row, name: str) -> tuple[Verdict, Subject]:
    """Run one item on a decoder that is built anew; the subject, for what else it can tell."""
    item, budget = _items(row.profile)[name], _budget(row.profile)
    if row.seed is not None:
        budget = dataclasses.replace(budget, seed=row.seed)
    pair = _pair(item.pair)
    subject = Subject(load_decoder(row.decoder, pair, row.options), pair, row.decoder, row.options)
    try:
        return item.run(subject, budget), subject
    finally:
        if isinstance(subject.decoder, ClosingDecoder):
            subject.decoder.close()


def _cell(row: Row, name: str) -> Cell:
    begin = time.perf_counter()
    item = _items(row.profile)[name]
    try:
        verdict, _ = judge(row, name)
    except Exception as error:  # a fault of ours: told, but neither a kill nor the end of the run
        told = f"{RAISED} {type(error).__name__}: {error}"
        verdict = Verdict(check=item.check, status=Status.INCONCLUSIVE, message=told)
    return Cell(
        decoder=row.decoder,
        item=name,
        check=item.check,
        status=verdict.status,
        seconds=round(time.perf_counter() - begin, 3),
        named=verdict.fault_class,
        message="" if verdict.passed else verdict.message,
    )


@functools.lru_cache
def _pair(name: str) -> ModelPair:
    return load_pair(name)


@functools.lru_cache
def _items(profile: str) -> dict[str, Item]:
    return {str(item): item for item in items(profile)}


@functools.lru_cache
def _budget(profile: str) -> Budget:
    return budget_of(profile, items(profile))
