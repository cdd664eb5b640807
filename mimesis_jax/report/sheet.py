"""What every page is printed on: templates, styles, and a file that is whole or not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jinja2

from mimesis_jax.report import numbers

HERE = Path(__file__).parent
# Control characters other than tab, newline and return are no HTML; bidirectional overrides would
# let a dialogue's text reorder the page around it.
UNPRINTABLE = dict.fromkeys(
    [c for c in range(32) if c not in (9, 10, 13)]
    + list(range(0x7F, 0xA0))
    + list(range(0x202A, 0x202F))
    + list(range(0x2066, 0x206A)),
    "\N{REPLACEMENT CHARACTER}",
)


def style(*names: str) -> str:
    """The style sheets of these names, one after the other."""
    return "".join((HERE / name).read_text(encoding="utf-8") for name in names)


def printed(template: str, words: dict[str, Any], **helpers: Any) -> str:
    """The HTML of a template of this folder: one file, no script, no network, no font of its own.

    words: what the template reads. helpers: what its macros read too, beside the numbers' forms.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        show=numbers.show, signed=numbers.signed, seconds=numbers.seconds, NONE=numbers.NONE
    )
    environment.globals.update(helpers)
    return environment.get_template(template).render(**words).translate(UNPRINTABLE)


def put(target: Path, html: str) -> Path:
    """Writes a page and returns its path. Written beside and renamed, so that a reader never sees
    half of it; lone surrogates become "?". Raises OSError as the disk does."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_bytes(html.encode("utf-8", errors="replace"))
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target
