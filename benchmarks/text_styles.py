"""Compare `tpuc opt --passes none --style ...` with XLA's own printer, through jaxlib.

    python -m benchmarks.text_styles models/*.hlo inputs.zip

Prints the first differing line of each text that differs, then how many are equal in each style.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from jaxlib import _hlo

from compiler.diagnostics import CompileError
from compiler.hlo.parser import parse_module
from compiler.hlo.styled_printer import STYLES, print_styled


def texts(paths: list[str]) -> Iterator[tuple[str, str]]:
    """Name and text of every .hlo file, zip members included."""
    for path in paths:
        if not path.endswith(".zip"):
            yield path, Path(path).read_text()
            continue
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".hlo"):
                    yield name, archive.read(name).decode()


def by_xla(text: str, style: str) -> str | None:
    """What XLA prints, or None when it does not read the text."""
    short = _hlo.HloPrintOptions.short_parsable
    options = short() if style == "short" else _hlo.HloPrintOptions()
    try:
        printed: str = _hlo.hlo_module_from_text(text).to_string(options)
    except RuntimeError:
        return None
    return printed


def by_us(text: str, name: str, style: str) -> str:
    """What we print, or the error."""
    try:
        return print_styled(parse_module(text, name), STYLES[style])
    except CompileError as error:
        return f"error: {error}"


def main(paths: list[str]) -> None:
    """Compare all texts in all styles."""
    equal = dict.fromkeys(STYLES, 0)
    count = dict.fromkeys(STYLES, 0)
    for name, text in texts(paths):
        for style in STYLES:
            want, found = by_xla(text, style), by_us(text, name, style)
            if want is None:
                continue
            count[style] += 1
            equal[style] += want == found
            if want != found:
                lines = zip_longest(want.splitlines(), found.splitlines(), fillvalue="")
                first = next((pair for pair in lines if pair[0] != pair[1]), ("", ""))
                print(f"{name} ({style})\n  XLA  {first[0][:200]}\n  ours {first[1][:200]}")
    for style in STYLES:
        print(f"{style}: {equal[style]} of {count[style]} equal")


if __name__ == "__main__":
    main(sys.argv[1:])
