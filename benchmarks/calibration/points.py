"""The measured points: `points.toml` as dataclasses, and the HLO module each one runs."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "points.toml"
FIT, PREDICT = "fit", "predict"
KINDS = ("wall", "slope", "device")
_F32_BYTES = 4


class PointError(ValueError):
    """The data file is wrong; the message names the point."""


@dataclass(frozen=True)
class Point:
    """One measurement, in seconds; see `points.toml` for the fields."""

    name: str
    chip: str
    family: str
    kind: str
    use: str
    source: str
    published: str
    seconds: float
    m: int = 0
    k: int = 0
    n: int = 0
    dtype: str = "bf16"
    window: tuple[int, int, int] | None = None
    bytes: int = 0
    elements: int = 0
    arrays: int = 2
    note: str = ""
    unmet: str = ""

    @property
    def is_fitted(self) -> bool:
        """Whether the parameters were fitted to this point."""
        return self.use == FIT


def load_points(path: Path = DATA) -> tuple[list[Point], dict[str, str]]:
    """All points, and the sources by short name. Raises `PointError` for malformed ones."""
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    sources = {str(k): str(v) for k, v in tree["sources"].items()}
    points: list[Point] = []
    for entry in tree["point"]:
        if "window" in entry:
            entry["window"] = tuple(entry["window"])
        try:
            point = Point(**entry)
        except TypeError as error:
            raise PointError(f"point {entry.get('name')!r}: {error}") from error
        if point.kind not in KINDS or point.use not in (FIT, PREDICT):
            raise PointError(f"point {point.name!r}: kind {point.kind!r}, use {point.use!r}")
        if point.source not in sources:
            raise PointError(f"point {point.name!r}: unknown source {point.source!r}")
        points.append(point)
    return points, sources


def module_text(point: Point) -> str:
    """The HLO module of a point."""
    match point.family:
        case "gemm":
            return _gemm(point)
        case "copy":
            return _copy(point.bytes // _F32_BYTES)
        case "elementwise":
            return _add(point.elements, point.arrays)
    raise PointError(f"point {point.name!r}: unknown family {point.family!r}")


def _gemm(point: Point) -> str:
    config = _window_config(*point.window) if point.window else ""
    result = "s32" if point.dtype == "s8" else point.dtype
    sides = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return f"""HloModule gemm

ENTRY main {{
  x = {point.dtype}[{point.m},{point.k}] parameter(0)
  w = {point.dtype}[{point.k},{point.n}] parameter(1)
  ROOT y = {result}[{point.m},{point.n}] dot(x, w), {sides}{config}
}}
"""


def _window_config(bm: int, bk: int, bn: int) -> str:
    bounds = {
        "kernel_window_bounds": [str(bk // 8), str(bn // 128)],
        "output_window_bounds": [str(bm // 8), str(bn // 128)],
        "input_window_bounds": [str(bm // 8), str(bk // 128)],
    }
    return f", backend_config={json.dumps({'window_config': bounds})}"


def _copy(elements: int) -> str:
    return f"""HloModule copy

ENTRY main {{
  x = f32[{elements}] parameter(0)
  ROOT y = f32[{elements}] copy(x)
}}
"""


def _add(elements: int, arrays: int) -> str:
    if arrays == 3:
        other = f"  b = f32[{elements}] parameter(1)\n"
    else:
        other = f"  c = f32[] constant(1)\n  b = f32[{elements}] broadcast(c), dimensions={{}}\n"
    return f"""HloModule add

ENTRY main {{
  x = f32[{elements}] parameter(0)
{other}  ROOT y = f32[{elements}] add(x, b)
}}
"""
