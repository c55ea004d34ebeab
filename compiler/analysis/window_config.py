"""A fusion's window plan as text: XLA's `window_config` and our own part, in `backend_config`.

    {"window_config": {"kernel_window_bounds": ["256", "4"], "output_window_bounds": ["64", "4"],
                       "input_window_bounds": ["64", "16"], "iteration_bounds": ["4", "4", "1"],
                       "estimated_cycles": "143032"},
     "tpuc": {"blocks": [], "order": [0, 1]}}

Bounds count (8,128) tiles. Of a dot kernel is [K/8, N/128], output [M/8, N/128], input
[M/8, K/128] and iteration the steps [batches.., N, M, K]: they are where its blocks of M, N and K
are read from. `tpuc` has what they cannot say: `blocks` in units of the iteration space for its
leading dimensions (a dot's batch dimensions; all dimensions of any other fusion, whose
`window_config` only reports), and `order`, the grid's parallel dimensions, outermost first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.iteration_space import IterationDim, IterationSpace
from compiler.analysis.windows import WindowPlan
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import LANES, SUBLANES

WINDOW_CONFIG = "window_config"
OWN = "tpuc"
REQUEST = "window_request"
"""Of a config written for ``--window NAME=..``: the name."""
_OPERAND_BOUNDS = ("kernel_window_bounds", "output_window_bounds", "input_window_bounds")
_MATRIX = {
    "kernel_window_bounds": ("K", "N"),
    "output_window_bounds": ("M", "N"),
    "input_window_bounds": ("M", "K"),
}
_STEPS = "iteration_bounds"


@dataclass(frozen=True)
class WindowChoice:
    """What a config asks for; None where it says nothing.

    `matrix` has elements of M, N and K per block; `steps` the grid steps of N, M and K, after those
    of batches if they are given; `blocks` units of leading dimensions.
    """

    matrix: dict[str, int]
    steps: tuple[int, ...] | None = None
    blocks: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None


def read_config(instr: HloInstruction) -> dict[str, object]:
    """The JSON object in an instruction's backend_config; empty where there is none.

    Other compilers write other texts in braces, which say nothing here. Raises CompileError for
    such a text that names one of our keys.
    """
    text = instr.attrs.get("backend_config")
    if not isinstance(text, str) or not text.startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        if not any(f'"{key}"' in text for key in (OWN, "window_config", "known_trip_count")):
            return {}
        raise CompileError(
            f"%{instr.name}: backend_config is no JSON: {error}", instr.span
        ) from error
    assert isinstance(found, dict)
    return found


def write_config(instr: HloInstruction, config: dict[str, object]) -> None:
    """Set an instruction's backend_config, or remove it when empty."""
    if config:
        instr.attrs["backend_config"] = json.dumps(config, separators=(",", ":"))
    else:
        instr.attrs.pop("backend_config", None)


def has_choice(instr: HloInstruction) -> bool:
    """Whether an instruction's config says anything about windows."""
    config = read_config(instr)
    return WINDOW_CONFIG in config or OWN in config


def is_matrix_space(body: FusionBody, space: IterationSpace) -> bool:
    """Whether the space's dimensions are the batches, M, N and maybe K of the fusion's dot."""
    if body.dot is None:
        return False
    sizes = tuple(d.size for d in space.dims if d.parallel)
    return sizes == body.dot.array.dims


def read_choice(instr: HloInstruction, *, is_matrix: bool) -> WindowChoice | None:
    """What the config of a fusion or dot asks for, None if nothing that counts.

    `is_matrix`: its window bounds are those of a dot and count. Raises CompileError for malformed
    values and for bounds that contradict each other.
    """
    config = read_config(instr)
    own = _object(instr, config, OWN)
    window = _object(instr, config, WINDOW_CONFIG) if is_matrix else {}
    matrix: dict[str, int] = {}
    for key, (rows, columns) in _MATRIX.items():
        bounds = _numbers(instr, window, key)
        if not bounds:
            continue
        if len(bounds) < 2:
            raise CompileError(f"%{instr.name}: {key} has 1 entry, want 2", instr.span)
        for name, size in ((rows, bounds[-2] * SUBLANES), (columns, bounds[-1] * LANES)):
            known = matrix.setdefault(name, size)
            if not _agree(name, known, size):
                raise CompileError(
                    f"%{instr.name}: window_config gives blocks of {known} and of {size} along "
                    f"{name} (kernel is [K/8, N/128], output [M/8, N/128], input [M/8, K/128])",
                    instr.span,
                )
            matrix[name] = min(known, size)
    steps = _numbers(instr, window, _STEPS) if matrix else None
    blocks, order = (_numbers(instr, own, key) for key in ("blocks", "order"))
    if not matrix and blocks is None and order is None:
        return None
    return WindowChoice(matrix, steps or None, blocks, order)


