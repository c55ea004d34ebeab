"""Loops that are one kernel: every kind of instruction in their bodies, on both machines."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from compiler import driver
from compiler.backend.kernel_options import KernelOptions
from tests.support.against_evaluator import check
from tests.support.run_hlo import compile_text
from tpu_sim.isa.chips import Chip, load_chip

COMPARE = """
cond {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
"""
ADD = """add {
  add.a = f32[] parameter(0)
  add.b = f32[] parameter(1)
  ROOT add.c = f32[] add(add.a, add.b)
}
"""


def loop(state: list[str], body: list[str], results: list[str], trips: int = 17) -> str:
    """A module whose loop has `state` after its counter; element k of it is v<k> in `body`.

    Loops of fewer trips may be written out.
    """
    whole = f"(s32[], {', '.join(state)})"
    shapes = enumerate(state)
    taken = [f"v{k} = {s} get-tuple-element(q), index={k + 1}" for k, s in shapes]
    inputs = [f"x{k} = {s} parameter({k})" for k, s in enumerate(state)]
    ends = [f"r{k} = {s} get-tuple-element(w), index={k + 1}" for k, s in enumerate(state)]
    names = ", ".join(f"x{k}" for k in range(len(state)))
    return "\n".join(
        [
            "HloModule loops\n",
            ADD + COMPARE.format(state=whole, trips=trips),
            "body {",
            f"q = {whole} parameter(0)",
            "j = s32[] get-tuple-element(q), index=0",
            "one = s32[] constant(1)",
            "k = s32[] add(j, one)",
            *taken,
            *body,
            f"ROOT t = {whole} tuple(k, {', '.join(results)})",
            "}",
            "ENTRY main {",
            *inputs,
            "zero = s32[] constant(0)",
            f"s = {whole} tuple(zero, {names})",
            f"w = {whole} while(s), condition=cond, body=body",
            *ends,
            f"ROOT r = ({', '.join(state)}) tuple({', '.join(f'r{k}' for k in range(len(state)))})",
            "}",
        ]
    )


BODIES = {
    "a row a turn": (
        ["f32[5,200]", "f32[1,200]"],
        [
            "z = s32[] constant(0)",
            "d = f32[1,200] dynamic-slice(v0, j, z), dynamic_slice_sizes={1,200}",
            "a = f32[1,200] add(d, v1)",
            "u = f32[5,200] dynamic-update-slice(v0, a, j, z)",
        ],
        ["u", "a"],
    ),
    "columns, in place of bytes": (
        ["s8[40,9]", "s8[40,1]"],
        [
            "z = s32[] constant(0)",
            "d = s8[40,1] dynamic-slice(v0, z, j), dynamic_slice_sizes={40,1}",
            "a = s8[40,1] add(d, v1)",
            "u = s8[40,9] dynamic-update-slice(v0, a, z, k)",
        ],
        ["u", "a"],
    ),
    "matrices of a stack": (
        ["f32[5,3,16,20]", "f32[16,20]"],
        [
            "z = s32[] constant(0)",
            "d = f32[1,1,16,20] dynamic-slice(v0, j, one, z, z), dynamic_slice_sizes={1,1,16,20}",
            "e = f32[16,20] reshape(d)",
            "a = f32[16,20] multiply(e, v1)",
            "b = f32[1,1,16,20] reshape(a)",
            "u = f32[5,3,16,20] dynamic-update-slice(v0, b, j, z, z, z)",
        ],
        ["u", "a"],
    ),
    "products and sums": (
        ["f32[24,24]", "f32[24]"],
        [
            "f = f32[] constant(0)",
            "d = f32[24,24] dot(v0, v0), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "l = f32[] constant(-3)",
            "h = f32[] constant(3)",
            "m = f32[24,24] clamp(l, d, h)",
            "a = f32[24] reduce(m, f), dimensions={0}, to_apply=add",
            "b = f32[24] add(a, v1)",
        ],
        ["m", "b"],
    ),
    "a swap": (["f32[9,130]", "f32[9,130]"], ["n = f32[9,130] negate(v0)"], ["v1", "n"]),
    "scalars on both sides": (
        ["f32[300]", "f32[]"],
        [
            "f = f32[] constant(0)",
            "b = f32[300] broadcast(v1), dimensions={}",
            "a = f32[300] subtract(v0, b)",
            "m = f32[] reduce(a, f), dimensions={0}, to_apply=add",
            "l = f32[] constant(-3)",
            "h = f32[] constant(3)",
            "n = f32[] clamp(l, m, h)",
        ],
        ["a", "n"],
    ),
    "vectors and rows": (
        ["f32[1,260]", "f32[260]"],
        ["a = f32[260] reshape(v0)", "b = f32[260] add(a, v1)", "c = f32[1,260] reshape(b)"],
        ["c", "a"],
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_values(name: str) -> None:
    state, body, results = BODIES[name]
    text = loop(state, body, results)
    check(text, [_values(shape) for shape in state])
    assert _kernels(text) == {"w"}


def _values(shape: str) -> np.ndarray:
    dtype, _, dims = shape.rstrip("]").partition("[")
    sizes = tuple(int(n) for n in dims.split(",") if n)
    kind = {"f32": np.float32, "s8": np.int8, "s32": np.int32}[dtype]
    return np.random.default_rng(3 + len(dims)).integers(-4, 5, sizes).astype(kind)


STACKS = {
    "read forwards, written": (
        ["f32[300,16,32]", "f32[300,16,32]", "f32[16,32]"],
        [
            "z = s32[] constant(0)",
            "d = f32[1,16,32] dynamic-slice(v0, j, z, z), dynamic_slice_sizes={1,16,32}",
            "e = f32[16,32] reshape(d)",
            "a = f32[16,32] add(e, v2)",
            "b = f32[1,16,32] reshape(a)",
            "u = f32[300,16,32] dynamic-update-slice(v1, b, j, z, z)",
        ],
        ["v0", "u", "a"],
    ),
    "read backwards by fours, bytes": (
        ["s8[400,5,20]", "s8[400,5,20]", "s8[5,20]"],
        [
            "z = s32[] constant(0)",
            "f = s32[] constant(-4)",
            "l = s32[] constant(393)",
            "m = s32[] multiply(j, f)",
            "n = s32[] add(m, l)",
            "d = s8[3,5,20] dynamic-slice(v0, n, z, z), dynamic_slice_sizes={3,5,20}",
            "e = s8[1,5,20] slice(d), slice={[1:2],[0:5],[0:20]}",
            "g = s8[5,20] reshape(e)",
            "a = s8[5,20] add(g, v2)",
            "b = s8[1,5,20] reshape(a)",
            "u = s8[400,5,20] dynamic-update-slice(v1, b, n, z, z)",
        ],
        ["v0", "u", "a"],
    ),
    "each slab from the one before it": (
        ["f32[300,8,128]", "f32[8,128]"],
        [
            "z = s32[] constant(0)",
            "d = f32[1,8,128] dynamic-slice(v0, j, z, z), dynamic_slice_sizes={1,8,128}",
            "e = f32[8,128] reshape(d)",
            "a = f32[8,128] subtract(e, v1)",
            "b = f32[1,8,128] reshape(a)",
            "u = f32[300,8,128] dynamic-update-slice(v0, b, k, z, z)",
        ],
        ["u", "a"],
    ),
    "at places of a table, beyond the end": (
        ["f32[12,25,16,8]", "s32[40]", "f32[12,25,16,8]"],
        [
            "z = s32[] constant(0)",
            "i1 = s32[1] dynamic-slice(v1, j), dynamic_slice_sizes={1}",
            "i = s32[] reshape(i1)",
            "d = f32[1,2,16,8] dynamic-slice(v0, i, j, z, z), dynamic_slice_sizes={1,2,16,8}",
            "a = f32[1,2,16,8] negate(d)",
            "u = f32[12,25,16,8] dynamic-update-slice(v2, a, j, i, z, z)",
            "w2 = f32[12,25,16,8] dynamic-update-slice(u, d, i, i, z, z)",
        ],
        ["v0", "v1", "w2"],
    ),
}


def test_large_slabs_come_and_go() -> None:
    state = ["f32[8,512,512]", "f32[8,512,512]", "f32[512,512]"]
    body = [
        "z = s32[] constant(0)",
        "d = f32[1,512,512] dynamic-slice(v0, j, z, z), dynamic_slice_sizes={1,512,512}",
        "e = f32[512,512] reshape(d)",
        "a = f32[512,512] add(e, v2)",
        "b = f32[1,512,512] reshape(a)",
        "u = f32[8,512,512] dynamic-update-slice(v1, b, j, z, z)",
    ]
    text, target = loop(state, body, ["v0", "u", "a"]), "v5e{vmem=16MiB}"
    check(text, [_values(shape) for shape in state], target=target)
    assert _kernels(text, load_chip(target)) == {"w"}


@pytest.mark.parametrize("name", STACKS)
def test_stacks_come_and_go_slab_by_slab(name: str) -> None:
    state, body, results = STACKS[name]
    text, target = loop(state, body, results), "v5e{vmem=1MiB}"
    check(text, [_values(shape) for shape in state], target=target)
    assert _kernels(text, load_chip(target)) == {"w"}


def _kernels(text: str, chip: Chip | None = None) -> set[str]:
    kernels = compile_text(text, "default", chip).program.kernels.values()
    return {kernel.note.split()[0] for kernel in kernels if kernel.note.endswith("loop in VMEM")}


def test_loops_within_loops_are_one_kernel() -> None:
    state = "(s32[], f32[8,128])"
    text = f"""HloModule nest
inner_cond {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(17)
  ROOT c = pred[] compare(i, n), direction=LT
}}
inner {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,128] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8,128] add(x, x)
  ROOT t = {state} tuple(j, y)
}}
outer_cond {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(i, n), direction=LT
}}
outer {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,128] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  s = {state} tuple(zero, x)
  w = {state} while(s), condition=inner_cond, body=inner
  y = f32[8,128] get-tuple-element(w), index=1
  h = f32[] constant(0.25)
  b = f32[8,128] broadcast(h), dimensions={{}}
  z = f32[8,128] multiply(y, b)
  ROOT t = {state} tuple(j, z)
}}
ENTRY main {{
  x = f32[8,128] parameter(0)
  zero = s32[] constant(0)
  s = {state} tuple(zero, x)
  w = {state} while(s), condition=outer_cond, body=outer
  ROOT r = f32[8,128] get-tuple-element(w), index=1
}}
"""
    check(text, [np.arange(1024, dtype=np.float32).reshape(8, 128)])
    assert len(_kernels(text)) == 1


def test_what_does_not_fit_runs_in_main() -> None:
    state = ["f32[4096,4096]", "f32[4096,4096]", "f32[4096,4096]"]
    body = ["a = f32[4096,4096] add(v0, v1)", "b = f32[4096,4096] multiply(a, v2)"]
    assert not _kernels(loop(state, body, ["b", "v1", "v2"]))


def test_loops_may_be_left_to_main(monkeypatch: pytest.MonkeyPatch) -> None:
    text = loop(*BODIES["a row a turn"])
    assert _kernels(text)
    in_main = partial(KernelOptions, loops_in_vmem=False)
    monkeypatch.setattr(driver, "KernelOptions", in_main)
    assert not _kernels(text)


def test_a_vector_lies_as_rows_of_128_do() -> None:
    """A sort by what is computed of both elements has no keys: it is a loop of whole arrays."""
    text = """HloModule sort
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  d = f32[] subtract(a, b)
  zero = f32[] constant(0)
  ROOT r = pred[] compare(d, zero), direction=LT
}

ENTRY e {
  x = f32[524288] parameter(0)
  ROOT r = f32[524288] sort(x), dimensions={0}, to_apply=less
}
"""
    assert len(_kernels(text)) == 1
