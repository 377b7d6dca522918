"""The benchmark of all drafting families."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import record
from reference_impl import bench


def test_every_family_is_measured_on_every_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--tasks", "chat", "--prompts", "1", "--max-new-tokens", "6"]
    pairs = ["--pair", "tiny", "--pair", "tiny-self"]
    status = bench.main([*pairs, *size, "--peer", "reference-page", "--out", str(tmp_path)])
    assert status == 0
    for pair in ("tiny", "tiny-self"):
        written = record.read(tmp_path / pair / "record.jsonl")
        assert written.header.decoders == [*bench.decoders(pair), "reference-page"]
        assert {row.decoder for row in written.generations} == set(written.header.decoders)
    assert "Where the time goes" in capsys.readouterr().out


def test_heads_are_measured_where_they_were_trained() -> None:
    assert "reference-eagle-tree" in bench.decoders("smollm2-135m")
    assert "reference-eagle-tree" not in bench.decoders("wide-llama")
    assert "reference-tree" in bench.decoders("wide-llama")


def test_options_of_the_report_are_checked_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--pair", "tiny", "--draft-tokens", "0", "--out", str(tmp_path)]) == 2
    assert "--draft-tokens is 0" in capsys.readouterr().err
