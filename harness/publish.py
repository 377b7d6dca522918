"""``python -m harness.publish``: the committed records as tables, in reports/ and in the README."""

from __future__ import annotations

from pathlib import Path

from harness.record import read
from harness.report import formats, page
from harness.report.document import Section
from harness.report.standings import Standing, section, standings

ROOT = Path(__file__).resolve().parent.parent
THIRD_PARTY, FAMILIES = Path("reports") / "third_party", Path("reports") / "families"
BEGIN, END = "<!-- python -m harness.publish -->\n", "<!-- end -->\n"


def main() -> None:
    """Write what depends on the records; a test tells where that was forgotten."""
    for path, text in files(ROOT).items():
        path.write_text(text, encoding="utf-8")


def files(root: Path) -> dict[Path, str]:
    """What the files that depend on the records should hold."""
    others, families = _standings(root / THIRD_PARTY), _standings(root / FAMILIES)
    readme = root / "README.md"
    return {
        **_tables(root / THIRD_PARTY, others),
        **_tables(root / FAMILIES, families),
        readme: _with_table(readme.read_text(encoding="utf-8"), section(others), others),
    }


def _standings(directory: Path) -> list[Standing]:
    return standings([read(path) for path in sorted(directory.glob("*.jsonl"))])


def _tables(directory: Path, found: list[Standing]) -> dict[Path, str]:
    return {
        directory / "conformance.md": formats.markdown([section(found)]) + "\n",
        directory / "conformance.html": page.html(found) + "\n",
    }


def _with_table(readme: str, whole: Section, found: list[Standing]) -> str:
    """The README with a line a decoder; decoders by suites are too wide for it."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = formats.markdown_table(whole.tables[0]) if found else "No records yet."
    return f"{before}{BEGIN}\n{lines}\n\n{END}{after}"


if __name__ == "__main__":
    main()
