"""Links the precompiled kernels into the process, once, and picks the form of each MXU pass.

All forms of a pass give the same bits. A form is used only after it gave those of the reference here,
on random bits with denormals, infinities and NaN; of those that did, the quickest here is used.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.geometry import VREG_BYTES
from tpu_sim.isa.rows.mxu import PASS_FORMATS
from tpu_sim.jit.command_kernels import MATPUSH, PASS_POINTERS
from tpu_sim.jit.context import WEIGHT_BYTES
from tpu_sim.jit.engine import Engine, NativeModule, define_symbol
from tpu_sim.jit.host import detect_host
from tpu_sim.jit.host_state import ENTER, LEAVE, STATE_BYTES
from tpu_sim.jit.library import LIBRARY_FUNCTIONS, library_text
from tpu_sim.jit.pass_forms import PassForm, pass_forms
from tpu_sim.machine.disk_cache import open_cache
from tpu_sim.machine.fork_lock import ForkLock

_CODEGEN_LEVEL = 2
_ALIGNMENT = 64
_ONES = 0x3F803F80  # two bf16
_TRIALS = 4
_TIMINGS = 12
"""Calls of which the quickest counts: an interrupted one does not. A call is a few microseconds."""
_lock = ForkLock()
_installed: list[NativeModule] = []
"""At most one: linked programs hold its addresses, so it is never dropped."""
_Words = npt.NDArray[np.uint32]


def installed_library(use_cache: bool) -> NativeModule:
    """The kernels, linked and known to the linker by name; later calls return the same module."""
    with _lock.here:
        if not _installed:
            _installed.append(_install(use_cache))
        return _installed[0]


def _install(use_cache: bool) -> NativeModule:
    host = detect_host()
    engine = Engine(host, open_cache(wanted=use_cache), _CODEGEN_LEVEL)
    module = engine.link(engine.own_code("library", lambda: library_text(host)))
    for name in LIBRARY_FUNCTIONS:
        define_symbol(name, module.address(name))
    pointers = pass_pointers(module)
    for number, forms in enumerate(pass_forms(host).values()):
        pointers[number] = module.address(_best(module, forms))
    return module


def pass_pointers(library: NativeModule) -> ctypes.Array[ctypes.c_void_p]:
    """The forms of the MXU's passes that the library uses, in the order of `PASS_FORMATS`."""
    table = ctypes.c_void_p * len(PASS_FORMATS)
    return table.from_address(library.address(PASS_POINTERS.symbol))


def _best(module: NativeModule, forms: tuple[PassForm, ...]) -> str:
    """The quickest of `forms` that agrees with the last, by which the others are judged."""
    if len(forms) == 1:
        return forms[0].name
    *others, reference = (LinkedPass(module, form.name) for form in forms)
    trials = [random_operands(seed) for seed in range(_TRIALS)]
    expected = [reference(left, weights).tobytes() for left, weights in trials]
    agreeing = [
        form
        for form in others
        if all(
            form(*trial).tobytes() == right for trial, right in zip(trials, expected, strict=True)
        )
    ]
    return min(agreeing, key=LinkedPass.seconds, default=reference).name


class LinkedPass:
    """One form of an MXU pass, callable from Python: f32[16, 128] of lhs and weight words."""

    def __init__(
        self,
        library: NativeModule,
        name: str,
        module: NativeModule | None = None,
        push: str = MATPUSH.symbol,
    ) -> None:
        """`module` has the form and the function `push` for its weights: the library, if not given."""
        module = module or library
        self.name = name
        self._enter, self._leave = (
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address(one.symbol))
            for one in (ENTER, LEAVE)
        )
        self._push = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(module.address(push))
        self._pass = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(module.address(name))
        self._state = _aligned(STATE_BYTES)
        self._out = _aligned(2 * VREG_BYTES)
        self._left = _aligned(VREG_BYTES)
        self._rows = _aligned(VREG_BYTES)
        self._weights = _aligned(WEIGHT_BYTES)
        operands = (self._out, self._left, self._weights, self._left)
        self._operands = tuple(operand.ctypes.data for operand in operands)

    def __call__(self, left: _Words, weights: _Words) -> npt.NDArray[np.float32]:
        """Push `weights`, 8 rows at a time, and multiply; rows 0..7 are the low rows, 8..15 the high."""
        self._left[:] = left.ravel()
        start, source = self._weights.ctypes.data, self._rows.ctypes.data
        for number, rows in enumerate(weights.reshape(-1, VREG_BYTES // 4)):
            self._rows[:] = rows
            self._push(start + number * VREG_BYTES, source)
        self._enter(self._state.ctypes.data)
        self._pass(*self._operands)
        self._leave(self._state.ctypes.data)
        return self._out.view(np.float32).reshape(16, 128).copy()

    def seconds(self) -> float:
        """How long a pass takes, with operands in the nearest cache: the last ones, made ones.

        (CPUs may be slow with denormals and NaN, which are rare, and forms quick with zeros.)
        """
        self._left[:], self._weights[:] = _ONES, _ONES
        run, operands, clock = self._pass, self._operands, time.perf_counter_ns
        self._enter(self._state.ctypes.data)
        times = []
        for _ in range(_TIMINGS):
            before = clock()
            run(*operands)
            times.append(clock() - before)
        self._leave(self._state.ctypes.data)
        return min(times) / 1e9


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
