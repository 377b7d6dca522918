"""Where work is done: here, in processes of this machine, or on a cluster.

All are ``concurrent.futures.Executor``: ``submit``, ``map``, ``shutdown``. What is submitted must
be a function of a module and of its arguments alone: a worker of a cluster may die with a task half
done, and the task is then done again elsewhere. Only the caller writes, so nothing is lost or
doubled by that.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, ParamSpec, TypeVar

from harness.command_line import BadInput

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
NAMES = ("local", "processes", "ray")


class Local(Executor):
    """In this process, when it is asked for."""

    def submit(
        self, function: Callable[Parameters, Result], /, *args: Any, **kwargs: Any
    ) -> Future[Result]:
        """Do it now."""
        future: Future[Result] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(
        self,
        function: Callable[..., Result],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Result]:
        """One after the other, each when its turn comes."""
        return map(function, *iterables)


def processes(jobs: int) -> Executor:
    """Processes of this machine, each with one thread.

    They are spawned: a forked one would inherit torch's threads in an unknown state.
    """
    return ProcessPoolExecutor(jobs, get_context("spawn"), one_thread)


def one_thread() -> None:
    """One thread for torch: workers side by side would only be in each other's way."""
    import torch

    torch.set_num_threads(1)


def add_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Options that say where work is done; ``what`` is done at a time."""
    add = parser.add_argument
    add("--jobs", type=int, default=1, metavar="N", help=f"{what} at a time (of ray: the workers)")
    add(
        "--executor",
        choices=NAMES,
        help="where: in this process, in N processes of this machine, or on a Ray cluster "
        "(default: processes, if N is above 1)",
    )
    add(
        "--ray-address",
        default="",
        metavar="ADDRESS",
        help="of a cluster that is up (`auto`, or ray://HOST:PORT); default: one on this machine",
    )
    add(
        "--gpus-per-worker",
        type=float,
        default=0.0,
        metavar="G",
        help="GPUs that Ray keeps for each worker, a part of one perhaps",
    )


def check_options(options: argparse.Namespace) -> None:
    """Raise BadInput where they make no sense."""
    if options.jobs < 1:
        raise BadInput(f"--jobs is {options.jobs}: at least 1")
    if options.gpus_per_worker < 0:
        raise BadInput(f"--gpus-per-worker is {options.gpus_per_worker:g}: 0 or above")
    given: Mapping[str, object] = {
        "--ray-address": options.ray_address,
        "--gpus-per-worker": options.gpus_per_worker,
    }
    for option, value in given.items():
        if value and options.executor != "ray":
            raise BadInput(
                f"{option} has no effect without --executor ray: add it, or leave it out"
            )
    if options.executor == "local" and options.jobs > 1:
        raise BadInput("--jobs has no effect with --executor local: leave one of them out")


@contextmanager
def executor(options: argparse.Namespace) -> Iterator[Executor]:
    """The executor that the options ask for, shut down at the end.

    Raises
    ------
    BadInput
        If it cannot be had, or a process of it died.
    """
    check_options(options)
    name = options.executor or ("processes" if options.jobs > 1 else "local")
    if name == "ray":
        ray = importlib.import_module("harness.ray_executor")
        found: Executor = ray.connect(options.jobs, options.ray_address, options.gpus_per_worker)
    else:
        found = processes(options.jobs) if name == "processes" else Local()
    try:
        with found:
            yield found
    except BrokenProcessPool:
        raise BadInput(
            "a worker process died (of a decoder that crashes, or for want of memory): give fewer "
            "--jobs; what was finished is kept where it is written"
        ) from None
