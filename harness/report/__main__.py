"""``python -m harness.report``: measure and render, or render what was recorded before."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.record import Record, RecordError, read
from harness.report.options import BadInput, Options, parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    try:
        options = parse(arguments)
        if options.records:
            records = [read(path) for path in options.records]
        else:
            from harness.report.run import run  # imports torch: --help and --from do without

            records = [read(run(options))]
        return _deliver(records, options)
    except (BadInput, RecordError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
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
        text = formats.markdown(document)
        if options.out is None:
            print(text)
        else:
            _write(options.out / "report.md", text)
            print(f"written: {options.out / 'report.md'}", file=sys.stderr)
    return exit_status(records)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; choose another --out") from None


if __name__ == "__main__":
    raise SystemExit(main())
