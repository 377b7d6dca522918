"""The pairs of a run of the suites: how they are asked for, loaded, and named in its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.pair_files import DTYPES

if TYPE_CHECKING:
    from harness.models import ModelPair
    from harness.record import PairInfo

CUSTOM, WEIGHTLESS = "custom", "weightless"  # pairs that have no name
_loaded_key: pytest.StashKey[dict[str, ModelPair]] = pytest.StashKey()


def asked(config: pytest.Config) -> str:
    """The pair that all items are run on; empty where each suite has pairs of its own."""
    option = config.getoption
    if option("vocab_size"):
        return WEIGHTLESS
    return str(option("pair")) or (CUSTOM if option("target") else "")


def arguments(config: pytest.Config, name: str) -> dict[str, Any]:
    """Of ``load_pair``."""
    option = config.getoption
    found: dict[str, Any] = {"name": name}
    if name == CUSTOM:
        found = {"target": option("target"), "draft": option("draft")}
    elif name == WEIGHTLESS:
        found = {key: option(key) for key in ("vocab_size", "context_length")}
    found["device"] = option("device")
    if option("dtype") != DTYPES[0]:  # a reproduction names what is not as always
        found["dtype"] = option("dtype")
    if option("trust_remote_code"):
        found["trust_remote_code"] = True
    return found


def loaded(config: pytest.Config, name: str) -> ModelPair:
    """A pair, loaded on first demand.

    Raises
    ------
    PairError
        If it cannot be had.
    """
    from harness.models import load_pair

    pairs = config.stash.setdefault(_loaded_key, {})
    if name not in pairs:
        pairs[name] = load_pair(**arguments(config, name))
    return pairs[name]


def described(config: pytest.Config) -> PairInfo:
    """What a record says of the pair that was asked for: its weights too, if they are here.

    Raises
    ------
    PairError
        If a pair cannot be had.
    """
    from harness.record import PairInfo

    option, name = config.getoption, asked(config)
    device, dtype = option("device"), option("dtype")
    if name == WEIGHTLESS:
        return PairInfo(f"no weights, {option('vocab_size')} ids", "", "", device, dtype)
    if not name:
        return PairInfo("tiny pairs", "made from seeds", "", device, dtype)
    pair = loaded(config, name)
    if config.getoption("dist", "no") != "no":  # the workers load it too: hold it once less
        config.stash[_loaded_key].clear()
    return PairInfo(name, pair.source, pair.fingerprint(), device, dtype)


def fingerprints(config: pytest.Config) -> dict[str, str]:
    """Of the pairs that suites have of their own, where none was asked for."""
    from harness.models import TINY_PAIRS

    if asked(config):
        return {}
    return {name: loaded(config, name).fingerprint() for name in TINY_PAIRS}
