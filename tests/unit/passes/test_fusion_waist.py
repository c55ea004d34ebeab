"""Long fusions are halved where they store least."""

from __future__ import annotations

import numpy as np

import tpuc
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.fusion_cuts import Judge, divided
from compiler.passes.fusion_parts import FusionPart
from compiler.passes.fusion_waist import cut_at_waist

_LINKS = 24


def _part(body: str, result: str = "f32[8,128]") -> FusionPart:
    text = f"""HloModule m
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
fused {{
  x = f32[8,128] parameter(0)
{body}
}}
ENTRY main {{
  x = f32[8,128] parameter(0)
  ROOT f = {result} fusion(x), kind=kLoop, calls=fused
}}
"""
    fusion = parse_module(text).entry.root_instruction
    return FusionPart(fusion, tuple(fusion.calls.results))


def _two_values(links: int) -> str:
    """A chain whose links carry the largest value so far and a sum."""
    lines = ["  a0 = f32[8,128] sine(x)", "  b0 = f32[8,128] cosine(x)"]
    for n in range(links):
        lines.append(f"  v{n} = f32[8,128] reverse(x), dimensions={{{n % 2}}}")
        lines.append(f"  a{n + 1} = f32[8,128] maximum(a{n}, v{n})")
        lines.append(f"  b{n + 1} = f32[8,128] add(b{n}, a{n + 1})")
    lines.append(f"  ROOT r = f32[8,128] multiply(a{links}, b{links})")
    return "\n".join(lines)


def test_both_values_of_a_chain_are_stored() -> None:
    part = _part(_two_values(_LINKS))
    halves = cut_at_waist(part)
    assert halves is not None
    first, second = halves
    assert sorted(o.opcode for o in first.outputs) == ["add", "maximum"]
    assert len(first.nodes) + len(second.nodes) == len(part.nodes)
    assert max(len(half.nodes) for half in halves) <= 3 * len(part.nodes) / 4


def test_the_cut_is_where_the_fewest_bytes_are_live() -> None:
    wide = ["  w0 = f32[64,8,128] broadcast(x), dimensions={1,2}"]
    wide += [f"  w{n + 1} = f32[64,8,128] sine(w{n})" for n in range(9)]
    narrow = ["  z = f32[] constant(0)"]
    narrow += ["  s0 = f32[8,128] reduce(w9, z), dimensions={0}, to_apply=sum"]
    narrow += [f"  s{n + 1} = f32[8,128] cosine(s{n})" for n in range(8)]
    halves = cut_at_waist(_part("\n".join([*wide, *narrow, "  ROOT q = f32[8,128] negate(s8)"])))
    assert halves is not None
    assert [o.array.dims for o in halves[0].outputs] == [(8, 128)]


def test_masks_of_positions_are_computed_on_both_sides() -> None:
    lines = [
        "  i = s32[8,128] iota(), iota_dimension=1",
        "  z = s32[8,128] broadcast(k), dimensions={}",
    ]
    lines.insert(0, "  k = s32[] constant(3)")
    lines.append("  m = pred[8,128] compare(i, z), direction=LT")
    lines.append("  s0 = f32[8,128] sine(x)")
    lines += [f"  s{n + 1} = f32[8,128] select(m, x, s{n})" for n in range(_LINKS)]
    lines.append(f"  ROOT r = f32[8,128] negate(s{_LINKS})")
    halves = cut_at_waist(_part("\n".join(lines)))
    assert halves is not None
    assert [o.opcode for o in halves[0].outputs] == ["select"]
    assert all(any(n.opcode == "compare" for n in half.nodes) for half in halves)


def test_what_reads_no_array_is_not_cut() -> None:
    lines = ["  s0 = f32[8,128] iota(), iota_dimension=0"]
    lines += [f"  s{n + 1} = f32[8,128] sine(s{n})" for n in range(_LINKS)]
    lines.append(f"  ROOT r = f32[8,128] negate(s{_LINKS})")
    assert cut_at_waist(_part("\n".join(lines))) is None


def test_a_walk_over_many_taps_is_halved_and_keeps_its_values() -> None:
    windows = "size=1x7x8x1 stride=1x5x8x1 pad=0_0x3_3x4_4x0_0"
    text = f"""HloModule m
ge {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}}
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[2,32,64,3] parameter(0)
  y = f32[2,7,9,3] parameter(1)
  z = f32[] constant(0)
  ROOT s = f32[2,32,64,3] select-and-scatter(x, y, z), window={{{windows}}}, select=ge, scatter=sum
}}
"""
    module = parse_module(text)
    rng = np.random.default_rng(5)
    args = [rng.integers(-9, 9, p.array.dims).astype(np.float32) for p in module.entry.parameters]
    (wanted,) = evaluate(module, args, "highest")
    executable = tpuc.compile(text, "v5e{vmem=256KiB}")
    assert "no windows of the whole fit VMEM" in executable.program.metadata["remarks"]
    (found,) = executable(*args)
    np.testing.assert_array_equal(found, wanted)


class _SmallKernels(Judge):
    """Says that a part has windows when it is small; counts how often that was asked."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked = 0

    def kind(self, part: FusionPart) -> str:
        """The kind of a small part."""
        self.asked += 1
        return "kLoop" if len(part.nodes) <= self.most else ""


def test_a_part_is_halved_rather_than_taken_apart_node_by_node() -> None:
    """No one value of a chain of two values can be stored to halve it; there are as many cuts as nodes."""
    part = _part(_two_values(_LINKS))
    judge = _SmallKernels(12)
    parts = divided(part, judge)
    assert all(len(p.nodes) <= 12 for p in parts)
    assert len(parts) <= 16, [len(p.nodes) for p in parts]
    assert judge.asked < 30 * len(part.nodes)
