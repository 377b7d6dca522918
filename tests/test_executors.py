"""Executors: here, in processes, and what options of theirs make no sense."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import Executor

import pytest
import worker_tasks

from harness import executors, mutants, ray_executor, seeds
from harness.command_line import BadInput


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    executors.add_options(parser, "rows")
    return parser.parse_args(arguments)


@pytest.fixture(scope="module")
def two() -> Iterator[Executor]:
    with executors.executor(parsed("--jobs", "2")) as pool:
        yield pool


def test_here_it_is_done_when_it_is_asked_for() -> None:
    done: list[int] = []

    def noted(number: int) -> int:
        done.append(number)
        return -number

    with executors.executor(parsed()) as pool:
        found = pool.map(noted, [1, 2, 3])
        assert done == []
        assert (next(found), done) == (-1, [1])
        assert pool.submit(noted, 7).result() == -7
        failed = pool.submit(worker_tasks.pid)  # type: ignore[call-arg]
        assert isinstance(failed.exception(), TypeError)


def test_processes_are_others_each_with_one_thread(two: Executor) -> None:
    assert list(two.map(abs, [-3, -2, -1])) == [3, 2, 1]
    assert worker_tasks.pid(0) not in two.map(worker_tasks.pid, range(4))
    assert list(two.map(worker_tasks.threads, range(2))) == [1, 1]


def test_a_process_that_dies_is_one_line() -> None:
    with (
        pytest.raises(BadInput, match="a worker process died"),
        executors.executor(parsed("--executor", "processes")) as pool,
    ):
        list(pool.map(worker_tasks.dies, [3]))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--jobs", "0"], "--jobs is 0: at least 1"),
        (["--ray-address", "auto"], "--ray-address has no effect without --executor ray"),
        (["--gpus-per-worker", "1"], "--gpus-per-worker has no effect without --executor ray"),
        (["--executor", "ray", "--gpus-per-worker", "-1"], "--gpus-per-worker is -1"),
        (["--executor", "local", "--jobs", "2"], "--jobs has no effect with --executor local"),
    ],
)
def test_options_that_make_no_sense_are_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for main in (mutants.main, seeds.main):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert says in error
        assert len(error.splitlines()) == 1


def test_without_ray_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_executor.importlib.util, "find_spec", lambda name: None)
    assert mutants.main(["near_ties", "--checks", "smoke.wired", "--executor", "ray"]) == 2
    error = capsys.readouterr().err
    assert error == "error: --executor ray needs Ray: pip install 'specdec-harness[ray]'\n"
