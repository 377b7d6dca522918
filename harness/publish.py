"""``python -m harness.publish``: the committed records as tables, in reports/ and in the README."""

from __future__ import annotations

from pathlib import Path

from harness.record import read
from harness.report import formats, page
from harness.report.document import Section
from harness.report.standings import Standing, section, standings

ROOT = Path(__file__).resolve().parent.parent
RECORDS = Path("reports") / "third_party"
BEGIN, END = "<!-- python -m harness.publish -->\n", "<!-- end -->\n"


def main() -> None:
    """Write what depends on the records; a test tells where that was forgotten."""
    for path, text in files(ROOT).items():
        path.write_text(text, encoding="utf-8")


def files(root: Path) -> dict[Path, str]:
    """What the files that depend on the records should hold."""
    found = standings([read(path) for path in sorted((root / RECORDS).glob("*.jsonl"))])
    whole = section(found)
    readme = root / "README.md"
    return {
        root / RECORDS / "conformance.md": formats.markdown([whole]) + "\n",
        root / RECORDS / "conformance.html": page.html(found) + "\n",
        readme: _with_table(readme.read_text(encoding="utf-8"), whole, found),
    }


def _with_table(readme: str, whole: Section, found: list[Standing]) -> str:
    """The README with a line a decoder; decoders by suites are too wide for it."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = formats.markdown_table(whole.tables[0]) if found else "No records yet."
    return f"{before}{BEGIN}\n{lines}\n\n{END}{after}"


if __name__ == "__main__":
    main()
