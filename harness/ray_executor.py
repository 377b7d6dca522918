"""Ray as an executor: tasks on the workers of a cluster; those of a worker that dies go to another.

Ray is an optional extra, ``specdec-harness[ray]``. The nodes must have this package (of the same
version) and the models, or the means to fetch them. Nothing here knows a model: what a worker loads
is cached in its process, and Ray keeps the process from task to task.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from harness.command_line import BadInput
from harness.executors import one_thread

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
INSTALL = "pip install 'specdec-harness[ray]'"
RETRIES = 3  # of a task whose worker died; an exception of the task itself is an answer


class Ray(Executor):
    """Tasks of a Ray cluster that is connected to.

    Parameters
    ----------
    gpus : float
        That each task gets for itself.
    """

    def __init__(self, gpus: float) -> None:
        import ray

        self._ray = ray
        self._run = ray.remote(_run).options(
            num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False
        )

    def submit(
        self, function: Callable[Parameters, Result], /, *args: Any, **kwargs: Any
    ) -> Future[Result]:
        """Put a task into the cluster's queue."""
        future: Future[Result] = self._run.remote(function, args, kwargs).future()
        return future

    def map(
        self,
        function: Callable[..., Result],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Result]:
        """In their order, each when it is there."""
        futures = [self.submit(function, *args) for args in zip(*iterables, strict=False)]
        return (future.result(timeout) for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect; a cluster that was started here ends, with what it has not finished."""
        self._ray.shutdown()


def connect(jobs: int, address: str, gpus: float) -> Ray:
    """A cluster that is up, or one of ``jobs`` workers on this machine.

    Raises
    ------
    BadInput
        If Ray is not installed, or no cluster can be had.
    """
    if importlib.util.find_spec("ray") is None:
        raise BadInput(f"--executor ray needs Ray: {INSTALL}")
    import ray

    where: dict[str, Any] = {"address": address}
    if not address:
        # As multiprocessing does: its processes find modules where this one does.
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        where = {"num_cpus": jobs, "runtime_env": {"env_vars": {"PYTHONPATH": paths}}}
        where |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(log_to_driver=False, logging_level="error", **where)
    except (ConnectionError, ValueError, RuntimeError) as error:
        words = " ".join(str(error).split())
        raise BadInput(f"no Ray cluster at {address or 'this machine'}: {words}") from None
    there = ray.cluster_resources().get("GPU", 0)
    if gpus > there:
        ray.shutdown()
        raise BadInput(f"--gpus-per-worker is {gpus:g}, and the cluster has {there:g} GPUs")
    return Ray(gpus)


def _run(function: Callable[..., Result], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
    one_thread()
    return function(*args, **kwargs)
