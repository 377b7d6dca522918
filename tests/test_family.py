"""What a child starts ends with it, and with the process that started the child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.adapters import family

ROOT = Path(__file__).resolve().parent.parent
# A child that says nothing more, with one of its own that has left its process group.
HANGS = """
import os, subprocess, time
other = subprocess.Popen(["setsid", "sleep", "600"])
print(os.getpid(), other.pid, flush=True)
time.sleep(600)
"""
STARTS = f"""
import subprocess, sys, time
from harness.adapters import family
process, mark = family.start([sys.executable, "-c", {HANGS!r}], {{}}, stdout=subprocess.PIPE)
print(process.stdout.readline().decode(), flush=True)
time.sleep(600)
"""


def ended(process: int, seconds: float = 30) -> bool:
    """Whether a process is no more, or a zombie, before the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_it_is_found_by_its_mark_and_ended() -> None:
    environment = family.marked({**os.environ, family.MARK: "outer"}, "a-mark-of-this-test")
    assert environment[family.MARK] == "outer a-mark-of-this-test"
    with subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True) as process:
        while process.pid not in family.members("a-mark-of-this-test"):
            time.sleep(0.01)
        assert family.resident("a-mark-of-this-test") > 0
        family.kill("a-mark-of-this-test")
        assert process.wait() == -signal.SIGKILL


def test_the_end_of_a_child_is_that_of_all_it_started() -> None:
    process, mark = family.start([sys.executable, "-c", HANGS], {}, stdout=subprocess.PIPE)
    with process.stdout:
        child, other = map(int, process.stdout.readline().split())
    assert child == process.pid
    assert list(family.members(mark)) == [child, other] or len(list(family.members(mark))) == 2
    family.end(process, mark)
    assert process.returncode == -signal.SIGKILL
    assert ended(other, seconds=1)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_none_outlives_the_process_that_started_the_child(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as harness:
        assert harness.stdout
        pids = [int(word) for word in harness.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(ended(pid, seconds=0.1) for pid in pids)
        harness.send_signal(signal.Signals[how])
    for pid in pids:
        assert ended(pid), pid


def test_a_watcher_that_is_gone_costs_nothing() -> None:
    first, mark = family.start(["sleep", "600"], os.environ)
    watcher = family._watchers.pop(os.getpid())
    watcher.kill()
    watcher.wait()
    family._watchers[os.getpid()] = watcher
    family.end(first, mark)
    assert first.returncode == -signal.SIGKILL
    assert watcher.stdin
    watcher.stdin.close()
    del family._watchers[os.getpid()]
