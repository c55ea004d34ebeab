"""Each folder's `__init__` says what may be imported from it, and it is so.

The product's own imports are meant: tests and benchmarks look into any file.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.architecture.sources import modules, source
from tests.architecture.test_layers import edges

FOLDERS = sorted(name for name, path in modules().items() if path.name == "__init__.py")
_SAID = re.compile(
    r"(?P<all>Any file may be imported)|(?P<none>Nothing here is to be imported)"
    r"|To be imported from outside: (?P<some>[^.]*)\."
)


@cache
def _entered() -> dict[str, set[str]]:
    """The files and folders of each folder that something outside of it imports."""
    found: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for importer, target in edges():
        parts = target.split(".")
        for end in range(1, len(parts)):
            folder = ".".join(parts[:end])
            if folder in found and not f"{importer}.".startswith(f"{folder}."):
                found[folder].add(parts[end])
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_a_folder_says_may_be_imported_is_what_is(folder: str) -> None:
    said = _SAID.search(source(folder).docstring)
    assert said, (
        f"{folder}/__init__.py says neither 'To be imported from outside: `a`, `b`.' nor 'Any file may be "
        "imported.' nor 'Nothing here is to be imported.'"
    )
    if said["all"]:
        return
    names = set(re.findall(r"`(\w+)`", said["some"] or ""))
    assert _entered()[folder] == names
