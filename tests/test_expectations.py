"""Files of known failures and skips."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.expectations import Expectations, ExpectationsError
from harness.verdict import Status, Verdict

FILE = """
# Known failures of some engine.
test_stopping.py::test_offsets*  # https://example.org/issue/1: stop sequences inside a block
test_greedy.py::test_identity[tiny-ties]  # ties break the other way

test_distribution.py::test_family[micro-T=1 K=?]  # filters
"""
ITEM = "suites/test_greedy.py::test_identity[tiny-ties]"


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "xfails.txt").write_text(FILE)
    return str(tmp_path / "xfails.txt")


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("suites/test_stopping.py::test_offsets[tiny]", "https://example.org/issue/1: stop seq"),
        (ITEM, "ties break the other way"),
        ("suites/test_distribution.py::test_family[micro-T=1 K=4]", "filters"),
        ("suites/test_distribution.py::test_family[micro-T=1 K=10]", ""),
        ("suites/test_greedy.py::test_identity[tiny]", ""),
        ("suites/test_greedy.py::test_identity[tiny-ties]-again", ""),
        ("suites/test_greedy.py::test_identityt", ""),  # brackets are no character class
    ],
)
def test_the_end_of_an_id_is_matched(path: str, item: str, reason: str) -> None:
    found = Expectations.read(path, None)
    assert found.xfail(item).startswith(reason)
    assert bool(found.xfail(item)) == bool(reason)
    assert found.skip(item) == ""


def test_both_files_stay_apart(path: str, tmp_path: Path) -> None:
    skips = tmp_path / "skips.txt"
    skips.write_text("test_seed*  # takes an hour\n")
    found = Expectations.read(path, str(skips))
    assert found.skip("suites/test_randomness.py::test_seed[tiny]") == "takes an hour"
    assert found.xfail("suites/test_randomness.py::test_seed[tiny]") == ""
    assert found.skip(ITEM) == ""


def test_entries_that_match_nothing_are_told(path: str) -> None:
    found = Expectations.read(path, None)
    assert len(found.unused()) == 3
    found.match(ITEM)
    found.match("suites/test_smoke.py::test_wired[tiny]")
    assert found.unused() == [
        "test_stopping.py::test_offsets*",
        "test_distribution.py::test_family[micro-T=1 K=?]",
    ]


def test_of_two_that_match_the_first_gives_the_reason_and_neither_is_stale(tmp_path: Path) -> None:
    file = tmp_path / "xfails.txt"
    file.write_text("test_identity[tiny-ties]  # one\ntest_identity*  # two\n")
    found = Expectations.read(str(file), None)
    assert found.xfail(ITEM) == "one"
    assert found.unused() == []


def test_a_tilde_marks_what_comes_and_goes(tmp_path: Path) -> None:
    file = tmp_path / "xfails.txt"
    file.write_text("~test_a[tiny]  # memory\n~ test_b*  # memory\ntest_c  # always\n")
    found = Expectations.read(str(file), None)
    for item, reason, fickle in (
        ("suites/test_x.py::test_a[tiny]", "memory", True),
        ("suites/test_x.py::test_b[tiny]", "memory", True),
        ("suites/test_x.py::test_c", "always", False),
        ("suites/test_x.py::test_d", "", False),
    ):
        assert (found.xfail(item), found.may_pass(item)) == (reason, fickle)
    assert found.unused() == []


def test_a_text_says_which_failure_it_is_and_only_such_an_entry_explains_an_error(
    tmp_path: Path,
) -> None:
    file = tmp_path / "xfails.txt"
    file.write_text("test_a* | IndexError  # the end\n~test_a* | no EOS  # EOS\ntest_b*  # any\n")
    found = Expectations.read(str(file), None)
    for item, status, message, reason in (
        ("test_a", Status.ERROR, "it raised IndexError: 3", "the end"),
        ("test_a", Status.FAIL, "it raised IndexError: 3", "the end"),
        ("test_a", Status.FAIL, "there was no EOS", "EOS"),
        ("test_a", Status.FAIL, "token 3 is 4", ""),
        ("test_a", Status.ERROR, "cannot import 'x'", ""),
        ("test_b", Status.FAIL, "token 3 is 4", "any"),
        ("test_b", Status.INCONCLUSIVE, "too few samples", "any"),
        ("test_b", Status.ERROR, "cannot import 'x'", ""),
        ("test_c", Status.FAIL, "token 3 is 4", ""),
    ):
        verdict = Verdict(check="x.y", status=status, message=message)
        assert found.explanation(f"suites/test_x.py::{item}", verdict) == reason, (item, message)
    assert found.may_pass("suites/test_x.py::test_a")
    assert not found.may_pass("suites/test_x.py::test_b")


def test_no_file_expects_nothing() -> None:
    found = Expectations.read(None, None)
    assert (found.xfail(ITEM), found.skip(ITEM), found.unused()) == ("", "", [])


@pytest.mark.parametrize("entry", ["test_x", "test_x  #", "test_x #  "])
def test_an_entry_needs_a_reason(tmp_path: Path, entry: str) -> None:
    file = tmp_path / "xfails.txt"
    file.write_text(f"# comment\n\n{entry}\n")
    with pytest.raises(ExpectationsError, match=r"xfails.txt, line 3: .* needs a reason after '#'"):
        Expectations.read(str(file), None)
    file.write_text("test_x |  # why\n")
    with pytest.raises(ExpectationsError, match=r"line 1: an entry needs a text after '|'"):
        Expectations.read(str(file), None)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "binary", ""):
        with pytest.raises(ExpectationsError, match=r"^cannot read [^\n]*" + name):
            Expectations.read(None, str(tmp_path / name))
