"""Each opcode with a rule of its own: one result, and the ways in which operands do not fit."""

from __future__ import annotations

import pytest

from compiler.diagnostics import CompileError
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import is_compatible
from compiler.hlo.shape_inference import infer_instruction_shape, infer_shape
from compiler.hlo.verifier import verify

HELPERS = """
sum { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] add(a, b) }
sum2 { a = f32[] parameter(0) b = s32[] parameter(1) c = f32[] parameter(2) d = s32[] parameter(3)
       e = f32[] add(a, c) f = s32[] add(b, d) t = (f32[], s32[]) tuple(e, f) }
less { a = f32[] parameter(0) b = f32[] parameter(1) c = pred[] compare(a, b), direction=LT }
half { a = f32[4,6] parameter(0) b = f32[4,6] negate(a) }
"""

PARAMETERS = {
    "x": "f32[4,6]", "y": "f32[6,5]", "i": "s32[]", "k": "f32[]", "p": "pred[4,6]", "n": "s32[4,6]",
    "v": "f32[4]", "u": "u32[2]", "c": "c64[4,6]", "b": "bf16[4,6]", "sq": "f32[2,3,3]",
    "im": "f32[2,8,8,4]", "ke": "f32[3,3,2,6]", "ids": "s32[3,1]", "s": "(f32[4,6], s32[])",
    "tk": "token[]", "g": "s32[2]", "r3": "f32[2,6,5]", "w": "f32[8,6]",
}  # fmt: skip

GOOD = [
    "f32[4,6] abs(c)",
    "f32[4,6] real(c)",
    "pred[4,6] is-finite(x)",
    "c64[4,6] complex(x, x)",
    "pred[4,6] compare(x, x), direction=GE",
    "f32[4,6] clamp(k, x, k)",
    "f32[4,6] select(p, x, x)",
    "bf16[4,6] convert(x)",
    "u16[4,6,2] bitcast-convert(x)",
    "f32[24] bitcast(x)",
    "f32[2,4,6] broadcast(x), dimensions={1,2}",
    "f32[8,6] concatenate(x, x), dimensions={0}",
    "s32[] get-dimension-size(x), dimensions={1}",
    "f32[<=4,6] set-dimension-size(x, i), dimensions={0}",
    "f32[5,11] pad(x, k), padding=1_0_0x0_0_1",
    "f32[3,6] pad(x, k), padding=-1_0_0x0_0_0",
    "f32[2,3] slice(x), slice={[0:4:2], [3:6]}",
    "f32[6,4] transpose(x), dimensions={1,0}",
    "f32[2,6] dynamic-slice(x, i, i), dynamic_slice_sizes={2,6}",
    "f32[3,6] gather(x, ids), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
    " index_vector_dim=1, slice_sizes={1,6}",
    "f32[4,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "f32[4,2,5] dot(x, r3), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "f32[4,5] ragged-dot(x, r3, g), lhs_contracting_dims={1}, rhs_contracting_dims={1},"
    " lhs_ragged_dims={0}, rhs_group_dims={0}",
    "f32[2,4,4,6] convolution(im, ke), window={size=3x3 stride=2x2 pad=1_1x1_1},"
    " dim_labels=b01f_01io->b01f, feature_group_count=2",
    "f32[4] reduce(x, k), dimensions={1}, to_apply=sum",
    "(f32[6], s32[6]) reduce(x, n, k, i), dimensions={0}, to_apply=sum2",
    "f32[2,6] reduce-window(x, k), window={size=2x1 stride=2x1}, to_apply=sum",
    "f32[8,6] select-and-scatter(w, x, k), window={size=2x1 stride=2x1}, select=less, scatter=sum",
    "f32[4,6] sort(x), dimensions={1}, to_apply=less",
    "(f32[4,2], s32[4,2]) topk(x), k=2, largest=true",
    "f32[2,3,3] cholesky(sq), lower=true",
    "f32[2,3,3] triangular-solve(sq, sq), left_side=true",
    "c64[4,4] fft(x), fft_type=RFFT, fft_length={6}",
    "f32[4,10] fft(c), fft_type=IRFFT, fft_length={10}",
    "(f32[4,6], f32[4], f32[4]) batch-norm-training(x, v, v), epsilon=0.1, feature_index=0",
    "(u32[2], u32[7]) rng-bit-generator(u), algorithm=rng_three_fry",
    "s32[] get-tuple-element(s), index=1",
    "f32[4,6] call(x), to_apply=half",
    "token[] after-all(tk, tk)",
    "token[] after-all(tk, x)",
    "f32[8,6] all-gather(x), dimensions={0}, replica_groups={{0,1}}",
    "f32[2,6] reduce-scatter(x), dimensions={0}, replica_groups=[1,2]<=[2], to_apply=sum",
    "f32[4,6] all-reduce(x), replica_groups={}, to_apply=sum",
    "f32[4,6] all-to-all(x), dimensions={0}, replica_groups={{0,1}}",
    "u32[] partition-id()",
]

