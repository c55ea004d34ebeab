"""Index maps read what the evaluator reads: each opcode against brute force over small shapes."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from compiler.analysis.indexing import Var, const, evaluate, var, variables
from compiler.analysis.indexing_boxes import Box, operand_boxes, tile_units
from compiler.analysis.indexing_maps import (
    PIECEWISE,
    operand_indices,
    start_operand,
)
from compiler.diagnostics import UnsupportedError
from compiler.hlo.evaluator.interpreter import evaluate_computation
from compiler.hlo.ir import HloInstruction
from tests.support.vector_runs import parse_body

Array = npt.NDArray[np.generic]

MOVES = [
    "r=s32[5,3,4] broadcast(p), dimensions={0,2}|s32[5,4]",
    "r=s32[6,10] reshape(p)|s32[5,3,4]",
    "r=s32[3,1,20,1] reshape(p)|s32[5,3,4]",
    "r=s32[4,5,3] transpose(p), dimensions={2,0,1}|s32[5,3,4]",
    "r=s32[2,3,2] slice(p), slice={[1:5:2], [0:3], [2:4]}|s32[5,3,4]",
    "r=s32[5,3,4] reverse(p), dimensions={0,2}|s32[5,3,4]",
    "z=s32[] constant(-7)\nROOT r=s32[9,3,11] pad(p,z), padding=1_3x0_0x2_-1_2|s32[5,3,4]",
    "ROOT r=s32[5,8,4] concatenate(p,p,q), dimensions={1}|s32[5,3,4]|s32[5,2,4]",
    "ROOT r=s32[2,3] dynamic-slice(p,i,j), dynamic_slice_sizes={2,3}|s32[5,4]|i=4|j=0",
    "ROOT r=s32[2,3] dynamic-slice(p,i,j), dynamic_slice_sizes={2,3}|s32[5,4]|i=-1|j=9",
    "ROOT r=s32[5,4] dynamic-update-slice(p,q,i,j)|s32[5,4]|s32[2,3]|i=2|j=1",
    "ROOT r=s32[7] iota(), iota_dimension=0|s32[2]",
]


def _parse(spec: str) -> tuple[HloInstruction, list[Array]]:
    body, *arguments = spec.split("|")
    lines, values = [], []
    names = iter("pq")
    for number, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if value:
            lines.append(f"{name}=s32[] parameter({number})")
            values.append(np.int32(value))
        else:
            lines.append(f"{next(names)}={argument} parameter({number})")
            dims = [int(d) for d in argument[4:-1].split(",")]
            base = 1000 * (number + 1)
            values.append(np.arange(base, base + np.prod(dims), dtype=np.int32).reshape(dims))
    text = "\n".join([*lines, body if "ROOT" in body else f"ROOT {body}"])
    return parse_body(text).root_instruction, [np.asarray(v) for v in values]


def _read(node: HloInstruction, at: tuple[int, ...], values: list[Array]) -> int:
    """The element of `node` by following its accesses."""
    if node.opcode == "parameter":
        return int(values[int(str(node.attrs["parameter_number"]))][at])
    if node.opcode == "constant":
        return int(np.asarray(node.attrs["literal"])[at])
    if node.opcode == "iota":
        return at[int(str(node.attrs["iota_dimension"]))]
    point = {
        Var(f"x{d}", 0, n - 1): k for d, (n, k) in enumerate(zip(node.array.dims, at, strict=True))
    }
    index = tuple(var(v) for v in point)
    for access in operand_indices(node, index):
        used = {v for e in access.index for v in variables(e)}
        used |= {v for c in access.conditions for v in variables(c.expr)}
        for v in used:
            if v.start_of is not None:
                point[v] = min(max(_read(start_operand(v), (), values), v.low), v.high)
        if node.opcode in PIECEWISE and not all(
            c.low <= evaluate(c.expr, point) <= c.high for c in access.conditions
        ):
            continue
        inner = tuple(evaluate(e, point) for e in access.index)
        return _read(node.operands[access.operand], inner, values)
    raise AssertionError("no access holds")


@pytest.mark.parametrize("spec", MOVES)
def test_map_reads_what_the_opcode_means(spec: str) -> None:
    root, values = _parse(spec)
    assert root.computation is not None
    (want,) = evaluate_computation(root.computation, values)
    for at in itertools.product(*(range(n) for n in root.array.dims)):
        assert _read(root, at, values) == want[at]


def test_opcodes_without_a_map_are_refused_by_name() -> None:
    root = HloInstruction("gather", "g", _parse(MOVES[0])[0].shape)
    with pytest.raises(UnsupportedError, match="gather has no index map"):
        operand_indices(root, (const(0),))


def _boxes(text: str, box: Box) -> dict[str, tuple[list[str], tuple[int, ...]]]:
    root = parse_body(text).root_instruction
    found = operand_boxes(root, box)
    return {n.name: ([str(e) for e in b.low], b.extent) for n, b in found.items()}


def test_boxes_follow_elementwise_broadcast_and_transpose() -> None:
    g = var(Var("g", 0, 7))
    text = """
      p = f32[512,256] parameter(0)
      q = f32[256] parameter(1)
      w = f32[256,512] parameter(2)
      b = f32[512,256] broadcast(q), dimensions={1}
      t = f32[512,256] transpose(w), dimensions={1,0}
      s = f32[512,256] add(p, b)
      ROOT r = f32[512,256] add(s, t)
    """
    found = _boxes(text, Box((64 * g, const(0)), (64, 256)))
    assert found["p"] == (["64*g", "0"], (64, 256))
    assert found["q"] == (["0"], (256,))
    assert found["w"] == (["0", "128*(g)//2"], (256, 128))


def test_boxes_are_rounded_to_tiles_and_joined() -> None:
    g = var(Var("g", 0, 7))
    text = """
      p = f32[1024,128] parameter(0)
      a = f32[512,128] slice(p), slice={[3:515], [0:128]}
      b = f32[512,128] slice(p), slice={[20:532], [0:128]}
      ROOT r = f32[512,128] add(a, b)
    """
    found = _boxes(text, Box((64 * g, const(0)), (64, 128)))
    assert found["p"] == (["64*g", "0"], (88, 128))


def test_box_of_every_map_covers_what_is_read() -> None:
    for spec in MOVES:
        root, values = _parse(spec)
        whole = Box(tuple(const(0) for _ in root.array.dims), root.array.dims)
        for leaf, box in operand_boxes(root, whole).items():
            units = tile_units(leaf.array)
            assert len(box.low) == len(units)
            assert all(e <= n for e, n in zip(box.extent, leaf.array.dims, strict=True))
        assert values
