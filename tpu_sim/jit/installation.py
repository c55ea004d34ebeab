"""Links the precompiled kernels into the process, once, and picks the faster MXU kernel.

Both MXU kernels give the same bits wherever AVX-512's BF16 dot product takes the odd product first;
that is tried here on random bits, denormals included, before the product is used. Which one is
faster differs between vendors, so that is tried too.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from threading import Lock

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from tpu_sim.jit.code_cache import CodeCache
from tpu_sim.jit.context import VREG_BYTES, WEIGHT_BYTES
from tpu_sim.jit.engine import Engine, NativeModule, detect_host
from tpu_sim.jit.library import (
    LIBRARY_FUNCTIONS,
    MATMUL,
    MATMUL_BF16,
    MATMUL_FMA,
    library_text,
)

_CODEGEN_LEVEL = 2
_ALIGNMENT = 64
_TRIALS = 8
_lock = Lock()
_Words = npt.NDArray[np.uint32]


def installed_library(use_cache: bool) -> NativeModule:
    """The kernels, linked and known to LLVM by name; later calls return the same module."""
    with _lock:
        return _install(use_cache)


@cache  # linked programs hold its addresses, so it is never dropped
def _install(use_cache: bool) -> NativeModule:
    host = detect_host()
    engine = Engine(host, CodeCache() if use_cache else None, _CODEGEN_LEVEL)
    module = engine.link(engine.object_code(library_text(host.has_bf16_dot)))
    for name in LIBRARY_FUNCTIONS:
        llvm.add_symbol(name, module.address(name))
    llvm.add_symbol(MATMUL, module.address(_better_matmul(module, host.has_bf16_dot)))
    return module


def _better_matmul(module: NativeModule, has_bf16_dot: bool) -> str:
    if not has_bf16_dot:
        return MATMUL_FMA
    fma, bf16 = _Trial(module.address(MATMUL_FMA)), _Trial(module.address(MATMUL_BF16))
    for seed in range(_TRIALS):
        if not _same_floats(fma.results(seed), bf16.results(seed)):
            return MATMUL_FMA
    return MATMUL_BF16 if bf16.seconds() < fma.seconds() else MATMUL_FMA


def _same_floats(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> bool:
    """Equal bits, but any NaN equals any NaN."""
    same = a.view(np.uint32) == b.view(np.uint32)
    return bool((same | (np.isnan(a) & np.isnan(b))).all())


class _Trial:
    """One MXU kernel on operands of its own."""

    def __init__(self, address: int) -> None:
        kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(address)
        self._out = _aligned(2 * VREG_BYTES)
        self._left = _aligned(VREG_BYTES)
        self._weights = _aligned(WEIGHT_BYTES)
        out = self._out.ctypes.data
        arguments = (out, out + VREG_BYTES, self._left.ctypes.data, self._weights.ctypes.data)
        self._call: Callable[[], None] = lambda: kernel(*arguments)

    def results(self, seed: int) -> npt.NDArray[np.float32]:
        """Results for random bits; even seeds keep exponents small, so that denormals arise."""
        source = np.random.default_rng(seed)
        keep = np.uint32(0xFFFFFFFF if seed % 2 else 0x9FFF9FFF)
        for operand in (self._left, self._weights):
            operand[:] = source.integers(0, 2**32, operand.size, np.uint32) & keep
        self._call()
        return self._out.view(np.float32).copy()

    def seconds(self) -> float:
        """Least time of a few calls."""
        best = float("inf")
        for _ in range(_TRIALS):
            start = time.perf_counter()
            self._call()
            best = min(best, time.perf_counter() - start)
        return best


def _aligned(size_bytes: int) -> _Words:
    raw = np.zeros(size_bytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size_bytes].view(np.uint32)
