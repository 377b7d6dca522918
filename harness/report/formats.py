"""Sections as text: for a terminal, as Markdown, and by the name of any other format.

What a section says may come from a record, a decoder or a model. It stays on its line, and is
neither markup nor a command to the terminal.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Sequence

from tabulate import tabulate

from harness.report.document import Cell, Notes, Section, Struck, Table

SUFFIXES = {"markdown": "md", "html": "html", "json": "json", "csv": "csv", "latex": "tex"}
SUFFIXES |= {"svg": "svg"}
NAMES = {"svg": "speedup"}  # of files that do not hold the whole report
WIDTH = 100  # of a terminal's prose; tables are as wide as they are


def file_name(wanted: str, name: str) -> str:
    """Of the file that a report called ``name`` is written to."""
    return f"{NAMES.get(wanted, name)}.{SUFFIXES[wanted]}"


def text_of(name: str, sections: Sequence[Section]) -> str:
    """The sections in one of the formats of ``SUFFIXES``; imports what that one takes."""
    if name == "markdown":
        return markdown(sections)
    if name == "html":
        from harness.report.report_page import html  # takes jinja2 and matplotlib

        return html(sections)
    if name == "svg":
        from harness.report.plot import svg_text

        return svg_text(sections)
    if name == "latex":
        from harness.report.latex import latex

        return latex(sections)
    from harness.report import data

    return data.json_text(sections) if name == "json" else data.csv_text(sections)


def terminal(sections: Sequence[Section]) -> str:
    """Plain text."""
    return "\n\n".join(_terminal_section(section) for section in sections)


def _terminal_section(section: Section) -> str:
    width = max((len(name) for name, _ in section.facts), default=0) + 2
    title = one_line(section.title)
    blocks = [f"{title}\n{'=' * len(title)}"]
    blocks.append("\n".join(_wrap(value, f"{name:<{width}}") for name, value in section.facts))
    for table in section.tables:
        blocks.append(f"{table.title}\n\n{_table(table, 'simple', _plain)}")
    for notes in section.notes:
        wrap = "  {}".format if notes.verbatim else _bullet
        blocks.append("\n".join([notes.title, *map(wrap, map(one_line, notes.lines))]))
    return "\n\n".join(blocks)


def _wrap(text: str, first: str) -> str:
    return textwrap.fill(
        one_line(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _bullet(text: str) -> str:
    return _wrap(text, "  - ")


def _plain(cell: Cell) -> str:
    return one_line(f"({cell.text}) {cell.reason}" if isinstance(cell, Struck) else cell)


def one_line(text: str) -> str:
    """Text without what ends a line or steers a terminal, and without halves of characters."""
    return "".join(
        " " if unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") else character
        for character in text
    )


def markdown(sections: Sequence[Section]) -> str:
    """Markdown, as GitHub renders it."""
    return "\n\n".join(_markdown_section(section) for section in sections)


def _markdown_section(section: Section) -> str:
    blocks = [f"# {escaped(section.title)}"]
    blocks.append(
        "\n".join(f"- **{escaped(name)}**: {escaped(value)}" for name, value in section.facts)
    )
    for table in section.tables:
        blocks.append(f"## {escaped(table.title)}\n\n{markdown_table(table)}")
    blocks += [_markdown_notes(notes) for notes in section.notes]
    return "\n\n".join(blocks)


def markdown_table(table: Table) -> str:
    """A table without its title."""
    return _table(table, "github", _struck)


def _markdown_notes(notes: Notes) -> str:
    lines = [f"- {escaped(line)}" for line in notes.lines]
    if notes.verbatim:
        lines = [fenced("\n".join(map(one_line, notes.lines)), "sh")]
    return "\n".join([f"## {escaped(notes.title)}", "", *lines])


def fenced(code: str, language: str) -> str:
    """Code as it is, in a fence longer than any within."""
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}{language}\n{code}\n{fence}"


def _struck(cell: Cell) -> str:
    if isinstance(cell, Struck):
        return f"~~{escaped(cell.text)}~~ {escaped(cell.reason)}"
    return escaped(cell)


def escaped(text: str) -> str:
    """Text in which nothing is Markdown, on one line."""
    text = one_line(text)
    for special in ("\\", "|", "*", "_", "~", "<", "`", "]("):
        text = text.replace(special, f"\\{special}")
    return text


def _table(table: Table, style: str, cell: Callable[[Cell], str]) -> str:
    rows = [[cell(value) for value in row] for row in table.rows]
    return tabulate(
        rows,
        headers=[cell(column) for column in table.columns],
        tablefmt=style,
        disable_numparse=True,
    )
