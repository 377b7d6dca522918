"""``python -m harness.report``: measure and render, or render what was recorded before."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.command_line import BadInput, refuse
from harness.record import Record, RecordError, read
from harness.report.options import Options, parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    try:
        options = parse(arguments)
        paths = options.records
        if not paths:
            from harness.report.run import run  # imports torch: --help and --from do without

            paths = (run(options),)
        with _uncollected():
            records = [read(path) for path in paths]
            return (_deliver_table if options.conformance else _deliver)(records, options)
    except (BadInput, RecordError) as error:
        return refuse(error)
    except KeyboardInterrupt:
        print("interrupted before anything was measured", file=sys.stderr)
        return 3
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        sys.stderr.close()
        return 0


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without looking for cycles: rows have none, and in a long record that takes seconds."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _deliver(records: list[Record], options: Options) -> int:
    from harness.report import advice, formats, sweeps
    from harness.report.outcome import exit_status
    from harness.report.render import render

    document = advice.sections(records) if options.advise else []
    document += [*sweeps.sections(records), *(render(record) for record in records)]
    if "terminal" in options.formats:
        print(formats.terminal(document))
    if "markdown" in options.formats:
        _put(formats.markdown(document), options.out, "report.md")
    if "html" in options.formats:
        from harness.report import report_page  # takes jinja2 and matplotlib

        _put(report_page.html(document), options.out, "report.html")
    return exit_status(records)


def _deliver_table(records: list[Record], options: Options) -> int:
    from harness.report import formats
    from harness.report.outcome import exit_status
    from harness.report.standings import section, standings

    found = standings(records)
    document = [section(found)]
    if "terminal" in options.formats:
        print(formats.terminal(document))
    if "markdown" in options.formats:
        _put(formats.markdown(document), options.out, "conformance.md")
    if "html" in options.formats:
        from harness.report import page  # takes jinja2

        _put(page.html(found), options.out, "conformance.html")
    return exit_status(records)


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
