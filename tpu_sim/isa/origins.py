"""Where code comes from in the user's source: operation names and lines, for texts and reports.

A program keeps them as one text in its metadata (`Program.metadata["origins"]`), or none when the
model names no origins. Kernels are shared by call sites, so origins are by site: what the
instructions of a kernel are named (`Instr.source`) is looked up at the site that called it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ORIGINS = "origins"
"""The metadata key."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One operation of the user's program: a framework's name for it, and its line (0: not known)."""

    op_name: str = ""
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """``file:line``, as much of it as is known."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    def __str__(self) -> str:
        """``train.py:12 (jit(f)/sin)``, as much of it as is known."""
        return (
            f"{self.place} ({self.op_name})"
            if self.place and self.op_name
            else self.place or self.op_name
        )

    def to_json(self) -> dict[str, object]:
        """The JSON object of an origin."""
        return {"op_name": self.op_name, "file": self.file, "line": self.line}


@dataclass
class OriginTable:
    """Origins by call site and by source, the name that instructions of the called kernel carry.

    The empty source stands for the site itself: transfers of its operands and results, loops.
    """

    sites: dict[str, dict[str, tuple[Origin, ...]]] = field(default_factory=dict)

    def of(self, site: str, source: str = "") -> tuple[Origin, ...]:
        """The origins of a kernel's instructions with that source; the site's own where it has none."""
        sources = self.sites.get(site, {})
        return sources.get(source) or sources.get("") or self.of_all(site)

    def of_all(self, site: str) -> tuple[Origin, ...]:
        """All origins of a site, its own first."""
        found = self.sites.get(site, {})
        return tuple(
            dict.fromkeys([*found.get("", ()), *(o for row in found.values() for o in row)])
        )

    def text(self) -> str:
        """The table as it is kept, each origin, file and name once."""
        pool: dict[Origin, int] = {}
        sites = {
            site: {
                source: [pool.setdefault(origin, len(pool)) for origin in origins]
                for source, origins in sources.items()
            }
            for site, sources in self.sites.items()
        }
        files: dict[str, int] = {}
        rows = [[o.op_name, files.setdefault(o.file, len(files)), o.line] for o in pool]
        found = {"files": list(files), "origins": rows, "sites": sites}
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def origin_table(metadata: Mapping[str, str]) -> OriginTable:
    """The table of a program; an empty one where its text is no such table, or there is none."""
    try:
        return _read(json.loads(metadata.get(ORIGINS, "{}")))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return (
            OriginTable()
        )  # a program file is not to be trusted, and origins are for reports only


def _read(found: dict[str, object]) -> OriginTable:
    files, rows, sites = found.get("files", []), found.get("origins", []), found.get("sites", {})
    if not (isinstance(files, list) and isinstance(rows, list) and isinstance(sites, dict)):
        raise TypeError("want lists and an object")
    pool = [Origin(str(name), str(files[file]), int(line)) for name, file, line in rows]
    return OriginTable(
        {
            str(site): {str(source): _picked(pool, numbers) for source, numbers in sources.items()}
            for site, sources in sites.items()
        }
    )


def _picked(pool: Sequence[Origin], numbers: Sequence[int]) -> tuple[Origin, ...]:
    return tuple(pool[number] for number in numbers)
