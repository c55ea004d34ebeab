"""Every family of operations under random meshes and shardings, against one device."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from benchmarks.fuzz.annotations import COUNTS, Gspmd, annotate
from benchmarks.fuzz.inputs import inputs_for
from benchmarks.fuzz.sharded import cut_arrays, join_arrays
from compiler.hlo.evaluator import evaluate, evaluate_devices
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from compiler.partitioner.partitioner import HANDLERS, partition_module
from compiler.passes.context import PassContext
from compiler.passes.expanders.global_forms import rewrite_global_forms
from compiler.passes.expanders.simple_expansions import COMPOSED
from compiler.sharding.op_rules import NO_RULE
from tpu_sim.isa import chips

SCALAR = "{ x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] %s(x, y) }"
REDUCERS = "\n".join(f"{name} {SCALAR % name}" for name in ("add", "maximum", "multiply"))
COMPUTATIONS = (
    REDUCERS
    + """
ge { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = pred[] compare(x, y), direction=GE }
lt { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = pred[] compare(x, y), direction=LT }
gt_u2 { x = u2[] parameter(0) y = u2[] parameter(1) ROOT r = pred[] compare(x, y), direction=GT }
minimum_u2 { x = u2[] parameter(0) y = u2[] parameter(1) ROOT r = u2[] minimum(x, y) }
set { x = f32[] parameter(0) ROOT y = f32[] parameter(1) }
largest { x = f32[] parameter(0) i = s32[] parameter(1) y = f32[] parameter(2)
  j = s32[] parameter(3) c = pred[] compare(x, y), direction=GE v = f32[] select(c, x, y)
  k = s32[] select(c, i, j) ROOT t = (f32[], s32[]) tuple(v, k) }
both { a = f32[] parameter(0) x = s32[] parameter(1) b = f32[] parameter(2)
  y = s32[] parameter(3) s = f32[] add(a, b) m = s32[] maximum(x, y)
  ROOT t = (f32[], s32[]) tuple(s, m) }
saturated { x = f32[] parameter(0) y = f32[] parameter(1) s = f32[] add(x, y)
  n = f32[] constant(9) ROOT r = f32[] minimum(s, n) }
condition { s = (s32[], f32[8,6]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3) ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[8,6]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[8,6] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one)
  z = f32[] constant(0) q = f32[6] reduce(x, z), dimensions={0}, to_apply=add
  b = f32[8,6] broadcast(q), dimensions={1} y = f32[8,6] subtract(x, b)
  ROOT t = (s32[], f32[8,6]) tuple(j, y) }
