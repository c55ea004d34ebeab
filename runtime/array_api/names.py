"""The names of `tpuc.numpy` and its `linalg` and `fft`.

Every function of NumPy's that tracing has a rule for, and what the standard has beside them.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from compiler.frontends.numpy.tracing import traced_functions
from runtime.array_api import creation, helpers, ordering, sized, types
from runtime.array_api.calls import lifted
from runtime.array_api.info import namespace_info

CONSTANTS: dict[str, Any] = {
    "e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None, "pi": np.pi, "euler_gamma": np.euler_gamma,
}  # fmt: skip

_OWN: dict[ModuleType, tuple[str, ...]] = {
    creation: (
        "arange", "array", "asarray", "astype", "bartlett", "blackman", "empty",
        "empty_like", "eye", "from_dlpack", "full",
        "full_like", "geomspace", "hamming", "hanning", "identity",
        "kaiser", "linspace", "logspace", "ones", "ones_like", "tri",
        "zeros", "zeros_like",
    ),
    helpers: (
        "c_", "diag_indices", "fromfunction", "indices", "mgrid", "ndarray", "ogrid", "r_",
        "tril_indices", "triu_indices",
    ),
    ordering: ("argsort", "broadcast_arrays", "clip", "meshgrid", "sort"),
    sized: (
        "argwhere", "bincount", "extract", "flatnonzero", "intersect1d", "nonzero", "repeat", "setdiff1d",
        "setxor1d", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse",
        "unique_values", "where",
    ),
    types: ("can_cast", "finfo", "iinfo", "isdtype", "promote_types", "result_type"),
}  # fmt: skip


def _functions(space: ModuleType) -> dict[str, Any]:
    """The functions of a namespace of NumPy's that have a rule, by name."""
    known = traced_functions()
    found: dict[str, Any] = {}
    for name in sorted(space.__all__):
        function = getattr(space, name, None)
        try:
            has_rule = function in known
        except TypeError:  # it is not hashable, so no function
            continue
        if has_rule:
            found[name] = lifted(function)  # type: ignore[arg-type]  # it is one
    return found


def main_names() -> dict[str, Any]:
    """What `tpuc.numpy` has."""
    own = {name: getattr(home, name) for home, names in _OWN.items() for name in names}
    own |= {"asanyarray": creation.asarray, "ascontiguousarray": creation.asarray}
    own |= {name: getattr(np, name) for name in helpers.NUMPYS_OWN}
    absent = {name: getattr(np, name) for name in types.NARROWED}
    dtypes: dict[str, Any] = {**types.STANDARD, **types.BEYOND, **absent, "bool_": np.bool_}
    info = {"__array_namespace_info__": namespace_info}
    return {**CONSTANTS, **_functions(np), **own, **dtypes, **info}


def linalg_names() -> dict[str, Any]:
    """What `tpuc.numpy.linalg` has."""
    return _functions(np.linalg)


def fft_names() -> dict[str, Any]:
    """What `tpuc.numpy.fft` has."""
    own = {"fftfreq": creation.fftfreq, "rfftfreq": creation.rfftfreq}
    return {**_functions(np.fft), **own}
