"""Sections as LaTeX tables of the package booktabs, to be read in by a paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.report.document import Cell, Section, Struck, Table
from harness.report.formats import one_line

PREAMBLE = """\
% \\usepackage{{booktabs, graphicx}} in the preamble, then \\input this file.
% {origin}"""
SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "-": r"{-}",  # two would become a dash
        "[": "{[}",  # one at the start of a row would be taken for the option of the last one's end
        "]": "{]}",
        "*": "{*}",  # and so would this
        **{character: f"\\{character}" for character in "&%$#_"},
    }
)


def latex(sections: Sequence[Section]) -> str:
    """All tables, each as a float as wide as the text."""
    return "\n\n".join(_section(section) for section in sections)


def _section(section: Section) -> str:
    facts = dict(section.facts)
    told = (section.title, facts.get("command", ""), facts.get("started", ""))
    origin = "; ".join(one_line(text) for text in told if text)
    tables = [_table(table, section.title) for table in section.tables]
    return "\n\n".join([PREAMBLE.format(origin=origin), *tables])


def _table(table: Table, title: str) -> str:
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(f'{title}: {table.title}')}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}",
        r"\toprule",
        _row(table.columns),
        r"\midrule",
        *(_row(row) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _row(cells: Iterable[Cell]) -> str:
    return f"{' & '.join(map(_cell, cells))} \\\\"


def _cell(cell: Cell) -> str:
    """A struck figure in brackets: striking out takes a package more."""
    if isinstance(cell, Struck):
        return rf"({escaped(cell.text)}) \emph{{{escaped(cell.reason)}}}"
    return escaped(cell)


def escaped(text: str) -> str:
    """Text in which nothing is LaTeX."""
    return one_line(text).translate(SPECIAL)
