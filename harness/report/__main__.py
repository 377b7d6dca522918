"""``python -m harness.report``: measure and render, or render what was recorded before."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.command_line import BadInput, refuse
from harness.record import Record, RecordError, read
from harness.report.document import Notes, Section
from harness.report.options import Options, parse

INCONCLUSIVE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    try:
        options = parse(arguments)
        old = _earlier(options) if options.compare else None
        paths = options.records
        if not paths:
            from harness.report.run import run  # imports torch: --help and --from do without

            paths = (run(options),)
        with _uncollected():
            records, left_out = _read_all(paths)
            status = _delivery(options)(records, left_out, old, options)
        return INCONCLUSIVE if left_out and status == 0 else status
    except (BadInput, RecordError) as error:
        return refuse(error)
    except KeyboardInterrupt:
        print("interrupted before anything was measured", file=sys.stderr)
        return INCONCLUSIVE
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        sys.stderr.close()
        return 0


def _earlier(options: Options) -> Record:
    """The record to compare with; what cannot be compared is refused before it is measured."""
    from harness.report.regression import check_asked

    assert options.compare
    old = read(options.compare)
    if not options.records:
        check_asked(old, options)
    return old


def _read_all(paths: Sequence[Path]) -> tuple[list[Record], list[str]]:
    """The records that can be read, and what is wrong with the others.

    Raises
    ------
    RecordError
        If there is none.
    """
    records, left_out = [], []
    for path in paths:
        try:
            records.append(read(path))
        except RecordError as error:
            left_out.append(str(error))
    if not records:
        more = f" (nor can {len(left_out) - 1} more be read)" if len(left_out) > 1 else ""
        raise RecordError(left_out[0] + more)
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    return records, left_out


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without looking for cycles: rows have none, and in a long record that takes seconds."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()  # and back: what is there counts as old, and is not looked at right now
            gc.unfreeze()
            gc.enable()


Delivery = Callable[[list[Record], list[str], Record | None, Options], int]


def _delivery(options: Options) -> Delivery:
    if options.claims:
        return _deliver_claims
    return _deliver_table if options.conformance else _deliver


def _deliver(
    records: list[Record], left_out: list[str], old: Record | None, options: Options
) -> int:
    from harness.report import advice, regression, sweeps
    from harness.report.outcome import exit_status
    from harness.report.render import render

    document = advice.sections(records) if options.advise else []
    document += [*sweeps.sections(records), *(render(record) for record in records)]
    if old:
        document.append(regression.section(old, records[0], options.margin))
    _write(document, "report", left_out, options)
    if "github" in options.formats:
        from harness.report import formats, github, github_marks

        github.publish(formats.markdown(document))
        _print_lines(github_marks.marks(records, document))
    return 1 if any(map(regression.regressed, document)) else exit_status(records)


def _deliver_table(
    records: list[Record], left_out: list[str], _: Record | None, options: Options
) -> int:
    from harness.report import github
    from harness.report.outcome import exit_status
    from harness.report.standings import section, standings

    found = standings(records)

    def page_of() -> str:
        from harness.report import page  # takes jinja2

        return page.html(found)

    _write([section(found)], "conformance", left_out, options, {"html": page_of})
    if "github" in options.formats:
        for standing in found:
            github.publish(github.summary(standing))
        _print_lines([line for standing in found for line in github.marks(standing)])
    return exit_status(records)


def _deliver_claims(
    records: list[Record], left_out: list[str], _: Record | None, options: Options
) -> int:
    from harness.report import claims, formats, github

    document = [claims.section(records)]
    _write(document, "claims", left_out, options)
    if "github" in options.formats:
        github.publish(formats.markdown(document))
    return 0 if claims.decided(document[0]) else INCONCLUSIVE


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)


def _write(
    document: list[Section],
    name: str,
    left_out: list[str],
    options: Options,
    pages: Mapping[str, Callable[[], str]] | None = None,
) -> None:
    """Every format but that of GitHub; ``pages`` has those that are not made of sections."""
    from harness.report import formats

    if left_out:
        document[0].notes.insert(0, Notes("Records left out", left_out))
    if "terminal" in options.formats:
        print(formats.terminal(document if options.verbose else [s.brief for s in document]))
        if not options.verbose and any(section.brief != section for section in document):
            print(f"\n{_whole(name, options)}")
    for wanted in formats.SUFFIXES:
        if wanted in options.formats:
            page_of = (pages or {}).get(wanted)
            text = page_of() if page_of else formats.text_of(wanted, document)
            _put(text, options.out, formats.file_name(wanted, name))


def _whole(name: str, options: Options) -> str:
    """Where all of a report is that a terminal was shown the main part of."""
    from harness.report import formats

    files = [
        str(options.out / formats.file_name(wanted, name))
        for wanted in ("markdown", "html")
        if options.out and wanted in options.formats
    ]
    if files:
        return f"The whole report: {' and '.join(files)}; --verbose prints it."
    return "The whole report: --verbose prints it, --format html --out DIR makes a page of it."


def _put(text: str, directory: Path | None, name: str) -> None:
    """Print, or write to a file."""
    if directory is None:
        print(text)
        return
    path = directory / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; choose another --out") from None
    print(f"written: {path}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