def _agree(name: str, one: int, other: int) -> bool:
    """K is given in tiles of 8 and of 128 elements, rounded up."""
    if name != "K":
        return one == other
    return -(-one // LANES) == -(-other // LANES)


def _object(instr: HloInstruction, config: dict[str, object], key: str) -> dict[str, object]:
    found = config.get(key, {})
    if not isinstance(found, dict):
        raise CompileError(f"%{instr.name}: {key} is no JSON object", instr.span)
    return found


def _numbers(instr: HloInstruction, config: dict[str, object], key: str) -> tuple[int, ...] | None:
    """A list of whole numbers, written as numbers or as strings."""
    if key not in config:
        return None
    values = config[key]
    if isinstance(values, list):
        digits = [str(v) for v in values if isinstance(v, int | str)]
        if len(digits) == len(values) and all(d.isdecimal() for d in digits):
            return tuple(int(d) for d in digits)
    raise CompileError(
        f"%{instr.name}: {key} is {json.dumps(values)}, want a list of whole numbers", instr.span
    )


def matrix_config(m: int, k: int, n: int) -> dict[str, object]:
    """The `window_config` that asks for blocks of so many elements of M, K and N."""
    sizes = {"M": m, "K": k, "N": n}
    bounds: dict[str, object] = {}
    for key, (rows, columns) in _MATRIX.items():
        bounds[key] = _text((-(-sizes[rows] // SUBLANES), -(-sizes[columns] // LANES)))
    return bounds


def transposed_request(dot: HloInstruction, rows: int) -> str:
    """The config of a dot for the dot that makes its result transposed; `rows` is M before.

    Raises CompileError when blocks of M are no whole tiles of columns.
    """
    config = read_config(dot)
    window = _object(dot, config, WINDOW_CONFIG)
    bounds = {key: _numbers(dot, window, key) for key in (*_MATRIX, _STEPS)}
    made: dict[str, object] = {}
    for key, other in (
        ("kernel_window_bounds", "input_window_bounds"),
        ("input_window_bounds", "kernel_window_bounds"),
        ("output_window_bounds", "output_window_bounds"),
    ):
        found = bounds[key]
        if found:
            made[other] = _text(_transposed(dot, found, has_rows=_MATRIX[key][0] == "M", rows=rows))
    steps = bounds[_STEPS]
    if steps and len(steps) >= 3:
        made[_STEPS] = _text((*steps[:-3], steps[-2], steps[-3], steps[-1]))
    rest = {key: value for key, value in config.items() if key not in (WINDOW_CONFIG, OWN)}
    return json.dumps({**rest, WINDOW_CONFIG: made}, separators=(",", ":"))


def _transposed(
    dot: HloInstruction, bounds: tuple[int, ...], *, has_rows: bool, rows: int
) -> tuple[int, ...]:
    """Tiles of a window with rows and columns swapped; `has_rows`: its rows are those of M."""
    height = bounds[-2] * SUBLANES
    if has_rows and height % LANES and height < rows:
        raise CompileError(
            f"%{dot.name}: the product is computed transposed, and windows of {height} rows become "
            f"columns: want multiples of {LANES}",
            dot.span,
        )
    return (*bounds[:-2], bounds[-1] * LANES // SUBLANES, -(-height // LANES))


def plan_config(
    body: FusionBody, space: IterationSpace, plan: WindowPlan
) -> dict[str, dict[str, object]]:
    """The `window_config` and `tpuc` entries that say what `plan` is."""
    blocks = plan.blocks
    is_matrix = is_matrix_space(body, space)
    if is_matrix:
        bounds, steps = _matrix_bounds(body, space, plan)
        lead = sum(d.parallel for d in space.dims) - 2
    else:
        is_summed = body.dot is None and any(not d.parallel for d in space.dims)
        operand = body.reduces[0].operands[0] if is_summed else None
        output = plan.outputs[0]
        bounds = {
            "kernel_window_bounds": (),
            "output_window_bounds": _tiles(output.shape, output.extent),
            "input_window_bounds": ()
            if operand is None
            else _space_tiles(operand, space, blocks.sizes),
        }
        steps = tuple(-(-d.tiles // b) for d, b in zip(space.dims, blocks.sizes, strict=True))
        lead = len(space.dims)
    window: dict[str, object] = {key: _text(bounds[key]) for key in _OPERAND_BOUNDS}
    window[_STEPS] = _text(steps)
    window["estimated_cycles"] = str(plan.estimated_cycles)
    order = [i for i in blocks.order if space.dims[i].parallel]
    own: dict[str, object] = {"blocks": list(blocks.sizes[:lead]), "order": order}
    return {WINDOW_CONFIG: window, OWN: own}


def _matrix_bounds(
    body: FusionBody, space: IterationSpace, plan: WindowPlan
) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    dims, sizes = list(space.dims), list(plan.blocks.sizes)
    if dims[-1].parallel:  # K is not cut
        assert body.dot is not None
        depth = body.dot.operands[0].array.dims[-1]
        dims.append(IterationDim(depth, max(depth, 1), parallel=False))
        sizes.append(1)
    m, n, k = (min(b * d.unit, d.size) for d, b in zip(dims[-3:], sizes[-3:], strict=True))
    bounds: dict[str, tuple[int, ...]] = {
        "kernel_window_bounds": (-(-k // SUBLANES), -(-n // LANES)),
        "output_window_bounds": (-(-m // SUBLANES), -(-n // LANES)),
        "input_window_bounds": (-(-m // SUBLANES), -(-k // LANES)),
    }
    steps = [-(-d.tiles // b) for d, b in zip(dims, sizes, strict=True)]
    return bounds, (*steps[:-3], steps[-2], steps[-3], steps[-1])


def _space_tiles(
    operand: HloInstruction, space: IterationSpace, sizes: tuple[int, ...]
) -> tuple[int, ...]:
    extent = tuple(min(b * d.unit, d.size) for d, b in zip(space.dims, sizes, strict=True))
    return _tiles(operand.array, extent)


def _tiles(shape: ArrayShape, extent: tuple[int, ...]) -> tuple[int, ...]:
    """(8,128) tiles of a box: majors as they are."""
    if shape.rank == 0:
        return ()
    last = -(-extent[-1] // LANES)
    if shape.rank == 1:
        return (last,)
    return (*extent[:-2], -(-extent[-2] // SUBLANES), last)


def _text(bounds: tuple[int, ...]) -> list[str]:
    return [str(b) for b in bounds]
