"""What the pages share: one file each that needs no other, with the same look and script.

The page lets nothing but its own script run, by hash, and fetch nothing: what a record holds is
escaped, and would be powerless if it were not.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

SCRIPT = "page.js"
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; "
    "base-uri 'none'; form-action 'none'"
)


@cache
def environment() -> Environment:
    """Of all templates; what a page says is escaped unless it is ``Markup``."""
    found = Environment(
        loader=PackageLoader("harness.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    assert found.loader is not None
    script, _, _ = found.loader.get_source(found, SCRIPT)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found.globals.update(script=Markup(script), policy=Markup(POLICY.format(digest)))
    return found
