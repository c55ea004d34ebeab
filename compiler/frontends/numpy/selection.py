"""``x[mask]`` of a mask whose values are not known: some elements of x, and nobody knows how many.

    x[mask] += 1; y[mask] = 2 * x[mask]    # where the mask holds
    x[mask].sum(), x[mask].mean()          # numbers, of the elements where it holds

Each operation is one of whole arrays with the mask beside it. What needs to know how many there are, or
which comes where, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from compiler.diagnostics import CompileError, UnsupportedError, users_frame
from compiler.frontends.numpy.errors import BadIndexError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.keys import instruction_key

_PLAIN = frozenset({np.sum, np.prod, np.mean, np.var, np.std, np.any, np.all})
_EXTREMES = frozenset({np.max, np.amax, np.min, np.amin})


def is_unknown_mask(key: object) -> bool:
    """Whether a key is a mask whose values are not known."""
    return (
        getattr(key, "instr", None) is not None and np.dtype(getattr(key, "dtype", int)).kind == "b"
    )


class Selection(NDArrayOperatorsMixin):
    """The elements (or rows, of a mask of fewer dimensions) of `array` where `mask` holds."""

    __slots__ = ("_made", "array", "mask")

    def __init__(self, array: Any, mask: Any) -> None:
        if array.shape[: mask.ndim] != mask.shape:
            raise BadIndexError(f"x[mask]: a mask {mask!r} of {array!r}; want x's first dimensions")
        self.array = array
        self.mask = mask
        frame, _ = users_frame()
        self._made = (
            f" (x[mask] is made in {frame.f_code.co_filename}:{frame.f_lineno})" if frame else ""
        )

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy element type."""
        found: np.dtype[np.generic] = self.array.dtype
        return found

    def written_to(self, x: Any, key: object) -> Any:
        """What ``x[key] = self`` makes of x. Raises CompileError if the key is another mask."""
        if not self._has_mask(key) or self.array.shape != x.shape:
            raise CompileError(
                "x[mask] = y[other]: how many elements there are is not known; want the same mask, and "
                "arrays of one shape"
            )
        return np.where(self._whole_mask(), self.array, x).astype(x.dtype)

    def astype(self, dtype: object, **_: object) -> Selection:
        """The values in another element type."""
        return Selection(self.array.astype(dtype), self.mask)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if kwargs.pop("out", (self,)) != (self,) or method != "__call__" or kwargs:
            self._refuse(f"np.{ufunc.__name__}.{method}")
        made = ufunc(*(self._operand(ufunc.__name__, value) for value in inputs))
        return Selection(made, self.mask)

    def __array_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        if args and args[0] is self and len(args) <= 2:
            axis = args[1] if len(args) > 1 else kwargs.pop("axis", None)
            return self._reduced(func, axis, kwargs)
        self._refuse(f"np.{func.__name__}")

    def sum(self, axis: int | None = None, **kwargs: Any) -> Any:
        """As np.sum."""
        return self._reduced(np.sum, axis, kwargs)

    def prod(self, axis: int | None = None, **kwargs: Any) -> Any:
        """As np.prod."""
        return self._reduced(np.prod, axis, kwargs)

    def mean(self, axis: int | None = None, **kwargs: Any) -> Any:
        """As np.mean."""
        return self._reduced(np.mean, axis, kwargs)

    def var(self, axis: int | None = None, **kwargs: Any) -> Any:
        """As np.var."""
        return self._reduced(np.var, axis, kwargs)

    def std(self, axis: int | None = None, **kwargs: Any) -> Any:
        """As np.std."""
        return self._reduced(np.std, axis, kwargs)

    def any(self, axis: int | None = None, **kwargs: Any) -> Any:
        """As np.any."""
        return self._reduced(np.any, axis, kwargs)

    def all(self, axis: int | None = None, **kwargs: Any) -> Any:
        """As np.all."""
        return self._reduced(np.all, axis, kwargs)

    def max(self, axis: int | None = None, **kwargs: Any) -> Any:
        """As np.max; of no elements the least value of the type."""
        return self._reduced(np.max, axis, kwargs)

    def min(self, axis: int | None = None, **kwargs: Any) -> Any:
        """As np.min; of no elements the greatest value of the type."""
        return self._reduced(np.min, axis, kwargs)

    def _reduced(self, func: Callable[..., Any], axis: int | None, kwargs: dict[str, Any]) -> Any:
        if func not in _PLAIN | _EXTREMES or axis not in (None, 0):
            self._refuse(f"np.{func.__name__}" + ("" if axis is None else f" along axis {axis}"))
        over = None if axis is None else tuple(range(self.mask.ndim))
        if func in _EXTREMES:
            kwargs = {"initial": _neutral(func, self.array.dtype), **kwargs}
        return func(self.array, axis=over, where=self._whole_mask(), **kwargs)

    def _whole_mask(self) -> Any:
        ones = (1,) * (self.array.ndim - self.mask.ndim)
        return np.broadcast_to(self.mask.reshape((*self.mask.shape, *ones)), self.array.shape)

    def _operand(self, name: str, value: Any) -> Any:
        if isinstance(value, Selection):
            if not self._has_mask(value.mask):
                self._refuse(f"np.{name} with another mask")
            return value.array
        if np.ndim(value) > self.array.ndim - self.mask.ndim:
            self._refuse(f"np.{name} with {value!r}")
        return value

    def _has_mask(self, mask: Any) -> bool:
        return mask is self.mask or (
            is_unknown_mask(mask) and _are_equal(mask.instr, self.mask.instr)
        )

    def _refuse(self, use: str) -> NoReturn:
        raise UnsupportedError(
            f"{use} of x[mask]: the number of elements is unknown; use np.where, where=mask, or "
            f"tpuc.numpy.extract(.., size=){self._made}"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse(f".{name}")

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse("an index")

    def __len__(self) -> int:
        self._refuse("len()")

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        self._refuse("the value")

    def __repr__(self) -> str:
        return f"<{self.array!r} where {self.mask!r}>"


def _neutral(func: Callable[..., Any], dtype: Any) -> Any:
    sign = 1 if func in (np.min, np.amin) else -1
    kind = np.dtype(dtype).kind
    if kind == "b":
        return sign > 0
    if kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.max if sign > 0 else limits.min)
    return sign * np.inf


def _are_equal(one: HloInstruction, other: HloInstruction) -> bool:
    """Whether two instructions compute the same of the same operands."""
    pairs = [(one, other)]
    while pairs:
        a, b = pairs.pop()
        if a is b:
            continue
        if instruction_key(a) != instruction_key(b) or a.opcode == "parameter":
            return False
        pairs += zip(a.operands, b.operands, strict=True)
    return True
