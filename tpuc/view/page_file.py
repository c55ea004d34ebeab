"""From a document to one HTML file, which needs nothing else: no network, no server.

The parts of a document are deflated JSON in base64, each in a ``<script>`` of its own, so that the page
reads a kernel when it is opened and not before.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from compiler.diagnostics import CompileError
from tpu_sim.isa.files import write_whole
from tpuc.view.document import VERSION, ViewDocument, fields_of

_PART = re.compile(r'<script type="application/x-tpuc" data-part="([^"]*)">([^<]*)</script>')
_STYLES = ("vendor/uPlot.min.css", "page/page.css")
_VENDOR = ("vendor/uPlot.iife.min.js", "vendor/dagre.min.js", "vendor/virtual-core.min.js")
_SCRIPTS = (
    "core.js", "parts.js", "lists.js", "overview.js", "kernel.js", "passes.js", "costs.js",
    "graph.js", "timeline.js", "memory.js", "slice.js", "compare.js", "start.js",
)  # fmt: skip


@dataclass(frozen=True)
class StoredDocument:
    """The first document of a page that was written before, its parts as they lie there."""

    title: str
    parts: dict[str, str]


def stored_document(path: Path | str) -> StoredDocument:
    """Read a page; raises `PageError` for a file that is none, or one of another schema."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        found = {name: data for name, data in _PART.findall(text) if name.startswith("0.")}
        main = read_part(text, "0.main")
    except OSError as error:
        raise PageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, zlib.error) as error:
        raise PageError(f"{path} is no page of tpuc view") from error
    if not isinstance(main, dict) or main.get("version") != VERSION:
        raise PageError(f"{path} is a page of another version of tpuc view: make it again")
    parts = {html.unescape(name).removeprefix("0."): data for name, data in found.items()}
    return StoredDocument(f"{main['model']} on {main['target']}", parts)


class PageError(CompileError):
    """A page cannot be read."""


AnyDocument = ViewDocument | StoredDocument


def write_page(path: Path | str, documents: Sequence[AnyDocument]) -> int:
    """Write the page of one document, or of two to compare, whole or not at all; returns its bytes."""
    data = page_text(documents).encode()
    write_whole(path, data)
    return len(data)


def page_text(documents: Sequence[AnyDocument]) -> str:
    """The HTML."""
    title = " and ".join(document.title for document in documents)
    return "".join(_page(html.escape(title), documents))


def _page(title: str, documents: Sequence[AnyDocument]) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{title} · tpuc view</title>\n"
    for name in _STYLES:
        yield f"<style>{_static(name)}</style>\n"
    yield f"</head><body>\n{_static('page/page.html')}\n"
    for number, document in enumerate(documents):
        for name, part in document.parts.items():
            data = part if isinstance(part, str) else _encoded(part)
            label = html.escape(f"{number}.{name}", quote=True)
            yield f'<script type="application/x-tpuc" data-part="{label}">{data}</script>\n'
    for name in (*_VENDOR, *(f"page/{script}" for script in _SCRIPTS)):
        yield f"<script>{_script(_static(name))}</script>\n"
    yield "</body></html>\n"


def _encoded(value: object) -> str:
    text = json.dumps(
        value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=fields_of
    )
    data = zlib.compress(text.encode("utf-8", "surrogateescape"), 6)
    return base64.b64encode(data).decode()


def read_part(page: str, name: str) -> object:
    """A part of a page's document, ``0.main``: what a reader that is no browser does."""
    label = f'data-part="{html.escape(name, quote=True)}">'
    at = page.index(label) + len(label)
    return json.loads(zlib.decompress(base64.b64decode(page[at : page.index("<", at)])))


def _static(name: str) -> str:
    return resources.files("tpuc.view").joinpath(name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """A script cannot hold the tag that ends it."""
    return text.replace("</script", "<\\/script")
