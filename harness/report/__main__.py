"""``python -m harness.report``: measure and render, or render what was recorded before."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.command_line import BadInput, refuse
from harness.record import Record, RecordError, read
from harness.report.options import Options, parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    try:
        options = parse(arguments)
        if options.records:
            records = [read(path) for path in options.records]
        else:
            from harness.report.run import run  # imports torch: --help and --from do without

            records = [read(run(options))]
        return (_deliver_table if options.conformance else _deliver)(records, options)
    except (BadInput, RecordError) as error:
        return refuse(error)
    except KeyboardInterrupt:
        print("interrupted before anything was measured", file=sys.stderr)
        return 3
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        sys.stderr.close()
        return 0


def _deliver(records: list[Record], options: Options) -> int:
    from harness.report import formats
    from harness.report.outcome import exit_status
    from harness.report.render import render

    document = [render(record) for record in records]
    if "terminal" in options.formats:
        print(formats.terminal(document))
    if "markdown" in options.formats:
        _put(formats.markdown(document), options.out, "report.md")
    return exit_status(records)


def _deliver_table(records: list[Record], options: Options) -> int:
    from harness.report import formats, page
    from harness.report.outcome import exit_status
    from harness.report.standings import section, standings

    found = standings(records)
    document = [section(found)]
    if "terminal" in options.formats:
        print(formats.terminal(document))
    if "markdown" in options.formats:
        _put(formats.markdown(document), options.out, "conformance.md")
    if "html" in options.formats:
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
