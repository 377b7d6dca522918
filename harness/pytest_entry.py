"""The installed package's entry for pytest: it loads the plugin where the suites are asked for.

``pytest --pyargs suites`` works in any directory, and no other run of pytest in that environment
gets options: theirs have plain names (``--seed``, ``--target``), which others may want themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

SUITES = "suites"


@pytest.hookimpl(tryfirst=True)  # before conftest files, whose options may be the same
def pytest_load_initial_conftests(early_config: pytest.Config, args: Sequence[str]) -> None:
    """Load the plugin, unless ``-p harness.pytest_plugin`` has."""
    if any(_of_the_suites(argument) for argument in args):
        early_config.pluginmanager.import_plugin("harness.pytest_plugin")


def _of_the_suites(argument: str) -> bool:
    """Whether an argument names the suites: as a package, or by path."""
    place = argument.partition("::")[0]
    if place.partition(".")[0] == SUITES or Path(place).parts[:1] == (SUITES,):
        return True
    if not Path(place).is_absolute():
        return False
    spec = find_spec(SUITES)
    packages = (spec.submodule_search_locations or ()) if spec else ()
    return any(Path(place).is_relative_to(package) for package in packages)
