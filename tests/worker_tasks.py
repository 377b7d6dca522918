"""What tests hand to workers: a function of a module, which a worker imports."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

from harness import fleet
from harness.matrix import Row
from harness.record import VerdictRow


def dies(number: int) -> int:
    os._exit(number)


def pid(_: int) -> int:
    return os.getpid()


def threads(_: int) -> int:
    import torch

    return torch.get_num_threads()


def judged_by_one_that_hangs(directory: Path, row: Row) -> VerdictRow:
    """The verdict on a row; the first worker here notes its pid and waits for its end."""
    (directory / f"begun-{uuid.uuid4().hex}").write_text(row.items[0])
    try:
        with (directory / "pid.new").open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return fleet.judged(row)
    (directory / "pid.new").rename(directory / "pid")
    (directory / "pid.new").touch()  # nobody else hangs
    time.sleep(600)
    raise AssertionError("was not killed")
