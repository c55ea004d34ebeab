"""Links the precompiled kernels into the process, once, and picks the form of the MXU kernel.

All forms give the same bits; a faster form is used only after it gave those of the exact one here,
on random bits with denormals, infinities and NaN.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from tpu_sim.jit.command_kernels import MATMUL_POINTER
from tpu_sim.jit.context import VREG_BYTES, WEIGHT_BYTES
from tpu_sim.jit.engine import Engine, NativeModule, define_symbol
from tpu_sim.jit.host import detect_host
from tpu_sim.jit.host_state import ENTER, LEAVE, STATE_BYTES
from tpu_sim.jit.library import LIBRARY_FUNCTIONS, library_text, matmul_forms
from tpu_sim.machine.disk_cache import open_cache
from tpu_sim.machine.fork_lock import ForkLock

_CODEGEN_LEVEL = 2
_ALIGNMENT = 64
_TRIALS = 4
_lock = ForkLock()
_installed: list[NativeModule] = []
"""At most one: linked programs hold its addresses, so it is never dropped."""
_Words = npt.NDArray[np.uint32]


def installed_library(use_cache: bool) -> NativeModule:
    """The kernels, linked and known to the linker by name; later calls return the same module."""
    with _lock:
        if not _installed:
            _installed.append(_install(use_cache))
        return _installed[0]


def _install(use_cache: bool) -> NativeModule:
    host = detect_host()
    engine = Engine(host, open_cache(wanted=use_cache), _CODEGEN_LEVEL)
    module = engine.link(engine.object_code(library_text(host)))
    for name in LIBRARY_FUNCTIONS:
        define_symbol(name, module.address(name))
    form = module.address(_verified(module, matmul_forms(host)))
    ctypes.c_void_p.from_address(module.address(MATMUL_POINTER)).value = form
    return module


def _verified(module: NativeModule, forms: tuple[str, ...]) -> str:
    """The first of `forms` that agrees with the last, the exact one."""
    *faster, exact = (MatmulForm(module, form) for form in forms)
    trials = [random_operands(seed) for seed in range(_TRIALS)]
    expected = [exact(left, weights) for left, weights in trials]
    for form in faster:
        found = (form(left, weights) for left, weights in trials)
        if all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True)):
            return form.name
    return exact.name


class MatmulForm:
    """One form of the MXU pass, callable from Python: f32[16, 128] of lhs and weight words."""

    def __init__(self, module: NativeModule, name: str) -> None:
        self.name = name
        self._enter, self._leave = (
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(module.address(f)) for f in (ENTER, LEAVE)
        )
        self._pass = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(module.address(name))
        self._state = _aligned(STATE_BYTES)
        self._out = _aligned(2 * VREG_BYTES)
        self._left = _aligned(VREG_BYTES)
        self._weights = _aligned(WEIGHT_BYTES)

    def __call__(self, left: _Words, weights: _Words) -> npt.NDArray[np.float32]:
        """Rows 0..7 are the low rows, 8..15 the high rows."""
        self._left[:], self._weights[:] = left.ravel(), weights.ravel()
        self._enter(self._state.ctypes.data)
        operands = (self._out, self._left, self._weights, self._left)
        self._pass(*(operand.ctypes.data for operand in operands))
        self._leave(self._state.ctypes.data)
        return self._out.view(np.float32).reshape(16, 128).copy()


def random_operands(seed: int) -> tuple[_Words, _Words]:
    """Words of a left side and of weights: any bits, or exponents so that denormals arise."""
    source = np.random.default_rng(seed)
    keep = np.uint32((0xFFFFFFFF, 0x9FFF9FFF, 0xBFFFBFFF, 0xA07FA07F)[seed % 4])
    sizes = (VREG_BYTES // 4, WEIGHT_BYTES // 4)
    left, weights = (source.integers(0, 2**32, size, np.uint32) & keep for size in sizes)
    return left, weights


def _aligned(size_bytes: int) -> _Words:
    raw = np.zeros(size_bytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size_bytes].view(np.uint32)
