"""pair-fft: butterflies, stages and kernels against exact transforms."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from compiler.analysis.in_place import transform_of
from compiler.analysis.tiled_layout import memory_space
from compiler.backend.fourier.butterflies import Butterfly
from compiler.backend.fourier.stage_loops import StageShape
from compiler.backend.vector.ops import Ops
from compiler.diagnostics import CompileError
from compiler.driver import CompileOptions, compile_module
from compiler.hlo.fourier import is_smooth, root_rows, roots, stages
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import leaves
from compiler.hlo.verifier import verify
from tests.support.run_hlo import compile_text, run_compiled
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.program import HBM, VMEM

F32 = npt.NDArray[np.float32]
TEXT = """HloModule m
ENTRY e {{
  t = f32[{rows},128] parameter(0)
  re = {shape} parameter(1)
  im = {shape} parameter(2)
  ROOT f = {result} pair-fft(t, {parts}), fft_type={kind}, fft_length={{{n}}}, dimensions={{{dim}}}
}}
"""


class _Plain(Ops):
    """The arithmetic on numbers."""

    def __init__(self) -> None:
        pass

    add = staticmethod(lambda a, b: a + b)  # type: ignore[assignment]
    sub = staticmethod(lambda a, b: a - b)  # type: ignore[assignment]
    mul = mul_real = staticmethod(lambda a, b: a * b)  # type: ignore[assignment]
    fma = staticmethod(lambda a, b, c: a * b + c)  # type: ignore[assignment]
    real = staticmethod(lambda k: k)  # type: ignore[assignment]
    negate = staticmethod(lambda a: -a)  # type: ignore[assignment]


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("is_real", [False, True])
@pytest.mark.parametrize("n", range(1, 17))
def test_butterflies(n: int, is_real: bool, sign: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n) + (0 if is_real else 1j * rng.standard_normal(n))
    values = [(v.real, None if is_real else v.imag) for v in x.astype(np.complex128)]
    got = Butterfly(_Plain(), sign).transform(values)
    want = np.fft.fft(x) if sign < 0 else np.fft.ifft(x) * n
    np.testing.assert_allclose([re + 1j * (im or 0) for re, im in got], want, atol=1e-13 * n)


@pytest.mark.parametrize(
    ("n", "radices"),
    [(2, [2]), (30, [6, 5]), (1000, [10, 10, 10]), (1024, [16, 8, 8]), (2197, [13, 13, 13])],
)
def test_stages_are_few_and_even(n: int, radices: list[int]) -> None:
    assert [stage.radix for stage in stages(n)] == radices


def test_what_has_butterflies() -> None:
    assert [n for n in range(1, 40) if not is_smooth(n)] == [17, 19, 23, 29, 31, 34, 37, 38]


def test_eight_butterflies_at_a_time() -> None:
    """The sublanes hold neighbours along the first axis that has eight, else along the longest."""
    first, last = stages(100)
    assert StageShape(first, 1, 104).sublane_axis == 2
    assert StageShape(last, 1, 104).sublane_axis == 1
    (only,) = stages(15)
    assert StageShape(only, 8, 16).sublane_axis == 0
    assert StageShape(only, 3, 16).guard_rows == 5 * 16


def _text(
    dims: tuple[int, int, int], dim: int, kind: str, parts: int, is_half: bool = False
) -> str:
    shape, n = f"f32[{','.join(map(str, dims))}]", dims[dim]
    names = ", ".join(("re", "im")[:parts])
    result = shape if is_half else f"({shape}, {shape})"
    return TEXT.format(
        rows=root_rows(n), shape=shape, parts=names, kind=kind, n=n, dim=dim, result=result
    )


SIZES = pytest.mark.parametrize(
    ("dims", "dim"),
    [
        ((1, 2, 5), 1),
        ((3, 15, 130), 1),  # one stage, sublanes along the units, padded rows
        ((2, 30, 128), 1),  # no axis of eight
        ((1, 100, 300), 1),  # the last eight overlap
        ((1, 1024, 256), 1),
        ((40, 16, 128), 1),  # several steps, the last one overlaps
        ((1, 5, 2), 2),
        ((2, 20, 30), 2),
        ((1, 137, 12), 2),
        ((1, 300, 256), 2),
        ((1, 9, 1000), 2),
        ((2, 17, 130), 1),  # sums
        ((1, 3, 38), 2),
    ],
)


@SIZES
def test_kernels(dims: tuple[int, int, int], dim: int) -> None:
    """Both machines, both directions, complex and real: an error of one rounding a doubling."""
    rng = np.random.default_rng(dims[dim])
    re, im = (rng.standard_normal(dims).astype(np.float32) for _ in range(2))
    for kind, parts in (("FFT", 2), ("IFFT", 2), ("FFT", 1)):
        compiled = compile_text(_text(dims, dim, kind, parts))
        runs = [run_compiled(compiled, [roots(dims[dim]), re, im], m) for m in ("numpy", "llvm")]
        for a, b in zip(runs[0].outputs, runs[1].outputs, strict=True):
            np.testing.assert_array_equal(a, b)
        value = re.astype(np.float64) + (1j * im if parts == 2 else 0)
        want = (np.fft.ifft if kind == "IFFT" else np.fft.fft)(value, axis=dim)
        got = runs[0].outputs[0] + 1j * runs[0].outputs[1]
        error = np.sqrt(np.mean(np.abs(got - want) ** 2) / np.mean(np.abs(want) ** 2))
        assert error < 2.0**-24 * (0.5 + 0.4 * np.log2(dims[dim]))
    half = compile_text(_text(dims, dim, "IFFT", 2, is_half=True))
    (alone,) = run_compiled(half, [roots(dims[dim]), re, im]).outputs
    both = compile_text(_text(dims, dim, "IFFT", 2))
    np.testing.assert_array_equal(alone, run_compiled(both, [roots(dims[dim]), re, im]).outputs[0])


BETWEEN = """HloModule m
ENTRY e {{
  t = f32[{rows},128] parameter(0)
  re = {shape} parameter(1)
  im = {shape} parameter(2)
  a = {shape} add(re, im)
  b = {shape} subtract(re, im)
  f = ({shape}, {shape}) pair-fft(t, a, b), fft_type=FFT, fft_length={{{n}}}, dimensions={{{dim}}}
  fr = {shape} get-tuple-element(f), index=0
  fi = {shape} get-tuple-element(f), index=1
  g = ({shape}, {shape}) pair-fft(t, fr, fi), fft_type=IFFT, fft_length={{{n}}}, dimensions={{{dim}}}
  gr = {shape} get-tuple-element(g), index=0
  gi = {shape} get-tuple-element(g), index=1
  ROOT r = {shape} multiply(gr, gi)
}}
"""


@SIZES
def test_parts_that_stay_in_vmem(dims: tuple[int, int, int], dim: int) -> None:
    """Rows are turned from where they lie, columns copied to blocks; the same bits as through HBM."""
    shape, n = f"f32[{','.join(map(str, dims))}]", dims[dim]
    text = BETWEEN.format(rows=root_rows(n), shape=shape, n=n, dim=dim)
    rng = np.random.default_rng(n)
    inputs = [roots(n), *(rng.standard_normal(dims).astype(np.float32) for _ in range(2))]
    found = []
    for skip in ((), ("vmem-residency",)):
        options = CompileOptions(precision="highest", skip=skip)
        compiled = compile_module(parse_module(text), load_chip("v5e"), options)
        transforms = [i for i in compiled.module.entry if transform_of(i) is not None]
        places = [memory_space(leaf) for i in transforms for leaf in leaves(i.shape)]
        assert places == [HBM if skip else VMEM] * 4
        runs = [run_compiled(compiled, inputs, m).outputs[0] for m in ("numpy", "llvm")]
        np.testing.assert_array_equal(*runs)
        found.append(runs[0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fft_length={30}", "fft_length={20}", "does not fit"),
        ("dimensions={1}", "dimensions={0}", "want dimensions"),
        ("f32[1,128]", "f32[2,128]", "not the roots"),
        ("f32[2,30,128]", "bf16[2,30,128]", "want equal f32 arrays"),
        ("30", "262", "no product of small primes"),
        ("=FFT", "=RFFT", "want FFT or IFFT"),
    ],
)
def test_what_is_refused(old: str, new: str, message: str) -> None:
    text = _text((2, 30, 128), 1, "FFT", 2)
    verify(parse_module(text))
    with pytest.raises(CompileError, match=message):
        verify(parse_module(text.replace(old, new)))
