"""Compare `tpuc opt --passes none --style ...` with XLA's own printer, through jaxlib.

    python -m benchmarks.text_styles models/*.hlo folder inputs.zip

Prints the first differing line of each text that differs, then how many are equal in each style,
and how many one of the two reads and the other refuses. XLA reads in a process of its own: some
malformed texts end that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from compiler.diagnostics import CompileError, ElidedConstantsWarning
from compiler.hlo.parser import parse_module
from compiler.hlo.styled_printer import STYLES, print_styled

_LONGEST = 20_000_000  # characters; XLA prints a large constant that it made up in full


def texts(paths: list[str]) -> Iterator[tuple[str, str]]:
    """Name and text of every .hlo file, those in folders and zips included."""
    for path in paths:
        if Path(path).is_dir():
            yield from texts(sorted(map(str, Path(path).rglob("*.hlo"))))
        elif not path.endswith(".zip"):
            yield path, Path(path).read_text(errors="replace")
        else:
            with zipfile.ZipFile(path) as archive:
                for name in sorted(archive.namelist()):
                    if name.endswith(".hlo"):
                        yield name, archive.read(name).decode()


class XlaReader:
    """XLA in another process, started again when a text has ended it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def read(self, text: str) -> dict[str, str]:
        """What XLA prints in each style; empty when it does not read the text."""
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-m", "benchmarks.text_styles", "--xla"]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            self.process.wait()
        found: dict[str, str] = json.loads(answer or "{}")
        return found


def read_for_another() -> None:
    """Be the process that reads with XLA: a JSON text in each line, printed forms out."""
    from jaxlib import _hlo  # only here: the other process needs no XLA

    short = _hlo.HloPrintOptions.short_parsable
    for line in sys.stdin:
        found = {}
        try:
            module = _hlo.hlo_module_from_text(json.loads(line))
            for style in STYLES:
                options = short() if style == "short" else _hlo.HloPrintOptions()
                found[style] = module.to_string(options)
        except (RuntimeError, ValueError, IndexError):
            found = {}
        is_long = sum(map(len, found.values())) > _LONGEST
        print(json.dumps({} if is_long else found), flush=True)


def by_us(text: str, name: str, style: str) -> str:
    """What we print, or the error."""
    try:
        return print_styled(parse_module(text, name), STYLES[style])
    except CompileError as error:
        return f"error: {error}"


def main(paths: list[str]) -> None:
    """Compare all texts in all styles."""
    warnings.simplefilter("ignore", ElidedConstantsWarning)
    xla = XlaReader()
    equal: Counter[str] = Counter()
    count = refused = read_by_us = 0
    for name, text in texts(paths):
        wanted = xla.read(text)
        if not wanted:
            refused += 1
            read_by_us += not by_us(text, name, "short").startswith("error: ")
            continue
        count += 1
        for style, want in wanted.items():
            found = by_us(text, name, style)
            equal[style] += want == found
            if want != found:
                lines = zip_longest(want.splitlines(), found.splitlines(), fillvalue="")
                first = next((pair for pair in lines if pair[0] != pair[1]), ("", ""))
                print(f"{name} ({style})\n  XLA  {first[0][:200]}\n  ours {first[1][:200]}")
    for style in STYLES:
        print(f"{style}: {equal[style]} of {count} equal")
    print(f"XLA refuses {refused} texts, of which we read {read_by_us}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--xla"]:
        read_for_another()
    else:
        main(sys.argv[1:])
