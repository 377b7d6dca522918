"""The kill matrix: which checks see which known-wrong decoder, and how soon."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import msgspec
import torch

from harness.adapters import load_decoder
from harness.checks.subject import Subject
from harness.items import Item, budget_of, items
from harness.models import ModelPair, load_pair
from harness.verdict import FaultClass, Status

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


def run(decoder: str, item: Item, profile: str) -> Cell:
    """Run one item on a decoder that is built anew."""
    begin = time.perf_counter()
    pair = _pair(item.pair)
    subject = Subject(load_decoder(decoder, pair), pair, decoder)
    verdict = item.run(subject, _budget(profile))
    return Cell(
        decoder=decoder,
        item=str(item),
        check=item.check,
        status=verdict.status,
        seconds=round(time.perf_counter() - begin, 3),
        named=verdict.fault_class,
        message=verdict.message,
    )


@functools.lru_cache
def _pair(name: str) -> ModelPair:
    return load_pair(name)


@functools.lru_cache
def _items(profile: str) -> dict[str, Item]:
    return {str(item): item for item in items(profile)}


@functools.lru_cache
def _budget(profile: str):  # type: ignore[no-untyped-def]
    return budget_of(profile, items(profile))


def run_row(decoder: str, names: Sequence[str], profile: str, until_killed: bool) -> list[Cell]:
    """Run items on a decoder in their order, up to the first that kills it if so asked."""
    cells: list[Cell] = []
    for name in names:
        cells.append(run(decoder, _items(profile)[name], profile))
        if until_killed and cells[-1].kills:
            break
    return cells


def run_rows(
    rows: Sequence[tuple[str, Sequence[str], bool]],
    profile: str,
    jobs: int,
    done: Callable[[list[Cell]], object] = lambda cells: None,
) -> list[list[Cell]]:
    """Run many rows, ``jobs`` at a time.

    Parameters
    ----------
    rows : sequence of (decoder, names of items, until_killed)
    done : callable
        Told of each row that is complete.
    """
    found: list[list[Cell]] = []
    for cells in _rows(rows, profile, jobs):
        done(cells)
        found.append(cells)
    return found


def _rows(
    rows: Sequence[tuple[str, Sequence[str], bool]], profile: str, jobs: int
) -> Iterator[list[Cell]]:
    if jobs <= 1:
        yield from (run_row(decoder, names, profile, until) for decoder, names, until in rows)
        return
    # A forked process would inherit torch's threads in an unknown state.
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        futures = [
            pool.submit(run_row, decoder, list(names), profile, until)
            for decoder, names, until in rows
        ]
        for future in futures:
            yield future.result()
