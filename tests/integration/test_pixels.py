"""Images of few channels, looked up and cut at places that are data: the channels leave the lanes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.run_hlo import compile_text, expected, run_compiled

WARP = """HloModule m
ENTRY e {
  x = f32[4,64,72,3] parameter(0)
  i = s32[3,40000] parameter(1)
  w = f32[40000] parameter(2)
  y = f32[4,64,72,3] add(x, x)
  g = f32[40000,3] gather(y, i), offset_dims={1}, collapsed_slice_dims={0,1,2}, start_index_map={1,2,0},
    index_vector_dim=0, slice_sizes={1,1,1,3}
  v = f32[40000,3] broadcast(w), dimensions={0}
  ROOT r = f32[40000,3] multiply(g, v)
}
"""
CROP = """HloModule m
ENTRY e {
  x = u8[12,180,190,3] parameter(0)
  i = s32[12,3] parameter(1)
  g = u8[12,130,150,3] gather(x, i), offset_dims={1,2,3}, collapsed_slice_dims={0}, start_index_map={1,2,0},
    index_vector_dim=1, slice_sizes={1,130,150,3}
  f = f32[12,130,150,3] convert(g)
  s = f32[12,130,150,3] add(f, f)
  t = f32[12,130,150,3] sqrt(s)
  ROOT r = f32[12,130,150,3] multiply(t, f)
}
"""


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_pixels_are_looked_up_along_their_numbers(machine: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 64, 72, 3)).astype(np.float32)
    i = np.stack([rng.integers(-3, n + 3, 40000) for n in (64, 72, 4)]).astype(np.int32)
    inputs = [x, i, rng.standard_normal(40000).astype(np.float32)]
    made = compile_text(WARP)
    assert "f32[3,40000] gather(" in made.hlo_text()
    (got,) = run_compiled(made, inputs, machine).outputs
    assert np.array_equal(got, expected(WARP, inputs)[0])


def test_windows_of_images_are_cut_along_their_rows() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (12, 180, 190, 3)).astype(np.uint8)
    i = np.stack([rng.integers(-9, 60, 12), rng.integers(-9, 60, 12), np.arange(12)], axis=1)
    inputs = [x, i.astype(np.int32)]
    made = compile_text(CROP)
    line = next(line for line in made.hlo_text().splitlines() if " gather(" in line)
    assert ",150] gather" in line
    (got,) = run_compiled(made, inputs, "llvm").outputs
    want = expected(CROP, inputs)[0]
    assert np.allclose(got, want, rtol=1e-6)
