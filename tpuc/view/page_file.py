"""From a document to one HTML file, which needs nothing else: no network, no server.

The parts of a document are deflated JSON in base64, each in a ``<script>`` of its own, so that the page
reads a kernel when it is opened and not before.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from tpu_sim.isa.files import write_whole
from tpuc.view.document import Document, plain

_STYLES = ("vendor/uPlot.min.css", "page/page.css")
_VENDOR = ("vendor/uPlot.iife.min.js", "vendor/dagre.min.js", "vendor/virtual-core.min.js")
_SCRIPTS = (
    "core.js", "parts.js", "lists.js", "overview.js", "kernel.js", "passes.js", "costs.js",
    "graph.js", "timeline.js", "memory.js", "slice.js", "compare.js", "start.js",
)  # fmt: skip


def write_page(path: Path | str, documents: Sequence[Document]) -> int:
    """Write the page of one document, or of two to compare, whole or not at all; returns its bytes."""
    data = page_text(documents).encode()
    write_whole(path, data)
    return len(data)


def page_text(documents: Sequence[Document]) -> str:
    """The HTML."""
    title = " and ".join(f"{d.main.model} on {d.main.target}" for d in documents)
    return "".join(_page(html.escape(title), documents))


def _page(title: str, documents: Sequence[Document]) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{title} · tpuc view</title>\n"
    for name in _STYLES:
        yield f"<style>{_static(name)}</style>\n"
    yield f"</head><body>\n{_static('page/page.html')}\n"
    for number, document in enumerate(documents):
        for name, part in document.parts.items():
            data = base64.b64encode(_deflated(plain(part))).decode()
            label = html.escape(f"{number}.{name}", quote=True)
            yield f'<script type="application/x-tpuc" data-part="{label}">{data}</script>\n'
    for name in (*_VENDOR, *(f"page/{script}" for script in _SCRIPTS)):
        yield f"<script>{_script(_static(name))}</script>\n"
    yield "</body></html>\n"


def _deflated(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return zlib.compress(text.encode("utf-8", "surrogateescape"), 6)


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
