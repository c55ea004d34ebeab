"""Fourier transforms as `pair-fft`, few or many lines, of any length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from compiler.diagnostics import UnsupportedError
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.pipeline import run_pipeline
from tests.support.expansions import Array, assert_close, expanded, on_machine, reference
from tests.support.run_hlo import compile_text
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
ENTRY e {{
  x = {operand} parameter(0)
  ROOT f = {result} fft(x), fft_type={kind}, fft_length={{{lengths}}}
}}
"""


def _case(kind: str, batch: int, *lengths: int) -> tuple[str, Array]:
    full = ",".join(str(n) for n in (batch, *lengths))
    half = ",".join(str(n) for n in (batch, *lengths[:-1], lengths[-1] // 2 + 1))
    operand = {"RFFT": f"f32[{full}]", "IRFFT": f"c64[{half}]"}.get(kind, f"c64[{full}]")
    result = {"RFFT": f"c64[{half}]", "IRFFT": f"f32[{full}]"}.get(kind, f"c64[{full}]")
    text = TEXT.format(
        operand=operand, result=result, kind=kind, lengths=",".join(map(str, lengths))
    )
    dims = [int(n) for n in (half if kind == "IRFFT" else full).split(",")]
    rng = np.random.default_rng(len(dims) + dims[-1])
    if kind == "RFFT":
        return text, rng.standard_normal(dims).astype(np.float32)
    value = rng.standard_normal(dims) + 1j * rng.standard_normal(dims)
    return text, value.astype(np.complex64)


KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 2, 3, 97, 128, 131, 200, 521, 1042, 8192])
def test_one_dimension(kind: str, length: int) -> None:
    text, x = _case(kind, 3, length)
    assert_close(reference(text, [x]), expanded(text, [x], ["fft-expander"], ["fft"]), 2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_several_dimensions(kind: str) -> None:
    text, x = _case(kind, 2, 6, 5, 10)
    assert_close(reference(text, [x]), expanded(text, [x], ["fft-expander"], ["fft"]), 2e-6)


@pytest.mark.parametrize(
    ("kind", "lengths"),
    [("FFT", (260,)), ("RFFT", (12,)), ("IRFFT", (9,)), ("IFFT", (17,)), ("FFT", (5, 4, 6))],
)
def test_on_the_machine(kind: str, lengths: tuple[int, ...]) -> None:
    text, x = _case(kind, 2, *lengths)
    assert_close(reference(text, [x]), on_machine(text, [x]), 2e-6)


def rows_of_many_sizes(rows: int, n: int) -> npt.NDArray[np.complex64]:
    """Rows from 1e-30 to 1e30, one of zeros, one with a single element."""
    rng = np.random.default_rng(n)
    z = rng.standard_normal((rows, n)) + 1j * rng.standard_normal((rows, n))
    z *= 10.0 ** np.linspace(-30, 30, rows)[:, None]
    z[1], z[2, 1:] = 0, 0
    return z.astype(np.complex64)


@pytest.mark.parametrize("n", [2, 17, 96, 127, 1024, 4100])
def test_errors_are_those_of_a_good_transform_in_f32(n: int) -> None:
    """About a third of a rounding each time the length doubles, whatever the row's magnitude."""
    z = rows_of_many_sizes(9, n)
    text = TEXT.format(operand=f"c64[9,{n}]", result=f"c64[9,{n}]", kind="FFT", lengths=n)
    (got,) = on_machine(text, [z])
    want = np.fft.fft(z.astype(np.complex128))
    scale = np.sqrt(np.mean(np.abs(want) ** 2, axis=1, keepdims=True))
    error = np.abs(got - want) / np.where(scale == 0, 1, scale)
    doublings = np.log2(n) + (3 if n in (17, 127, 4100) else 0)  # a convolution of twice the length
    assert np.max(error) < (2 + 1.5 * doublings) * 2.0**-24
    assert np.sqrt(np.mean(error**2)) < (0.4 + 0.3 * doublings) * 2.0**-24


def test_an_infinity_spoils_its_row_only() -> None:
    z = rows_of_many_sizes(4, 34)
    z[3, 2] = np.inf
    text = TEXT.format(operand="c64[4,34]", result="c64[4,34]", kind="FFT", lengths="34")
    with np.errstate(all="ignore"):
        (got,) = on_machine(text, [z])
    assert np.isfinite(got[:3]).all()
    assert not np.isfinite(got[3]).any()


@pytest.mark.parametrize(
    ("dims", "lengths", "kernels"),
    [
        ("1024,1024", "1024,1024", 2),
        ("7,4096", "4096", 1),
        ("1024,5", "5", 1),
        ("8192", "8192", 4),  # cut in two: transforms, factors between, points put in order
    ],
)
def test_few_kernels(dims: str, lengths: str, kernels: int) -> None:
    text = TEXT.format(operand=f"c64[{dims}]", result=f"c64[{dims}]", kind="FFT", lengths=lengths)
    made = [kernel.note for kernel in compile_text(text).program.kernels.values()]
    assert len(set(made)) == kernels, made  # arrays at two places of VMEM have code of their own


def test_a_transform_of_doubles_is_refused() -> None:
    text = TEXT.format(operand="c128[4]", result="c128[4]", kind="FFT", lengths="4")
    with pytest.raises(UnsupportedError, match="convert to f32 or c64"):
        expanded(text, [np.zeros(4, np.complex128)], ["fft-expander"])


def test_parts_that_are_zero_or_unread_are_left_out() -> None:
    """A transform of reals made complex reads one array; where only reals are read it leaves one."""
    text = """HloModule m
ENTRY e {
  x = f32[8,64] parameter(0)
  z = c64[8,64] convert(x)
  f = c64[8,64] fft(z), fft_type=IFFT, fft_length={8,64}
  ROOT r = f32[8,64] real(f)
}
"""
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    assert_close(reference(text, [x]), on_machine(text, [x]), 2e-6)
    module = parse_module(text, "test.hlo")
    run_pipeline(module, load_chip("v5e"), passes=["fft-expander", "algebraic-simplifier", "dce"])
    first, second = (i for i in module.entry if i.opcode == "pair-fft")
    assert len(first.operands) == 2
    assert isinstance(first.shape, TupleShape)
    assert len(second.operands) == 3
    assert isinstance(second.shape, ArrayShape)


@pytest.mark.parametrize("megabytes", [1, 2])
def test_little_vmem(tmp_path: Path, megabytes: int) -> None:
    """Lines that do not fit are cut, sums whose roots do not fit are convolutions."""
    chip = tmp_path / "small.toml"
    size = megabytes << 20
    chip.write_text(
        f'base = "v5e"\nname = "small"\nvmem_bytes = {{ value = {size}, provenance = "assumed" }}\n'
    )
    for length in (1024, 127):
        text, x = _case("FFT", 2, length)
        assert_close(reference(text, [x]), on_machine(text, [x], str(chip)), 2e-6)


def test_a_transform_lies_where_its_operand_did() -> None:
    """Two arrays, the caller's and the result, however many transforms follow each other."""
    shape, attributes = "c64[8,16,256]", "fft_length={16,256}"
    text = (
        f"HloModule m\nENTRY e {{\n  x = {shape} parameter(0)\n"
        f"  f = {shape} fft(x), fft_type=FFT, {attributes}\n"
        f"  ROOT b = {shape} fft(f), fft_type=IFFT, {attributes}\n}}\n"
    )
    _, x = _case("FFT", 8, 16, 256)
    assert 2 * x.nbytes <= compile_text(text).buffers.peak_bytes < 2.2 * x.nbytes
    assert_close([x], on_machine(text, [x]), 2e-6)
