"""A module that is lowered again because a kernel broke a limit: other kernels are not made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from compiler.backend.kept_kernels import KeptKernels, MadeKernel
from compiler.backend.kernel_library import KernelLibrary, KernelRequest
from compiler.backend.smem_scratch import SmemScratch
from compiler.driver import compile_module
from compiler.hlo.parser import parse_module
from compiler.llo.ir import LloKernel
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.container import dump_program

TEXT = """HloModule m
ENTRY main {
  a = f32[64,128] parameter(0)
  b = f32[64,128] parameter(1)
  c = f32[64,128] parameter(2)
  d = f32[64,128] parameter(3)
  e = f32[64,128] parameter(4)
  f = f32[64,128] parameter(5)
  x = f32[8,1000] parameter(6)
  ab = f32[64,128] add(a, b)
  cd = f32[64,128] multiply(c, d)
  ef = f32[64,128] divide(e, f)
  abcd = f32[64,128] subtract(ab, cd)
  all = f32[64,128] maximum(abcd, ef)
  y = f32[8,1000] exponential(x)
  ROOT out = (f32[64,128], f32[8,1000]) tuple(all, y)
}
"""


def _compiled(monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, Counter[str]]:
    """The program for a machine whose kernels have few windows, and how often each kernel was lowered."""
    lowered: Counter[str] = Counter()
    lower = KernelLibrary.lower

    def counted(library: KernelLibrary, name: str) -> LloKernel:
        lowered[name] += 1
        return lower(library, name)

    with monkeypatch.context() as patch:
        patch.setattr("compiler.llo.finalize.MAX_WINDOWS", 5)
        patch.setattr(KernelLibrary, "lower", counted)
        compiled = compile_module(parse_module(TEXT), load_chip("v5e"))
    return dump_program(compiled.program), lowered


def _made_anew(
    _kept: KeptKernels,
    _request: KernelRequest,
    _smem: SmemScratch,
    make: Callable[[], MadeKernel],
) -> MadeKernel:
    return make()


def test_kernels_that_no_split_touches_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, once = _compiled(monkeypatch)
    monkeypatch.setattr(KeptKernels, "kernel", _made_anew)
    anew, often = _compiled(monkeypatch)
    assert max(often.values()) > 1
    assert set(once.values()) == {1}
    assert kept == anew
