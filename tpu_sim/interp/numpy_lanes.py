"""`Lanes` on NumPy arrays: what the primitives mean, slowly and plainly.

Integer lanes are uint32 arrays, float lanes the same bits as float32, masks bool arrays. A vreg
has shape (8, 128); the scalar unit uses the same class with shape (1,). An sreg's value is a uint32
array of one element.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tpu_sim.interp import exact
from tpu_sim.isa.geometry import LANES, SUBLANES
from tpu_sim.isa.rows.mxu import CANONICAL_NAN

U32 = npt.NDArray[np.uint32]
F32 = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Amount = int | U32

_ALL_ONES = np.uint32(0xFFFFFFFF)
_INT_MIN = -(2**31)
_COMPARE: dict[str, Callable[..., Mask]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _signed(a: U32) -> npt.NDArray[np.int32]:
    return a.view(np.int32)


def _bits(wide: npt.NDArray[np.int64]) -> U32:
    return (wide & 0xFFFFFFFF).astype(np.uint32)


def _arithmetic(function: Callable[..., F32]) -> Callable[..., F32]:
    """A primitive of floats; its NaN are what the lanes say."""

    def primitive(lanes: NumpyLanes, *operands: F32) -> F32:
        return lanes._given(function(*operands))

    return primitive


def _signed_result(function: Callable[..., npt.NDArray[np.int32]]) -> Callable[..., U32]:
    """A primitive of signed integers."""

    def primitive(_lanes: NumpyLanes, a: U32, b: U32) -> U32:
        return function(_signed(a), _signed(b)).view(np.uint32)

    return primitive


class NumpyLanes:
    """The primitives for values of one `shape`; constants are cached and never written.

    `nan` are the bits of a NaN that float arithmetic gives; None leaves them to the host.
    """

    def __init__(self, shape: tuple[int, ...], nan: int | None = None) -> None:
        self.shape = shape
        self._constants: dict[int, U32] = {}
        self._nan = None if nan is None else np.uint32(nan).view(np.float32)

    def _given(self, result: F32) -> F32:
        """A result of float arithmetic, its NaN as they are to be."""
        return result if self._nan is None else np.where(result != result, self._nan, result)

    # primitives that NumPy has
    fadd = _arithmetic(np.add)
    fsub = _arithmetic(np.subtract)
    fmul = _arithmetic(np.multiply)
    fdiv = _arithmetic(np.divide)
    fma = _arithmetic(exact.fma)
    fsqrt = _arithmetic(np.sqrt)
    fmaximum = _arithmetic(exact.maximum)
    fminimum = _arithmetic(exact.minimum)
    ffloor = _arithmetic(np.floor)
    fceil = _arithmetic(np.ceil)
    fround_even = _arithmetic(np.rint)
    ftrunc = _arithmetic(np.trunc)
    iadd = staticmethod(np.add)
    isub = staticmethod(np.subtract)
    imul = staticmethod(np.multiply)
    iand = staticmethod(np.bitwise_and)
    ior = staticmethod(np.bitwise_or)
    ixor = staticmethod(np.bitwise_xor)
    imin_s = _signed_result(np.minimum)
    imax_s = _signed_result(np.maximum)
    imin_u = staticmethod(np.minimum)
    imax_u = staticmethod(np.maximum)
    select = staticmethod(np.where)
    mand = staticmethod(np.logical_and)
    mor = staticmethod(np.logical_or)
    mxor = staticmethod(np.logical_xor)
    mnot = staticmethod(np.logical_not)

    def const_i(self, value: int) -> U32:
        """See `Lanes`."""
        bits = value & 0xFFFFFFFF
        if bits not in self._constants:
            self._constants[bits] = np.full(self.shape, bits, np.uint32)
        return self._constants[bits]

    def const_f(self, value: float) -> F32:
        """See `Lanes`."""
        return self.as_f(self.const_i(int(np.float32(value).view(np.uint32))))

    def as_f(self, x: U32) -> F32:
        """See `Lanes`."""
        return x.view(np.float32)

    def as_i(self, x: F32) -> U32:
        """See `Lanes`."""
        return x.view(np.uint32)

    def f_to_s(self, a: F32) -> U32:
        """See `Lanes`."""
        return _bits(self._to_integer(a, float(_INT_MIN), float(2**31 - 1)))

    def f_to_u(self, a: F32) -> U32:
        """See `Lanes`."""
        return _bits(self._to_integer(a, 0.0, float(2**32 - 1)))

    def _to_integer(self, a: F32, low: float, high: float) -> npt.NDArray[np.int64]:
        wide = np.where(a != a, 0.0, a.astype(np.float64))
        return np.clip(np.trunc(wide), low, high).astype(np.int64)

    def s_to_f(self, a: U32) -> F32:
        """See `Lanes`."""
        return _signed(a).astype(np.float64).astype(np.float32)

    def u_to_f(self, a: U32) -> F32:
        """See `Lanes`."""
        return a.astype(np.float64).astype(np.float32)

    def imulhi_u(self, a: U32, b: U32) -> U32:
        """See `Lanes`."""
        return (a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)

    def shl(self, a: U32, b: U32) -> U32:
        """See `Lanes`."""
        return np.where(b < 32, a << (b & np.uint32(31)), np.uint32(0))

    def lshr(self, a: U32, b: U32) -> U32:
        """See `Lanes`."""
        return np.where(b < 32, a >> (b & np.uint32(31)), np.uint32(0))

    def ashr(self, a: U32, b: U32) -> U32:
        """See `Lanes`."""
        count = np.minimum(b, np.uint32(31)).view(np.int32)
        return (_signed(a) >> count).view(np.uint32)

    def idiv_s(self, a: U32, b: U32) -> U32:
        """See `Lanes`."""
        x, y = _signed(a).astype(np.int64), _signed(b).astype(np.int64)
        quotient = np.abs(x) // np.maximum(np.abs(y), 1)
        quotient = np.where((x < 0) != (y < 0), -quotient, quotient)
        return _bits(np.where(y == 0, np.int64(-1), quotient))

    def irem_s(self, a: U32, b: U32) -> U32:
        """See `Lanes`."""
        x, y = _signed(a).astype(np.int64), _signed(b).astype(np.int64)
        remainder = np.abs(x) % np.maximum(np.abs(y), 1)
        remainder = np.where(x < 0, -remainder, remainder)
        return _bits(np.where(y == 0, x, remainder))

    def idiv_u(self, a: U32, b: U32) -> U32:
        """See `Lanes`."""
        return np.where(b == 0, _ALL_ONES, a // np.maximum(b, np.uint32(1)))

    def irem_u(self, a: U32, b: U32) -> U32:
        """See `Lanes`."""
        return np.where(b == 0, a, a % np.maximum(b, np.uint32(1)))

    def clz(self, a: U32) -> U32:
        """See `Lanes`."""
        _, exponent = np.frexp(a.astype(np.float64))
        return (32 - exponent).astype(np.uint32)

    def popcnt(self, a: U32) -> U32:
        """See `Lanes`."""
        return np.bitwise_count(a).astype(np.uint32)

    def fcmp(self, predicate: str, a: F32, b: F32) -> Mask:
        """See `Lanes`."""
        return _COMPARE[predicate](a, b)

    def icmp_s(self, predicate: str, a: U32, b: U32) -> Mask:
        """See `Lanes`."""
        return _COMPARE[predicate](_signed(a), _signed(b))

    def icmp_u(self, predicate: str, a: U32, b: U32) -> Mask:
        """See `Lanes`."""
        return _COMPARE[predicate](a, b)

    def mconst(self, value: bool) -> Mask:
        """See `Lanes`."""
        return np.full(self.shape, value, np.bool_)

    def lane_index(self) -> U32:
        """See `Lanes`."""
        return np.broadcast_to(np.arange(LANES, dtype=np.uint32), (SUBLANES, LANES)).copy()

    def sublane_index(self) -> U32:
        """See `Lanes`."""
        column = np.arange(SUBLANES, dtype=np.uint32)[:, None]
        return np.broadcast_to(column, (SUBLANES, LANES)).copy()

    def splat(self, scalar: U32) -> U32:
        """See `Lanes`."""
        return np.full(self.shape, scalar[0], np.uint32)

    def scalar_add(self, scalar: U32, k: int) -> U32:
        """See `Lanes`."""
        return scalar + np.uint32(k & 0xFFFFFFFF)

    def lane_fold(self, x: U32, op: str) -> U32:
        """See `Lanes`."""
        width = LANES
        while width > 1:
            width //= 2
            x = self._apply(op, x[:, :width], x[:, width : 2 * width])
        return np.repeat(self._settled(op, x), LANES, axis=1)

    def sublane_fold(self, x: U32, op: str) -> U32:
        """See `Lanes`."""
        height = SUBLANES
        while height > 1:
            height //= 2
            x = self._apply(op, x[:height], x[height : 2 * height])
        return np.repeat(self._settled(op, x), SUBLANES, axis=0)

    def _settled(self, op: str, x: U32) -> U32:
        """The result of a fold: its NaN, if it is one of floats, are canonical."""
        value = x.view(np.float32)
        is_nan = value != value
        return np.where(is_nan, np.uint32(CANONICAL_NAN), x) if op.startswith("f") else x

    def _apply(self, op: str, a: U32, b: U32) -> U32:
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        primitive = getattr(self, op)
        if op.startswith("f"):
            return self.as_i(primitive(self.as_f(a), self.as_f(b)))
        result: U32 = primitive(a, b)
        return result

    def lane_rotate(self, x: U32, amount: Amount) -> U32:
        """See `Lanes`."""
        return np.roll(x, _number(amount) % LANES, axis=1)

    def lane_broadcast(self, x: U32, lane: Amount) -> U32:
        """See `Lanes`."""
        column = _number(lane) % LANES
        return np.repeat(x[:, column : column + 1], LANES, axis=1)

    def lane_permute(self, x: U32, index: U32) -> U32:
        """See `Lanes`."""
        return np.take_along_axis(x, (index % LANES).astype(np.int64), axis=1)

    def sublane_rotate(self, x: U32, amount: Amount) -> U32:
        """See `Lanes`."""
        return np.roll(x, _number(amount) % SUBLANES, axis=0)

    def sublane_broadcast(self, x: U32, sublane: Amount) -> U32:
        """See `Lanes`."""
        row = _number(sublane) % SUBLANES
        return np.repeat(x[row : row + 1], SUBLANES, axis=0)

    def sublane_permute(self, x: U32, index: U32) -> U32:
        """See `Lanes`."""
        return np.take_along_axis(x, (index % SUBLANES).astype(np.int64), axis=0)


def _number(amount: Amount) -> int:
    return amount if isinstance(amount, int) else int(amount[0])