first { x = f32[8,6] parameter(0) ROOT y = f32[8,6] sine(x) }
second { x = f32[8,6] parameter(0) ROOT y = f32[8,6] reverse(x), dimensions={0} }
"""
)

BODIES = {
    "update at a place of a narrow type": (
        "a = f32[300] parameter(0) b = f32[3] parameter(1) i = s8[] constant(100) ROOT r = f32[300] "
        "dynamic-update-slice(a, b, i)"
    ),
    "elementwise": (
        "a = f32[9,6] parameter(0) b = f32[9,6] parameter(1) c = f32[9,6] multiply(a, b) ROOT r = "
        "f32[9,6] tanh(c)"
    ),
    "broadcast": "a = f32[6] parameter(0) ROOT r = f32[8,6,4] broadcast(a), dimensions={1}",
    "iota": "ROOT r = bf16[10,300] iota(), iota_dimension=1",
    "transpose": "a = f32[6,8,4] parameter(0) ROOT r = f32[4,6,8] transpose(a), dimensions={2,0,1}",
    "merge": "a = f32[6,8,4] parameter(0) ROOT r = f32[48,4] reshape(a)",
    "split": "a = f32[48,4] parameter(0) ROOT r = f32[6,8,2,2] reshape(a)",
    "dot": (
        "a = f32[3,8,10] parameter(0) b = f32[3,10,6] parameter(1) ROOT r = f32[3,8,6] dot(a, b), "
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    ),
    "reduce": (
        "a = f32[9,6,4] parameter(0) z = f32[] constant(2) ROOT r = f32[6] reduce(a, z), "
        "dimensions={0,2}, to_apply=add"
    ),
    "pairs from any start": (
        "a = f32[9,6] parameter(0) i = s32[9,6] parameter(1) z = f32[] parameter(2) y = s32[] "
        "constant(-3) ROOT r = (f32[6], s32[6]) reduce(a, i, z, y), dimensions={0}, to_apply=both"
    ),
    "saturated from any start": (
        "a = f32[9,6] parameter(0) z = f32[] constant(2) ROOT r = f32[6] reduce(a, z), "
        "dimensions={0}, to_apply=saturated"
    ),
    "windows from any start": (
        "a = f32[9,6] parameter(0) z = f32[] constant(-2) ROOT r = f32[9,6] reduce-window(a, z), "
        "window={size=3x1 pad=0_2x0_0}, to_apply=multiply"
    ),
    "gradient of windows that reach back": (
        "a = f32[5,8] parameter(0) s = f32[5,8] parameter(1) z = f32[] constant(-2) ROOT r = "
        "f32[5,8] select-and-scatter(a, s, z), window={size=1x8 pad=0_0x7_0}, select=ge, "
        "scatter=add"
    ),
    "rows of one element that are moved": (
        "a = f32[1,8,8,1] parameter(0) k = f32[1,1,1,1] parameter(1) ROOT r = f32[1,8,8,1] "
        "convolution(a, k), window={size=1x1 pad=1_-1x0_0}, dim_labels=b01f_01io->b01f"
    ),
    "a sum in another type": (
        "a = f16[9,6] parameter(0) z = f32[] constant(2) ROOT r = f32[6] reduce(a, z), "
        "dimensions={0}, to_apply=add"
    ),
    "product": (
        "a = f32[9,6] parameter(0) z = f32[] parameter(1) ROOT r = f32[6] reduce(a, z), "
        "dimensions={0}, to_apply=multiply"
    ),
    "argmax": (
        "a = f32[9,6] parameter(0) i = s32[9,6] iota(), iota_dimension=0 n = f32[] constant(-inf) z ="
        " s32[] constant(0) ROOT r = (f32[6], s32[6]) reduce(a, i, n, z), dimensions={0}, "
        "to_apply=largest"
    ),
    "convolution": (
        "a = f32[4,10,8,4] parameter(0) k = f32[3,3,4,6] parameter(1) ROOT r = f32[4,5,8,6] "
        "convolution(a, k), window={size=3x3 stride=2x1 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    ),
    "depthwise": (
        "a = f32[4,10,8] parameter(0) k = f32[3,1,16] parameter(1) ROOT r = f32[4,8,16] "
        "convolution(a, k), window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=8"
    ),
    "transposed convolution": (
        "a = f32[4,8,4] parameter(0) k = f32[3,4,6] parameter(1) ROOT r = f32[4,16,6] convolution(a, "
        "k), window={size=3 pad=1_2 lhs_dilate=2}, dim_labels=b0f_0io->b0f"
    ),
    "pooling": (
        "a = f32[16,6] parameter(0) z = f32[] constant(-inf) ROOT r = f32[16,3] reduce-window(a, z), "
        "window={size=4x2 stride=1x2 pad=2_1x0_0}, to_apply=maximum"
    ),
    "cumulative sum": (
        "a = f32[12,6] parameter(0) z = f32[] constant(0) ROOT r = f32[12,6] reduce-window(a, z), "
        "window={size=12x1 pad=11_0x0_0}, to_apply=add"
    ),
    "pooling gradient": (
        "a = f32[16,6] parameter(0) s = f32[8,6] parameter(1) z = f32[] constant(0) ROOT r = "
        "f32[16,6] select-and-scatter(a, s, z), window={size=3x1 stride=2x1 pad=1_0x0_0}, select=ge, "
        "scatter=add"
    ),
    "pooling gradient of numbers that are often the least there is": (
        "a = u2[12,9] parameter(0) s = u2[12,4] parameter(1) z = u2[] constant(3) ROOT r = "
        "u2[12,9] select-and-scatter(a, s, z), window={size=1x2 stride=1x3 pad=0_0x1_1}, "
        "select=gt_u2, scatter=minimum_u2"
    ),
    "gather": (
        "a = f32[10,6] parameter(0) i = s32[7,1] parameter(1) ROOT r = f32[7,6] gather(a, i), "
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,6}"
    ),
    "gather of points": (
        "a = f32[10,6] parameter(0) i = s32[2,8] parameter(1) ROOT r = f32[8] gather(a, i), "
        "offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={1,0}, index_vector_dim=0, "
        "slice_sizes={1,1}"
    ),
    "scatter": (
        "a = f32[10,6] parameter(0) i = s32[7,1] parameter(1) u = f32[7,6] parameter(2) ROOT r = "
        "f32[10,6] scatter(a, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
    ),
    "scatter of maxima": (
        "a = f32[10,6] parameter(0) i = s32[7] parameter(1) u = f32[7,6] parameter(2) ROOT r = "
        "f32[10,6] scatter(a, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=maximum"
    ),
    "gather of windows": (
        "a = f32[10,6] parameter(0) i = s32[7,1] parameter(1) ROOT r = f32[7,3,6] gather(a, i), "
        "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={3,6}"
    ),
    "gather of kept rows": (
        "a = f32[10,6] parameter(0) i = s32[7,1] parameter(1) ROOT r = f32[7,1,6] gather(a, i), "
        "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,6}"
    ),
    "scatter of kept rows": (
        "a = f32[8,10,6] parameter(0) i = s32[8,2] parameter(1) u = f32[8,1,6] parameter(2) ROOT r "
        "= f32[8,10,6] scatter(a, i, u), update_window_dims={1,2}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={1,2}, input_batching_dims={0}, "
        "scatter_indices_batching_dims={0}, index_vector_dim=1, to_apply=set"
    ),
    "gradient of a kernel": (
        "a = f32[2,16,6,3] parameter(0) g = f32[2,8,6,4] parameter(1) ROOT r = f32[3,3,3,4] "
        "convolution(a, g), window={size=8x6 pad=1_0x1_1 rhs_dilate=2x1}, "
        "dim_labels=f01b_i01o->01bf"
    ),
    "factors of a batch": (
        "a = f32[8,3,3] parameter(0) ROOT r = (f32[8,3,3], s32[8]) custom-call(a), "
        'custom_call_target="lapack_spotrf_ffi", backend_config={uplo = 76 : ui8}, '
        'frontend_attributes={num_batch_dims="1"}'
    ),
    "dynamic slice": (
        "a = f32[10,6] parameter(0) i = s32[] parameter(1) j = s32[] parameter(2) ROOT r = f32[3,6] "
        "dynamic-slice(a, i, j), dynamic_slice_sizes={3,6}"
    ),
    "dynamic row": (
        "a = f32[10,6] parameter(0) i = s32[] parameter(1) j = s32[] parameter(2) ROOT r = f32[1,1] "
        "dynamic-slice(a, i, j), dynamic_slice_sizes={1,1}"
    ),
    "dynamic update": (
        "a = f32[10,8] parameter(0) u = f32[3,1] parameter(1) i = s32[] parameter(2) j = s32[] "
        "parameter(3) ROOT r = f32[10,8] dynamic-update-slice(a, u, i, j)"
    ),
    "slice": "a = f32[20,6] parameter(0) ROOT r = f32[5,3] slice(a), slice={[2:17:3],[3:6]}",
    "pad": (
        "a = f32[9,6] parameter(0) z = f32[] parameter(1) ROOT r = f32[20,5] pad(a, z), "
        "padding=1_2_1x-2_1"
    ),
    "reverse": "a = f32[9,6] parameter(0) ROOT r = f32[9,6] reverse(a), dimensions={0,1}",
    "concatenate": (
        "a = f32[5,6] parameter(0) b = f32[2,6] parameter(1) c = f32[9,6] parameter(2) ROOT r = "
        "f32[16,6] concatenate(a, b, c), dimensions={0}"
    ),
    "roll": (
        "a = f32[16,6] parameter(0) b = f32[13,6] slice(a), slice={[3:16],[0:6]} c = f32[3,6] "
        "slice(a), slice={[0:3],[0:6]} ROOT r = f32[16,6] concatenate(b, c), dimensions={0}"
    ),
    "scaled product": (
        "a = bf16[8,64] parameter(0) b = bf16[6,64] parameter(1) s = bf16[8,2] parameter(2) t = "
        "bf16[6,2] parameter(3) ROOT r = f32[8,6] scaled-dot(a, b, s, t), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={1}"
    ),
    "sort": (
        "a = f32[9,6] parameter(0) ROOT r = f32[9,6] sort(a), dimensions={1}, is_stable=true, "
        "to_apply=lt"
    ),
    "solve": (
        "a = f32[4,3,3] parameter(0) b = f32[4,3,2] parameter(1) ROOT r = f32[4,3,2] triangular-"
        "solve(a, b), left_side=true, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE"
    ),
    "fourier": "a = c64[6,8] parameter(0) ROOT r = c64[6,8] fft(a), fft_type=FFT, fft_length={8}",
    "random bits": (
        "k = u64[2] parameter(0) ROOT r = (u64[2], u32[12,6]) rng-bit-generator(k), "
        "algorithm=rng_three_fry"
    ),
    "loop": (
        "a = f32[8,6] parameter(0) z = s32[] constant(0) t = (s32[], f32[8,6]) tuple(z, a) ROOT w = "
        "(s32[], f32[8,6]) while(t), condition=condition, body=body"
    ),
    "branches": (
        "p = pred[] parameter(0) a = f32[8,6] parameter(1) b = f32[8,6] parameter(2) ROOT r = "
        "f32[8,6] conditional(p, a, b), true_computation=first, false_computation=second"
    ),
    "bits": "a = f32[6,8] parameter(0) ROOT r = u8[6,8,4] bitcast-convert(a)",
}


@pytest.mark.parametrize("name", BODIES)
def test_devices_compute_what_one_computes(name: str) -> None:
    text = f"{COMPUTATIONS}\nENTRY main {{ {BODIES[name]} }}"
    start = zlib.crc32(name.encode()) % 1000
    for seed in range(start, start + 8):
        module = parse_module(text)
        inputs = inputs_for(module, seed)
        want = evaluate(module, inputs, "highest")
        rng = random.Random(seed)
        count = rng.choice(COUNTS)
        annotate(module, Gspmd(module, count, rng))
        if any(i.opcode in COMPOSED.keys() - HANDLERS.keys() for i in module.entry):
            rewrite_global_forms(module, PassContext(chips.load_chip("v5e")))
        assert partition_module(module, PassContext(chips.load_chip("v5e")))
        verify(module)
        rows = evaluate_devices(module, cut_arrays(module, inputs, count), "highest")
        for a, b in zip(join_arrays(module, rows, [w.shape for w in want]), want, strict=True):
            if b.dtype.kind in "iub":
                np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}")
            else:
                scale = np.nanmax(np.abs(np.where(np.isfinite(b), b, 0).astype(complex)), initial=0)
                np.testing.assert_allclose(
                    a.astype(complex), b.astype(complex), 1e-5, 1e-5 * scale, err_msg=f"seed {seed}"
                )


def test_every_opcode_is_partitioned_or_has_a_reason() -> None:
    missing = OPCODES.keys() - HANDLERS.keys() - NO_RULE.keys() - COMPOSED.keys()
    assert not missing, "a handler in compiler/partitioner/rules, or a reason in NO_RULE"
