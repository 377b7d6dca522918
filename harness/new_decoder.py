"""``python -m harness.new_decoder NAME``: an adapter to begin with, which works as it is."""

from __future__ import annotations

import importlib.util
import keyword
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from harness.command_line import BadInput, Parser, refuse

TEMPLATES = "new_decoder_templates"
# Files of a door: what is added to the name, and the template.
DOORS: Mapping[str, Mapping[str, str]] = {
    "python": {".py": "python", ".xfails.txt": "xfails"},
    "stdio": {".py": "stdio", ".xfails.txt": "xfails"},
    "http": {".py": "http", "_server.py": "http_server", ".xfails.txt": "xfails"},
}
MEANINGS = {
    ".py": "the adapter: it works as it is, put your decoder in its place",
    "_server.py": "a stand-in for your server",
    ".xfails.txt": "items known to fail, with reasons: none yet",
}

EPILOG = """\
doors:
  python  a function in Python, called in this process
  stdio   a child process in any language, JSON lines on stdin and stdout
  http    a server, asked by HTTP

exit status: 0, or 2 where nothing was written; one line on stderr says why.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = Parser(
        prog="python -m harness.new_decoder",
        description="Write an adapter for your decoder, and its file of known failures.",
        epilog=EPILOG,
    )
    parser.add_argument("name", metavar="NAME", help="of the decoder, and of the files")
    parser.add_argument("--door", choices=DOORS, default="python", help="default: %(default)s")
    parser.add_argument(
        "--directory", type=Path, default=Path(), metavar="DIR", help="where to (default: here)"
    )
    given = parser.parse_args(arguments)
    try:
        written = write(given.name, given.door, given.directory)
    except BadInput as error:
        return refuse(error)
    width = max(len(str(path)) for path in written)
    for path, meaning in written.items():
        print(f"written: {path!s:<{width}}  {meaning}")
    where = f"cd {given.directory} && " if given.directory != Path() else ""
    print(f"next: {where}{command(given.name, given.door)}")
    return 0


def write(name: str, door: str, directory: Path) -> dict[Path, str]:
    """Write the files of a door; returns what each of them is.

    Raises
    ------
    BadInput
        If the name cannot be a module's, or a file cannot be written. Then none is.
    """
    module = _module(name)
    files = {directory / f"{module}{end}": end for end in DOORS[door]}
    for path in files:
        if path.exists():
            raise BadInput(f"{path} is there already: choose another name, or move it away")
    if _taken(module):
        raise BadInput(f"{module!r} is a module that is installed: choose another name")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, end in files.items():
            path.write_text(text(name, door, DOORS[door][end]), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write to {directory}: {error.strerror}") from None
    return {path: MEANINGS[end] for path, end in files.items()}


def text(name: str, door: str, template: str) -> str:
    """A template, filled in."""
    found = resources.files("harness") / TEMPLATES / f"{template}.txt"
    source = found.read_text(encoding="utf-8")
    return source.replace("COMMAND", command(name, door)).replace("NAME", _module(name))


def command(name: str, door: str) -> str:
    """What runs the suites on it."""
    module = _module(name)
    decoder = f'"cmd: python {module}.py"' if door == "stdio" else f"{module}:build"
    return f"pytest --pyargs suites --decoder {decoder} --xfails-file {module}.xfails.txt"


def _module(name: str) -> str:
    module = name.replace("-", "_")
    if not module.isidentifier() or keyword.iskeyword(module):
        raise BadInput(f"{name!r} cannot be the name of a module: take letters, digits and _")
    return module


def _taken(module: str) -> bool:
    """Whether a module of that name is installed, which would be imported in its place."""
    if module in sys.stdlib_module_names or module == "conftest":
        return True
    spec = importlib.util.find_spec(module)
    return spec is not None and Path(spec.origin or "").resolve().parent != Path.cwd()


if __name__ == "__main__":
    raise SystemExit(main())
