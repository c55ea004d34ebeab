"""Updates whose tiles are fetched together, many of the same tile, with an operand beyond VMEM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.against_evaluator import binary
from tests.support.run_hlo import compile_text, expected, run_compiled
from tpu_sim.isa.chips import load_chip

TAKE = "f {\n  f.a = f32[] parameter(0)\n  ROOT f.b = f32[] parameter(1)\n}\n"

# dimensions of the operand, window dimensions (whole), how many updates
CASES = {
    "elements": ((512, 1024), (), 37),
    "rows": ((40, 90, 130), (2,), 21),
    "matrices": ((150, 20, 130), (1, 2), 18),
    "heads of a position": ((20, 3, 90, 130), (1, 3), 19),
    "a vector": ((400000,), (), 33),
    "planes": ((40, 3, 16, 130), (2, 3), 48),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("combine", ["add", "take"])
@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_groups_of_updates(name: str, combine: str, machine: str) -> None:
    dims, window, count = CASES[name]
    indexed = [d for d in range(len(dims)) if d not in window]
    sizes = [count, *(dims[d] for d in window)]
    comma = ",".join
    mapped = comma(map(str, indexed))
    shape = f"f32[{comma(map(str, dims))}]"
    text = f"""HloModule m
{TAKE if combine == "take" else binary("f", combine, "f32")}
ENTRY e {{
  x = {shape} parameter(0)
  i = s32[{count},{len(indexed)}] parameter(1)
  u = f32[{comma(map(str, sizes))}] parameter(2)
  ROOT r = {shape} scatter(x, i, u), inserted_window_dims={{{mapped}}}, index_vector_dim=1,
    update_window_dims={{{comma(str(d + 1) for d in range(len(window)))}}},
    scatter_dims_to_operand_dims={{{mapped}}}, to_apply=f
}}
"""
    rng = np.random.default_rng(len(name))
    places = np.stack([rng.integers(-1, dims[d] + 1, count) for d in indexed], axis=1)
    places[1::2] = places[:3][rng.integers(0, 3, count // 2)]  # the same few, again and again
    places[2::4] += 1
    places[5::16, 0] = -(1 << 31) + rng.integers(0, 1 << 30, len(places[5::16]))
    places[7::16, -1] = (1 << 31) - 1
    values = [rng.integers(-9, 9, size).astype(np.float32) for size in (dims, sizes)]
    inputs = [values[0], places.astype(np.int32), values[1]]
    chip = replace(load_chip("v5e"), vmem_bytes=768 << 10)
    made = compile_text(text, chip=chip)
    assert any("streamed" in kernel.note for kernel in made.program.kernels.values())
    (got,) = run_compiled(made, inputs, machine).outputs
    assert np.array_equal(got, expected(text, inputs)[0])
