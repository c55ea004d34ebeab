"""What `tpuc.numpy` says of itself, as the standard asks: `__array_namespace_info__`."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.hlo.host_types import NumpyDType
from runtime.api import DEFAULT_TARGET, devices
from runtime.array_api.types import DEFAULTS, STANDARD, isdtype
from runtime.client import Device, device_for


class NamespaceInfo:
    """Capabilities, devices and types. Every device has the same types."""

    def capabilities(self) -> dict[str, bool | None]:
        """Masks and sizes that depend on values work outside of traced functions; any number of axes does."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": None,
        }

    def default_device(self) -> Device:
        """Where arrays are made if nobody says where."""
        return device_for(DEFAULT_TARGET)

    def devices(self) -> list[Device]:
        """The devices of the default target; `tpuc.devices` gives those of others."""
        return devices(DEFAULT_TARGET)

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, NumpyDType]:
        """The type of what states none."""
        return dict(DEFAULTS)

    def dtypes(
        self, *, device: Device | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, NumpyDType]:
        """The standard's types that a chip has, by name, or those of a kind."""
        named: dict[str, Any] = {name: np.dtype(item) for name, item in STANDARD.items()}
        return {n: d for n, d in named.items() if kind is None or isdtype(d, kind)}


def namespace_info() -> NamespaceInfo:
    """What the namespace can do."""
    return NamespaceInfo()
