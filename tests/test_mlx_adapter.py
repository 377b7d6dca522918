"""MLX-LM's adapter, as far as it goes without MLX."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.adapters import NotInstalledError, load_decoder
from harness.adapters.mlx import older_config, rounds
from harness.contract import Round
from harness.models import load_pair


def test_where_it_is_not_installed_it_says_how_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_ENGINES", str(tmp_path))
    with pytest.raises(NotInstalledError, match=r"ci/third_party --install mlx$"):
        load_decoder("mlx-draft", load_pair("micro"))


@pytest.mark.parametrize(
    ("from_draft", "drafted", "expected"),
    [
        ([False, False], [2, 1], [Round(2, 0), Round(1, 0)]),
        ([True, True, False, False], [2, 2], [Round(2, 2), Round(2, 0)]),
        ([False, True], [2, 1], [Round(2, 0), Round(1, 1)]),  # the length ends it at a draft
        ([True], [4], [Round(4, 1)]),
    ],
)
def test_a_round_ends_with_a_token_of_the_target_or_with_the_output(
    from_draft: list[bool], drafted: list[int], expected: list[Round]
) -> None:
    assert rounds(from_draft, drafted) == expected


def test_calls_of_the_target_that_no_token_shows_are_told_apart() -> None:
    with pytest.raises(ValueError, match="zip"):
        rounds([False, False], [2, 2, 2])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}}, {"rope_theta": 1e5}),
        ({"rope_parameters": None}, {}),
        ({}, {}),
    ],
)
def test_the_base_of_the_rotations_goes_by_its_older_name(
    tmp_path: Path, config: dict[str, object], expected: dict[str, float]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert older_config(tmp_path) == expected
