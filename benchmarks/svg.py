"""Parts of pictures as SVG text: no library needed, the same bytes on every run."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

_FONT = 'font-family="Helvetica, Arial, sans-serif"'


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 11) -> str:
    """Words at a place, in pixels."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" {_FONT}>'
        f"{escape(words)}</text>"
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> str:
    """A straight line; `dash` as in ``stroke-dasharray``."""
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{style}/>'
    )


def page(width: int, height: int, body: Iterable[str]) -> str:
    """The picture, on white."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">\n<rect width="{width}" height="{height}" fill="white"/>'
    )
    return "\n".join([head, *body, "</svg>\n"])
