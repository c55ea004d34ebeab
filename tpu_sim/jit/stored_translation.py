"""What a translation says beside its code, as bytes for the disk cache.

A line of JSON (key of the object code, calls, sizes), then the fault sites as JSON. The sites are
many and looked at only when a run stops with a fault, so they are decoded then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import overload

from tpu_sim.isa.cached_property import cached_property
from tpu_sim.jit.context import ContextSizes
from tpu_sim.jit.translated import FaultKind, FaultSite, TranslatedModule


class _StoredSites(Sequence[FaultSite]):
    def __init__(self, data: bytes) -> None:
        self._data = data

    @cached_property
    def _sites(self) -> list[FaultSite]:
        texts, rows = json.loads(self._data)
        return [
            FaultSite(FaultKind(texts[kind]), *(texts[number] for number in rest))
            for kind, *rest in rows
        ]

    @overload
    def __getitem__(self, index: int) -> FaultSite: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FaultSite]: ...
    def __getitem__(self, index: int | slice) -> FaultSite | Sequence[FaultSite]:
        return self._sites[index]

    def __len__(self) -> int:
        return len(self._sites)


def dump_translation(translated: TranslatedModule, object_key: str) -> bytes:
    """The bytes of a translation whose object code is stored under `object_key`."""
    first = {
        "object": object_key,
        "calls": translated.calls,
        "sizes": asdict(translated.sizes),
        "has_forks": translated.has_forks,
        "rings": translated.rings,
    }
    texts: dict[str, int] = {}
    rows = [
        [
            texts.setdefault(text, len(texts))
            for text in (site.kind.value, site.message, site.kernel, site.bundle)
        ]
        for site in translated.sites
    ]
    parts = (json.dumps(part, separators=(",", ":")) for part in (first, [list(texts), rows]))
    return "\n".join(parts).encode()


def load_translation(data: bytes) -> tuple[str, TranslatedModule]:
    """The key of the object code, and the translation without its text."""
    line, _, sites = data.partition(b"\n")
    first = json.loads(line)
    calls = tuple((name, site) for name, site in first["calls"])
    sizes = ContextSizes(**first["sizes"])
    rest = (calls, sizes, first["has_forks"], tuple(first["rings"]))
    return first["object"], TranslatedModule((), _StoredSites(sites), *rest)
