"""What arrays have in common, traced ones and those on a device: operators and methods of NumPy's.

All of them are NumPy's functions, which the class gets through `__array_ufunc__` and
`__array_function__`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Self, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


def _augmented(name: str) -> Callable[[Any, Any], Any]:
    operator: Callable[[Any, Any], Any] = getattr(NDArrayOperatorsMixin, f"__{name}__")

    def method(self: ArrayMethods, other: object) -> Any:
        value = operator(self, other)
        return value if value is NotImplemented else self._in_place(value, f"in-place {name}")

    return method


class ArrayMethods(NDArrayOperatorsMixin):
    """An array with `shape`, `dtype` and ``x[key]``."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy element type."""
        raise NotImplementedError

    def __getitem__(self, key: object) -> Self:
        raise NotImplementedError

    def _updated(self, method: str, key: object, value: object) -> Self:
        raise NotImplementedError

    @property
    def at(self) -> At:
        """``x.at[key].set(v)``: a new array with ``x[key]`` changed; also add, subtract, multiply,
        min, max, and get."""
        return At(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """`tpuc.numpy`. Raises ValueError for a version of the standard that it does not follow."""
        space: Any = importlib.import_module(
            "tpuc.numpy"
        )  # the facade, where everything above loads
        if api_version is not None and api_version > space.__array_api_version__:
            raise ValueError(
                f"array API {api_version!r}: want at most {space.__array_api_version__}"
            )
        return space

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def T(self) -> Self:
        """All axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Self:
        """The last two axes swapped."""
        return self._call(np.swapaxes, -1, -2)

    @property
    def real(self) -> Self:
        """As np.real."""
        return self._call(np.real)

    @property
    def imag(self) -> Self:
        """As np.imag."""
        return self._call(np.imag)

    def conj(self) -> Self:
        """As np.conj."""
        return self._call(np.conj)

    conjugate = conj

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    __hash__ = object.__hash__

    __iadd__ = _augmented("add")
    __isub__ = _augmented("sub")
    __imul__ = _augmented("mul")
    __itruediv__ = _augmented("truediv")
    __ifloordiv__ = _augmented("floordiv")
    __imod__ = _augmented("mod")
    __ipow__ = _augmented("pow")
    __imatmul__ = _augmented("matmul")
    __iand__ = _augmented("and")
    __ior__ = _augmented("or")
    __ixor__ = _augmented("xor")
    __ilshift__ = _augmented("lshift")
    __irshift__ = _augmented("rshift")

    def _in_place(self, value: Any, what: str) -> Any:
        """What ``x += y`` makes of x, where `value` is ``x + y``: another array, unless x can change."""
        return value

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        result: Self = function(self, *args, **kwargs)
        return result

    def astype(self, dtype: object, **_: object) -> Self:
        """The values in another element type."""
        return self._call(np.astype, dtype)

    def reshape(self, *shape: Any, order: str = "C") -> Self:
        """The same elements under other dimensions; one may be -1."""
        options = {} if order == "C" else {"order": order}
        return self._call(np.reshape, shape[0] if len(shape) == 1 else shape, **options)

    def transpose(self, *axes: Any) -> Self:
        """The axes permuted, or reversed when none are given."""
        order = axes[0] if len(axes) == 1 else axes
        return self._call(np.transpose, order or None)

    def sum(self, *args: Any, **kwargs: Any) -> Self:
        """As np.sum."""
        return self._call(np.sum, *args, **kwargs)

    def prod(self, *args: Any, **kwargs: Any) -> Self:
        """As np.prod."""
        return self._call(np.prod, *args, **kwargs)

    def max(self, *args: Any, **kwargs: Any) -> Self:
        """As np.max."""
        return self._call(np.max, *args, **kwargs)

    def min(self, *args: Any, **kwargs: Any) -> Self:
        """As np.min."""
        return self._call(np.min, *args, **kwargs)

    def mean(self, *args: Any, **kwargs: Any) -> Self:
        """As np.mean."""
        return self._call(np.mean, *args, **kwargs)

    def var(self, *args: Any, **kwargs: Any) -> Self:
        """As np.var."""
        return self._call(np.var, *args, **kwargs)

    def std(self, *args: Any, **kwargs: Any) -> Self:
        """As np.std."""
        return self._call(np.std, *args, **kwargs)

    def any(self, *args: Any, **kwargs: Any) -> Self:
        """As np.any."""
        return self._call(np.any, *args, **kwargs)

    def all(self, *args: Any, **kwargs: Any) -> Self:
        """As np.all."""
        return self._call(np.all, *args, **kwargs)

    def argmax(self, *args: Any, **kwargs: Any) -> Self:
        """As np.argmax."""
        return self._call(np.argmax, *args, **kwargs)

    def argmin(self, *args: Any, **kwargs: Any) -> Self:
        """As np.argmin."""
        return self._call(np.argmin, *args, **kwargs)

    def cumsum(self, *args: Any, **kwargs: Any) -> Self:
        """As np.cumsum."""
        return self._call(np.cumsum, *args, **kwargs)

    def clip(self, *args: Any, **kwargs: Any) -> Self:
        """As np.clip."""
        return self._call(np.clip, *args, **kwargs)

    def dot(self, other: object) -> Self:
        """As np.dot."""
        return self._call(np.dot, other)

    def squeeze(self, axis: Any = None) -> Self:
        """As np.squeeze."""
        return self._call(np.squeeze, axis)

    def swapaxes(self, first: int, second: int) -> Self:
        """As np.swapaxes."""
        return self._call(np.swapaxes, first, second)

    def take(self, indices: Any, axis: Any = None) -> Self:
        """As np.take."""
        return self._call(np.take, indices, axis)

    def argsort(self, *args: Any, **kwargs: Any) -> Self:
        """As np.argsort."""
        return self._call(np.argsort, *args, **kwargs)

    def cumprod(self, *args: Any, **kwargs: Any) -> Self:
        """As np.cumprod."""
        return self._call(np.cumprod, *args, **kwargs)

    def diagonal(self, *args: Any, **kwargs: Any) -> Self:
        """As np.diagonal."""
        return self._call(np.diagonal, *args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Self:
        """As np.trace."""
        return self._call(np.trace, *args, **kwargs)

    def nonzero(self) -> Self:
        """As np.nonzero."""
        return self._call(np.nonzero)

    def repeat(self, *args: Any, **kwargs: Any) -> Self:
        """As np.repeat."""
        return self._call(np.repeat, *args, **kwargs)

    def round(self, *args: Any, **kwargs: Any) -> Self:
        """As np.round."""
        return self._call(np.round, *args, **kwargs)

    def searchsorted(self, *args: Any, **kwargs: Any) -> Self:
        """As np.searchsorted."""
        return self._call(np.searchsorted, *args, **kwargs)

    def ravel(self, order: str = "C") -> Self:
        """One dimension: by rows, or by columns ("F")."""
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> Self:
        """A copy of one dimension."""
        return self.ravel(order).copy()

    @property
    def flat(self) -> Self:
        """The elements in order."""
        return self.reshape(-1)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without padding."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def copy(self) -> Self:
        """The array itself, as it cannot be changed."""
        return self


class At:
    """``x.at``, to be indexed."""

    __slots__ = ("_array",)

    def __init__(self, array: ArrayMethods) -> None:
        self._array = array

    def __getitem__(self, key: object) -> UpdateRef:
        return UpdateRef(self._array, key)


class UpdateRef:
    """``x.at[key]``: what may be done there. Each method returns a new array."""

    __slots__ = ("_array", "_key")

    def __init__(self, array: ArrayMethods, key: object) -> None:
        self._array = array
        self._key = key

    def get(self) -> Any:
        """``x[key]``."""
        return self._array[self._key]

    def set(self, value: object) -> Any:
        """``x[key] = value``."""
        return self._array._updated("set", self._key, value)

    def add(self, value: object) -> Any:
        """``x[key] += value``, once for each time that an element is named."""
        return self._array._updated("add", self._key, value)

    def subtract(self, value: object) -> Any:
        """``x[key] -= value``, once for each time that an element is named."""
        return self._array._updated("subtract", self._key, value)

    def multiply(self, value: object) -> Any:
        """``x[key] *= value``, once for each time that an element is named."""
        return self._array._updated("multiply", self._key, value)

    def divide(self, value: object) -> Any:
        """``x[key] / value``, once for each time that an element is named; of the quotient's type."""
        return self._array / self._factors(value)

    def power(self, value: object) -> Any:
        """``x[key] ** value``, once for each time that an element is named."""
        return self._array ** self._factors(value)

    def _factors(self, value: object) -> Any:
        ones: Any = np.ones_like(cast("Any", self._array))
        return ones.at[self._key].multiply(value)

    def min(self, value: object) -> Any:
        """The smaller of ``x[key]`` and `value`."""
        return self._array._updated("min", self._key, value)

    def max(self, value: object) -> Any:
        """The larger of ``x[key]`` and `value`."""
        return self._array._updated("max", self._key, value)
