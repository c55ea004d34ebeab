"""Products in pieces round a ring: the values of the products and exchanges as they were written."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate_devices
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from compiler.passes.collectives import collective_matmul
from compiler.passes.context import PassContext
from compiler.passes.pipeline import hlo_passes
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.torus import Slice, torus_of

PASSES = ("replica-flattener", "collective-matmul")
MESHES = {  # dims of a v5e slice, groups
    "2x1": ((2, 1, 1), "{{0,1}}"),
    "3x1": ((3, 1, 1), "{{0,1,2}}"),
    "line": ((4, 1, 1), "{{2,0,1,3}}"),
    "2x2": ((2, 2, 1), "{{0,1,2,3}}"),
    "rows": ((4, 2, 1), "{{0,1,2,3},{4,5,6,7}}"),
    "columns": ((4, 2, 1), "{{4,0},{1,5},{2,6},{7,3}}"),
    "squares": ((4, 2, 1), "{{0,1,4,5},{2,3,6,7}}"),
    "4x2": ((4, 2, 1), "{{0,1,2,3,4,5,6,7}}"),
    "3x2": ((3, 2, 1), "{{5,4,3,2,1,0}}"),
    "5x1": ((5, 1, 1), "{{0,1,2,3,4}}"),
}
BATCHED = """lhs_contracting_dims={2}, rhs_contracting_dims={1},
    lhs_batch_dims={0}, rhs_batch_dims={0}"""
GATHERED = {
    "rows": """
  x = f32[16,24] parameter(0)
  w = f32[24,40] parameter(1)
  g = f32[ALL16,24] all-gather(x), GROUPS, dimensions={0}
  d = f32[ALL16,40] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[ALL16,40] tanh(d)""",
    "of either side, twice": """
  x = bf16[32,3,24] parameter(0)
  w = bf16[40,24] parameter(1)
  g = bf16[ALL32,3,24] all-gather(x), GROUPS, dimensions={0}
  d = f32[40,ALL32,3] dot(w, g), lhs_contracting_dims={1}, rhs_contracting_dims={2}
  e = f32[ALL32,3,40] dot(g, w), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  ROOT r = (f32[40,ALL32,3], f32[ALL32,3,40]) tuple(d, e)""",
    "middle": """
  x = f32[3,32,24] parameter(0)
  w = f32[40,24] parameter(1)
  g = f32[3,ALL32,24] all-gather(x), GROUPS, dimensions={1}
  ROOT e = f32[3,ALL32,40] dot(g, w), lhs_contracting_dims={2}, rhs_contracting_dims={1}""",
    "batch": """
  x = f32[16,8,24] parameter(0)
  w = f32[ALL16,24,5] parameter(1)
  g = f32[ALL16,8,24] all-gather(x), GROUPS, dimensions={0}
  ROOT d = f32[ALL16,8,5] dot(g, w), BATCHED""",
}
SCATTERED = {
    "rows": """
  x = f32[ALL64,24] parameter(0)
  w = f32[24,40] parameter(1)
  d = f32[ALL64,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[64,40] reduce-scatter(d), GROUPS, dimensions={0}, to_apply=sum""",
    "middle, of several": """
  x = f32[3,ALL32,24] parameter(0)
  w = f32[24,40] parameter(1)
  v = f32[40,24] parameter(2)
  y = f32[3,ALL32,40] parameter(3)
  d = f32[3,ALL32,40] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  e = f32[3,ALL32,40] dot(x, v), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  half = f32[] constant(0.5)
  halves = f32[3,ALL32,40] broadcast(half), dimensions={}
  t = f32[3,ALL32,40] multiply(e, halves)
  a = f32[3,ALL32,40] add(d, t)
  b = f32[3,ALL32,40] subtract(a, y)
  ROOT s = f32[3,32,40] reduce-scatter(b), GROUPS, dimensions={1}, to_apply=sum""",
    "batch": """
  x = f32[ALL32,8,24] parameter(0)
  w = f32[ALL32,24,5] parameter(1)
  d = f32[ALL32,8,5] dot(x, w), BATCHED
  ROOT s = f32[32,8,5] reduce-scatter(d), GROUPS, dimensions={0}, to_apply=sum""",
}


def texts(body: str, mesh: str) -> str:
    dims, groups = MESHES[mesh]
    size = groups.split("}")[0].count(",") + 1
    for rows in (16, 32, 64):
        body = body.replace(f"ALL{rows}", str(size * rows))
    count = dims[0] * dims[1]
    of_groups = f"replica_groups={groups}, channel_id=1, use_global_device_ids=true"
    return f"""HloModule m, num_partitions={count}
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY main_spmd {{{body.replace("GROUPS", of_groups).replace("BATCHED", BATCHED)}
}}"""


def in_pieces(text: str, mesh: str) -> tuple[str, list[list[np.ndarray]], list[list[np.ndarray]]]:
    """The opcodes after the pass, and values of all devices after and before."""
    dims, _ = MESHES[mesh]
    chip = load_chip("v5e")
    count = dims[0] * dims[1]
    module, plain = parse_module(text), parse_module(text)
    rng = np.random.default_rng(0)
    rows = [
        [rng.normal(size=p.array.dims).astype(p.array.dtype.numpy) for p in module.entry.parameters]
        for _ in range(count)
    ]
    context = PassContext(chip, cores=Slice(torus_of(chip, dims), tuple(range(count))))
    for one in hlo_passes(PASSES):
        one.run(module, context)
    verify(module)
    opcodes = " ".join(i.opcode for i in module.entry)
    got = evaluate_devices(module, rows, "highest")
    return opcodes, got, evaluate_devices(plain, rows, "highest")


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("body", [*GATHERED.values(), *SCATTERED.values()])
def test_values_are_those_of_the_whole(
    body: str, mesh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective_matmul, "_WORTH", float("inf"))
    opcodes, got, want = in_pieces(texts(body, mesh), mesh)
    assert "all-gather" not in opcodes and "reduce-scatter" not in opcodes
    for mine, other in zip(got, want, strict=True):
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_allclose(
                a.astype(np.float32), b.astype(np.float32), rtol=1e-4, atol=1e-4
            )


@pytest.mark.parametrize(
    "body",
    [
        GATHERED["rows"].replace("f32[16,", "f32[20,").replace("ALL16", "80"),  # ragged tiles
        GATHERED["rows"].replace("tanh(d)", "add(d, d)").replace("ROOT r", "q = f32[ALL16,24] "
        "tanh(g)\n  ROOT r"),  # somebody else reads the gather
        SCATTERED["rows"].replace("f32[64,", "f32[40,").replace("ALL64", "160"),
        GATHERED["rows"],  # nothing to gain
        SCATTERED["rows"],
    ],
)  # fmt: skip
def test_what_stays(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if body not in (GATHERED["rows"], SCATTERED["rows"]):
        monkeypatch.setattr(collective_matmul, "_WORTH", float("inf"))
    opcodes, _, _ = in_pieces(texts(body, "2x2"), "2x2")
    assert "collective-permute" not in opcodes
