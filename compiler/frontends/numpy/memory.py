"""Traced arrays that change, and share memory, as NumPy's do.

    x[2] = v; x += y; x.sort()    # x has other values from now on
    y = x[1:3]; y += 1            # x has changed, and so has every other view of it
    z = x.T; x[0] = 0             # z has changed

An array holds the instruction that is its present value. One that is a view knows what it is a view of:
how to read its value there, and how that array's value is made of a new one. To assign gives an array
another instruction, passes it on to what it is a view of, and lets all views read again; what nobody
looks at then is a dead instruction. As in NumPy, a result of no dimensions is a number, which does not
change.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.errors import BadTypeError
from compiler.frontends.numpy.methods import ArrayMethods
from compiler.frontends.numpy.promotion import kind_rank
from compiler.hlo.ir import HloInstruction

_REORDERING: frozenset[Callable[..., Any]] = frozenset({
    np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.matrix_transpose, np.permute_dims,
    np.linalg.matrix_transpose, np.flip, np.fliplr, np.flipud, np.rot90, np.split, np.array_split, np.hsplit,
    np.vsplit, np.dsplit,
})  # fmt: skip
_RESHAPING: frozenset[Callable[..., Any]] = frozenset({
    np.reshape, np.ravel, np.squeeze, np.expand_dims, np.atleast_1d, np.atleast_2d, np.atleast_3d,
})  # fmt: skip
_READ_ONLY: frozenset[Callable[..., Any]] = frozenset({
    np.broadcast_to, np.broadcast_arrays, np.diagonal, np.linalg.diagonal, np.real, np.imag,
})  # fmt: skip
VIEWING = _REORDERING | _RESHAPING | _READ_ONLY
"""NumPy's functions whose result shares the memory of their first argument."""


class ChangingArray(ArrayMethods):
    """A traced array: `instr` is its present value, `owner` the trace that this belongs to, `is_weak` whether
    it came of Python scalars alone."""

    __slots__ = ("__weakref__", "_sharing", "instr", "is_weak", "owner")

    instr: HloInstruction
    is_weak: bool
    owner: Any
    _sharing: Sharing | None

    @property
    def sharing(self) -> Sharing:
        """With whom it shares its memory."""
        if self._sharing is None:
            self._sharing = Sharing()
        return self._sharing

    def is_of_innermost_trace(self) -> bool:
        """Whether what the program does now goes into this array's trace."""
        raise NotImplementedError

    def sort(self, axis: int = -1) -> None:
        """Sort its elements, in place."""
        assign(self, self._call(np.sort, axis))

    def fill(self, value: object) -> None:
        """Give all elements one value."""
        assign(self, self.at[...].set(value))


@dataclass(frozen=True)
class ArrayView:
    """What a traced array is a view of; `write` gives that one's value for a new value of the view."""

    of: ChangingArray
    read: Reading
    write: Writing | None


@dataclass
class Sharing:
    """With whom a traced array shares its memory."""

    view: ArrayView | None = None
    views: list[weakref.ref[ChangingArray]] = field(default_factory=list)

    def living(self) -> list[ChangingArray]:
        """The views that somebody still holds."""
        found = [(ref, view) for ref in self.views if (view := ref()) is not None]
        self.views = [ref for ref, _ in found]
        return [view for _, view in found]


Reading = Callable[[Any], Any]
"""The value of a view, of what it is a view of."""
Writing = Callable[[Any, Any], Any]
"""The value of what it is a view of, of that and the view's new value."""


def link(
    made: ChangingArray,
    of: ChangingArray,
    read: Reading,
    write: Writing | None,
) -> None:
    """Let `made` be a view."""
    made.sharing.view = ArrayView(of, read, write)
    of.sharing.views.append(weakref.ref(made))


def link_item(made: ChangingArray, of: ChangingArray, key: object) -> None:
    """Let `made` be ``of[key]``, which is a view unless the key has arrays, or it is a number."""
    entries = key if isinstance(key, tuple) else (key,)
    is_basic = all(
        e is None or isinstance(e, int | np.integer | slice | type(...)) for e in entries
    )
    if is_basic and made.ndim:
        link(made, of, lambda x: x[key], lambda x, value: x.at[key].set(value))


def link_results(
    made: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    """Let what a function of `VIEWING` made be views of its first argument."""
    of, rest = args[0], args[1:]
    by_columns = "F" in (order for order in (*rest, kwargs.get("order")) if isinstance(order, str))
    if isinstance(of, list | tuple) or by_columns:  # the latter is a copy, of an array by rows
        return
    several = isinstance(made, list | tuple)
    for number, result in enumerate(made if several else (made,)):

        def read(x: Any, number: int = number) -> Any:
            found = function(x, *rest, **kwargs)
            return found[number] if several else found

        def moved(x: Any, value: Any, read: Callable[[Any], Any] = read) -> Any:
            places = read(np.arange(x.size, dtype=np.int32).reshape(x.shape))
            return x.reshape(-1).at[places].set(value).reshape(x.shape)

        write = None if function in _READ_ONLY else moved
        link(result, of, read, _reshaped if function in _RESHAPING else write)


def _reshaped(x: ChangingArray, value: ChangingArray) -> ChangingArray:
    return value.reshape(x.shape)


def assign(x: ChangingArray, value: ChangingArray) -> None:
    """Give `x` the values of another array of its shape and type, and what shares memory with it."""
    if not x.is_of_innermost_trace():
        raise CompileError(
            f"{x!r} is changed inside of a function that is a computation of its own (the body of a loop, "
            "a branch, a function to be differentiated): return the changed array from it instead"
        )
    view = x.sharing.view
    if view is not None:
        if view.write is None:
            raise UnsupportedError(
                f"{x!r} is a view that cannot be written through: change what it is a view of, or a "
                "copy (x.copy())"
            )
        assign(view.of, view.write(view.of, value))
    x.instr = value.instr
    _read_again(x)


def _read_again(x: ChangingArray) -> None:
    for view in x.sharing.living():
        if view.owner is x.owner and view.sharing.view is not None:
            view.instr = view.sharing.view.read(x).instr
            _read_again(view)


def in_place(x: ChangingArray, value: ChangingArray, what: str) -> ChangingArray:
    """``x += y``, where `value` is ``x + y``: x with the new values, in its own type. A number, and what
    came of a Python scalar, stays as it is, and the result is another one."""
    if not x.ndim or x.is_weak:
        return value
    if value.shape != x.shape:
        raise CompileError(
            f"{what}: the result has the shape {list(value.shape)}, which {x!r} does not hold"
        )
    if kind_rank(value.dtype) > kind_rank(x.dtype):
        raise BadTypeError(
            f"{what}: the result is {value.dtype}, which {x!r} does not hold; write "
            f"x = x.astype({value.dtype}) first"
        )
    assign(x, value.astype(x.dtype))
    return x
