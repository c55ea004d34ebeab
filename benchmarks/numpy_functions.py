"""Which of NumPy's functions are traced: the list in docs/numpy-functions.md.

    python -m benchmarks.numpy_functions            print it
    python -m benchmarks.numpy_functions --write    write it into the page

The list follows from the tables that tracing goes by and from the names of the NumPy that is installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from compiler.frontends.numpy.tracing import traced_functions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "numpy-functions.md"
BEGIN, END = "<!-- begin functions -->", "<!-- end functions -->"
_SPACES: dict[str, ModuleType] = {"np": np, "np.linalg": np.linalg, "np.fft": np.fft}


def overridable(space: ModuleType) -> Iterator[str]:
    """Names of functions that NumPy hands on to arrays of other kinds (ufuncs and ``__array_function__``)."""
    for name in sorted(set(space.__all__)):
        item = getattr(space, name, None)
        if isinstance(item, np.ufunc) or hasattr(item, "__wrapped__"):
            yield name


def listing() -> str:
    """For each namespace the functions that are traced and those that are not."""
    known = traced_functions()
    parts = []
    for prefix, space in _SPACES.items():
        names = list(overridable(space))
        traced = [n for n in names if getattr(space, n) in known]
        others = [n for n in names if getattr(space, n) not in known]
        parts.append(f"**`{prefix}`, {len(traced)} of {len(names)} traced:** {_joined(traced)}\n")
        parts.append(f"Not traced, refused by name: {_joined(others)}\n")
    return "\n".join(parts)


def _joined(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def with_listing(page: str) -> str:
    """The page with the list put in."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{listing()}{END}{after}"


def listed(page: str) -> set[str]:
    """The functions that a page says are traced."""
    found: set[str] = set()
    for prefix, names in re.findall(r"\*\*`([\w.]+)`, \d+ of \d+ traced:\*\* (.*)", page):
        found |= {f"{prefix}.{name}" for name in re.findall(r"`(\w+)`", names)}
    return found


def main() -> None:
    """Print the list, or write it."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_listing(PAGE.read_text()))
    else:
        print(listing())


if __name__ == "__main__":
    main()
