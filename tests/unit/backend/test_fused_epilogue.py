"""Elementwise users of a dot are computed from the popped registers."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.analysis.kernel_vmem import held_rows
from compiler.backend.dot import emit_matmul_stage
from compiler.backend.fused_epilogue import fused_epilogue
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, whole_array
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.dtypes import BF16, F32, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.finalize import finalize_kernel
from compiler.llo.ir import LloKernel
from tests.support.kernel_runs import bf16_rows, f32_matrix, f32_rows, run_kernel, window_rows
from tpu_sim.isa.chips import load_chip

CHIP = load_chip("v5e")

BIAS_RELU = """
  bias = f32[{n}] parameter(2)
  rest = f32[{m},{n}] parameter(3)
  wide = f32[{m},{n}] broadcast(bias), dimensions={{1}}
  sum = f32[{m},{n}] add(dot, wide)
  zero = f32[] constant(0)
  zeros = f32[{m},{n}] broadcast(zero), dimensions={{}}
  relu = f32[{m},{n}] maximum(sum, zeros)
  ROOT out = {dtype}[{m},{n}] {last}
"""


def module_text(m: int, k: int, n: int, tail: str) -> str:
    return (
        "HloModule t\nENTRY e {\n"
        f"  lhs = bf16[{m},{k}] parameter(0)\n  rhs = bf16[{k},{n}] parameter(1)\n"
        f"  dot = f32[{m},{n}] dot(lhs, rhs), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n" + tail.strip("\n") + "\n}\n"
    )


class Fixture:
    """The fusion's parameters in windows, its dot in scratch, its root in an output window."""

    def __init__(self, text: str) -> None:
        self.b = LloBuilder("k", CHIP)
        entry = parse_module(text).entry
        self.parameters = list(entry.parameters)
        self.root = entry.root_instruction
        self.dot = next(node for node in entry if node.opcode == "dot")
        self.arrays = {node: self.array(node) for node in self.parameters}
        self.scratch = self.array(self.dot)
        self.out = self.array(self.root)
        self.emitter = VectorEmitter(self.b, dict(self.arrays), {}, {})

    def array(self, node: HloInstruction) -> VmemArray:
        shape = ArrayShape(node.array.dtype, node.array.dims)
        window = self.b.window(node.name, held_rows(shape, shape.dims))
        return whole_array(shape, window, guard=GUARD_ROWS)

    def fused_kernel(self) -> LloKernel | None:
        epilogue = fused_epilogue(self.emitter, self.dot, [(self.root, self.out)], self.scratch)
        if epilogue is None:
            return None
        lhs, rhs = (self.arrays[node] for node in self.parameters[:2])
        emit_matmul_stage(self.b, CHIP, lhs, rhs, False, self.scratch, epilogue=epilogue)
        return self.b.finish()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(16, 128, 128), (40, 256, 256), (8, 640, 128), (288, 256, 256), (288, 1024, 128)],
)
def test_bias_and_relu(m: int, k: int, n: int, dtype: str) -> None:
    last = "add(relu, rest)" if dtype == "f32" else "convert(relu)"
    tail = BIAS_RELU.format(m=m, n=n, dtype=dtype, last=last)
    fixture = Fixture(module_text(m, k, n, tail))
    llo = fixture.fused_kernel()
    assert llo is not None
    kernel = finalize_kernel(llo, CHIP, check=True)
    rng = np.random.default_rng(m + k + n)
    lhs = rng.integers(-2, 3, (m, k)).astype(np.float32)
    rhs = rng.integers(-2, 3, (k, n)).astype(np.float32)
    bias = rng.integers(-9, 10, n).astype(np.float32)
    rest = rng.integers(-9, 10, (m, n)).astype(np.float32)
    vmem = {
        0: bf16_rows(lhs),
        1: bf16_rows(rhs),
        2: np.pad(bias, (0, -n % 1024)).reshape(-1, 128).view(np.uint32),
        3: f32_rows(rest),
    }
    state = run_kernel(kernel, CHIP, vmem)
    want = np.maximum(lhs @ rhs + bias, 0)
    got = window_rows(state, kernel, fixture.out.window)
    if dtype == "f32":
        np.testing.assert_array_equal(f32_matrix(got, m, n), want + rest)
    else:
        whole = m // 16 * (n // 128) * 8
        np.testing.assert_array_equal(got[:whole], bf16_rows(want)[:whole])


@pytest.mark.parametrize(
    "tail",
    [
        "  ROOT out = f32[128,128] transpose(dot), dimensions={1,0}",
        "  ROOT out = f32[128,128] reverse(dot), dimensions={0}",
        "  turned = f32[128,128] transpose(dot), dimensions={1,0}\n"
        "  ROOT out = f32[128,128] add(dot, turned)",
        "  ROOT out = f32[128,64] slice(dot), slice={[0:128],[0:64]}",
    ],
)
def test_what_moves_the_index_is_not_fused(tail: str) -> None:
    assert Fixture(module_text(128, 128, 128, tail)).fused_kernel() is None


def test_long_epilogues_are_not_fused() -> None:
    lines = ["  v0 = f32[16,128] cosine(dot)", "  ROOT out = f32[16,128] add(v0, dot)"]
    assert Fixture(module_text(16, 128, 128, "\n".join(lines))).fused_kernel() is None


def test_batches_are_addressed_by_their_majors() -> None:
    fixture = Fixture(module_text(16, 128, 128, "  ROOT out = f32[16,128] negate(dot)"))
    b = fixture.b

    def held(name: str, dtype: DType, dims: tuple[int, ...]) -> VmemArray:
        shape = ArrayShape(dtype, dims)
        window = b.window(name, held_rows(shape, dims))
        return whole_array(shape, window, guard=GUARD_ROWS)

    dot = HloInstruction(
        "parameter", "batched", ArrayShape(F32, (3, 2, 16, 128)), (), {"parameter_number": 0}
    )
    root = HloInstruction("negate", "root", dot.array, (dot,), {})
    scratch, out = held("all", F32, dot.array.dims), held("outs", F32, dot.array.dims)
    lhs, rhs = held("lhs", BF16, dot.array.dims), held("rhs", BF16, (3, 2, 128, 128))
    epilogue = fused_epilogue(fixture.emitter, dot, [(root, out)], scratch)
    assert epilogue is not None
    emit_matmul_stage(b, CHIP, lhs, rhs, False, scratch, epilogue=epilogue)
    kernel = finalize_kernel(b.finish(), CHIP, check=True)
    left = np.concatenate([bf16_rows(np.full((16, 128), number)) for number in range(6)])
    right = np.concatenate([bf16_rows(np.eye(128))] * 6)
    state = run_kernel(kernel, CHIP, {lhs.window: left, rhs.window: right})
    rows = window_rows(state, kernel, out.window)
    for number in range(6):
        got = f32_matrix(rows[16 * number :], 16, 128)
        np.testing.assert_array_equal(got, np.full((16, 128), -number))