BAD = {
    "f32[4,6] not(x)": "want an integer type or pred",
    "f32[4,6] floor(n)": "want a float type",
    "f32[4,6] add(x, b)": "element types f32 and bf16",
    "pred[4,6] compare(x, x), direction=UP": "direction=UP",
    "f32[4,6] clamp(v, x, k)": "want a scalar or",
    "f32[4,6] select(x, x, x)": "want pred",
    "f32[4,6] select(p, x, v)": "operands 1 and 2",
    "u64[4,6] bitcast-convert(x)": "last dimension of 2",
    "f32[25] bitcast(x)": "bits",
    "f32[2,4,6] broadcast(x), dimensions={0,2}": "operand dimension 0 has size 4",
    "f32[2,4,6] broadcast(x), dimensions={1}": "want 2",
    "f32[2,4,6] broadcast(x), dimensions={1,1}": "distinct",
    "f32[4,12] concatenate(x, y), dimensions={1}": "differ outside of 1",
    "f32[5] reshape(x)": "24 elements",
    "f32[3] iota(), iota_dimension=1": "iota_dimension=1",
    "f32[4,6] pad(x, v), padding=0_0x0_0": "want a scalar",
    "f32[4,6] pad(x, k), padding=0_0": "want padding",
    "f32[4,6] slice(x), slice={[0:5], [0:6]}": "not inside",
    "f32[6,4] transpose(x), dimensions={1}": "permutation",
    "f32[2,6] dynamic-slice(x, i), dynamic_slice_sizes={2,6}": "want 2 start indices",
    "f32[5,6] dynamic-slice(x, i, i), dynamic_slice_sizes={5,6}": "do not fit",
    "f32[4,6] dynamic-update-slice(x, y, i, i)": "does not fit",
    "f32[3,6] gather(x, ids), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0,1},"
    " index_vector_dim=1, slice_sizes={1,6}": "start_index_map",
    "f32[4,6] scatter(x, ids, v), update_window_dims={}, inserted_window_dims={0},"
    " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum": "update_window_dims",
    "f32[4,5] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}": "have sizes",
    "f32[2,4,4,6] convolution(im, ke), window={size=3x3}, dim_labels=b01f_01io->b01f": "features",
    "f32[4] reduce(x, v), dimensions={1}, to_apply=sum": "want a scalar",
    "f32[4] reduce(x, k), dimensions={1}, to_apply=half": "takes 1 parameters",
    "f32[4] reduce(x, k), dimensions={1}": "want attribute to_apply",
    "f32[2,6] reduce-window(x, k), window={size=2}, to_apply=sum": "window of 2",
    "f32[4,6] cholesky(x)": "square",
    "c64[4,4] fft(n), fft_type=RFFT, fft_length={6}": "want f32 or f64",
    "(f32[4,9], s32[4,9]) topk(x), k=9": "out of range",
    "s32[] get-tuple-element(s), index=2": "index 2 of a tuple of 2",
    "s32[] get-tuple-element(x), index=0": "want a tuple",
    "f32[4,6] call(y), to_apply=half": "parameter 0 of %half",
    "f32[4,6] while(x), condition=half, body=half": "condition returns",
    "f32[4] rng(k, k, v), distribution=rng_uniform": "takes 2 operands",
    "f32[4] rng(k, v), distribution=rng_uniform": "scalars",
    "f32[1,6] reduce-scatter(x), dimensions={0}, replica_groups={{0,1,2}}, to_apply=sum": "divide",
}


def _result(expression: str) -> tuple[object, object]:
    """The declared and the inferred shape of one instruction over the parameters above."""
    lines = [f"{n} = {s} parameter({i})" for i, (n, s) in enumerate(PARAMETERS.items())]
    body = "\n".join([*lines, f"ROOT result = {expression}"])
    instr = parse_module(f"{HELPERS}\nENTRY e {{ {body} }}").entry.root_instruction
    inferred = infer_instruction_shape(instr)
    assert is_compatible(inferred, instr.shape), f"{inferred} is not {instr.shape}"
    return instr.shape, inferred


@pytest.mark.parametrize("expression", GOOD)
def test_result(expression: str) -> None:
    _result(expression)


@pytest.mark.parametrize("expression", BAD)
def test_refusal(expression: str) -> None:
    with pytest.raises(CompileError, match=BAD[expression].replace("[", r"\[")):
        _result(expression)


def test_unknown_opcodes_and_operand_counts_are_refused() -> None:
    with pytest.raises(CompileError, match="unknown opcode `plus`"):
        infer_shape("plus", [])
    with pytest.raises(CompileError, match="add takes 2 operands, found 0"):
        infer_shape("add", [])


def test_open_results_must_be_declared() -> None:
    with pytest.raises(CompileError, match="must be given"):
        infer_shape("custom-call", [])


def test_half_a_spectrum_of_nothing_has_one_place() -> None:
    """What JAX makes of `irfft` along a dimension of one element."""
    text = """HloModule m
    ENTRY e { x = c64[3,1] parameter(0)
      ROOT r = f32[3,0] fft(x), fft_type=IRFFT, fft_length={0} }"""
    module = parse_module(text, "m.hlo")
    verify(module)
    assert module.entry.root_instruction.array.dims == (3, 0)
