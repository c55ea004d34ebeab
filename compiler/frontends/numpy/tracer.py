"""`Tracer`: what a traced function sees instead of an array.

It has a shape and an element type but no values. NumPy's protocols (`__array_ufunc__`,
`__array_function__`) and Python's operators turn each operation into HLO instructions of the
`Trace` it belongs to; asking for a value is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError, users_frame
from compiler.frontends.numpy.changing import AT, CHANGED
from compiler.frontends.numpy.errors import UnknownValueError, of_numpy
from compiler.frontends.numpy.memory import (
    VIEWING,
    ChangingArray,
    assign,
    in_place,
    link,
    link_item,
    link_results,
)
from compiler.frontends.numpy.selection import Selection, is_unknown_mask
from compiler.frontends.numpy.use_sites import UseSite, site_of_use
from compiler.hlo.attributes import OpMetadata
from compiler.hlo.builder import HloBuilder
from compiler.hlo.ir import HloInstruction

SIZED = frozenset({
    "np.argwhere", "np.bincount", "np.extract", "np.flatnonzero", "np.intersect1d", "np.nonzero",
    "np.setdiff1d", "np.setxor1d", "np.union1d", "np.unique", "np.unique_all", "np.unique_counts",
    "np.unique_inverse", "np.unique_values",
})  # fmt: skip
"""Functions with as many results as values say, which `tpuc.numpy` has with a stated size."""

# Rules have the signatures of the NumPy functions they stand for.
Rule = Callable[..., Any]


@dataclass
class Trace:
    """One tracing in progress: where instructions go, and what each NumPy function becomes."""

    builder: HloBuilder
    ufuncs: Mapping[np.ufunc, Rule]
    methods: Mapping[str, Mapping[np.ufunc, Rule]]  # of ufuncs: reduce, accumulate
    functions: Mapping[object, Rule]
    index: Rule
    update: Rule
    parent: Trace | None = None
    is_open: bool = True
    depth: int = 0
    lifted: dict[HloInstruction, HloInstruction] = field(default_factory=dict)
    _noted: set[HloInstruction] = field(default_factory=set)

    @contextmanager
    def opened(self) -> Iterator[Trace]:
        """While this lasts, what the thread computes with traced arrays goes into this trace."""
        stack = _open_traces()
        stack.append(self)
        try:
            yield self
        finally:
            stack.remove(self)
            self.is_open = False

    def nested(self, builder: HloBuilder) -> Trace:
        """A trace of a computation that this one's instructions call: the body of a loop, a branch."""
        return Trace(
            builder, self.ufuncs, self.methods, self.functions, self.index, self.update, self
        )

    def run(self, name: str, rule: Rule, args: Sequence[object], kwargs: dict[str, Any]) -> Any:
        """Apply a rule to this trace and `args`; new instructions remember the function and the
        user's line. Arrays of the traces around this one become operands of its computation."""
        self._expect_open(name)
        args, kwargs = self._all_lifted(args), self._all_lifted(kwargs)
        self.depth += 1
        try:
            result = rule(self, *args, **kwargs)
        except CompileError as error:
            raise of_numpy(error) from None
        finally:
            self.depth -= 1
            if self.depth == 0:
                self._annotate(name)
        return _of_its_own(result) if self.depth == 0 else result

    def _expect_open(self, name: str) -> None:
        if not self.is_open:
            raise CompileError(
                f"{name}: this array belongs to a trace that has ended, so it has no value any more: "
                "return it from the function that is traced, do not keep it in a variable outside"
            )

    def _all_lifted(self, tree: Any) -> Any:
        """Arguments in which every traced array is one of this trace."""
        if isinstance(tree, Tracer):
            return tree if tree.owner is self else self.lift(tree)
        if type(tree) in (list, tuple):
            return type(tree)(self._all_lifted(item) for item in tree)
        if type(tree) is dict:
            return {key: self._all_lifted(item) for key, item in tree.items()}
        return tree

    def lift(self, value: Tracer) -> Tracer:
        """An array of a trace around this one, which becomes a further parameter of its computation
        (`lifted`: their parameter for ours); a constant is made anew."""
        value.owner._expect_open(repr(value))
        if self.parent is None:
            raise CompileError(f"{value!r} belongs to another trace: pass it as an argument")
        if value.owner is not self.parent:
            value = self.parent.lift(value)
        if value.instr.opcode == "constant":
            instr = self.builder.literal(np.asarray(value.instr.literal))
        else:
            found = self.lifted.get(value.instr)
            instr = found or self.builder.parameter(value.instr.array, "captured")
            self.lifted[value.instr] = instr
        return Tracer(self, instr, is_weak=value.is_weak)

    def _annotate(self, name: str) -> None:
        metadata: OpMetadata | None = None
        for instr in reversed(self.builder.computation.instructions):
            if instr in self._noted or instr.opcode == "parameter":
                break
            if metadata is None:
                metadata = OpMetadata(
                    f'{{op_name="{self.builder.computation.name}/{name}"{_line()}}}'
                )
            instr.attrs.setdefault("metadata", metadata)  # a copy keeps the line it comes from
            self._noted.add(instr)


class _ThreadState(threading.local):
    """The traces that are open in a thread, the innermost one last."""

    def __init__(self) -> None:
        self.open: list[Trace] = []


_THREAD = _ThreadState()


def _open_traces() -> list[Trace]:
    return _THREAD.open


def open_trace() -> Trace | None:
    """The innermost trace in progress in this thread, if there is one."""
    stack = _open_traces()
    return stack[-1] if stack else None


def _line() -> str:
    """Where in the user's program this happens."""
    frame, _ = users_frame()
    if frame is None:
        return ""
    file = frame.f_code.co_filename.replace("\\", "/")
    return f' source_file="{file}" source_line={frame.f_lineno}'


def _of_its_own(result: Any) -> Any:
    """The result of a rule, as arrays that are no argument's: each may be changed without the other."""
    if isinstance(result, Tracer):
        return Tracer(result.owner, result.instr, is_weak=result.is_weak)
    if isinstance(result, list | tuple):
        items = [_of_its_own(item) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


class Tracer(ChangingArray):
    """A symbolic array: `instr` computes its present value."""

    __slots__ = ()

    owner: Trace

    def __init__(self, trace: Trace, instr: HloInstruction, *, is_weak: bool = False) -> None:
        self.owner = trace
        self.instr = instr
        self.is_weak = is_weak
        self._sharing = None

    def is_of_innermost_trace(self) -> bool:
        """Whether what the program does now goes into this array's trace."""
        return open_trace() is self.owner

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self.instr.array.dims

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy element type."""
        return self.instr.array.dtype.numpy

    def _run(self, name: str, rule: Rule, args: Sequence[object], kwargs: dict[str, Any]) -> Any:
        """Apply a rule where the user's program is: perhaps in a computation inside of this trace."""
        self.owner._expect_open(name)
        return (open_trace() or self.owner).run(name, rule, args, kwargs)

    # --- NumPy's protocols ----------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "at" and ufunc in AT:
            target, key, *value = inputs
            name = f"np.{ufunc.__name__}.at"
            return _change(name, target, lambda x: getattr(x.at[key], AT[ufunc])(*value))
        if method == "outer":
            first, second = inputs
            spread = np.reshape(first, (*np.shape(first), *[1] * np.ndim(second)))
            return ufunc(spread, second, **kwargs)
        table = {"__call__": self.owner.ufuncs, **self.owner.methods}.get(method, {})
        home = "np." if getattr(np, ufunc.__name__, None) is ufunc else ""
        name = f"{home}{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
        rule = table.get(ufunc)
        if rule is None:
            raise unsupported_function(name)
        kwargs = {
            k: v
            for k, v in kwargs.items()
            if (v is not None or k == "axis") and not (k == "where" and v is True)
        }
        dtype = kwargs.pop("dtype", None) if method == "__call__" else None
        (out,), where = kwargs.pop("out", (None,)), kwargs.pop("where", None)
        unknown = kwargs.keys() - ({"axis"} if ufunc is np.vecdot else set())
        if method == "__call__" and (unknown or (where is not None and out is None)):
            argument = next(iter(unknown), "where")
            hint = {"where": "; give out=, or use np.where of the result"}
            raise UnsupportedError(
                f"{name}: argument {argument!r} cannot be traced{hint.get(argument, '')}"
            )
        if method != "__call__" and where is not None:
            kwargs["where"], where = where, None
        result = self._run(name, rule, inputs, kwargs)
        result = result if dtype is None else result.astype(dtype)
        return result if out is None else _written(name, out, result, where)

    def __array_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
        if func in CHANGED:
            return _change(name, args[0], lambda x: CHANGED[func](x, *args[1:], **kwargs))
        rule = self.owner.functions.get(func)
        if rule is None:
            raise unsupported_function(name)
        out = kwargs.get("out")
        kwargs = {key: value for key, value in kwargs.items() if key != "out"}
        result = self._run(name, rule, args, kwargs)
        if func in VIEWING and self._is_users():
            link_results(result, func, args, kwargs)
        return result if out is None else _written(name, out, result)

    def _is_users(self) -> bool:
        """Whether this is done by the user's program, not by a rule."""
        return (open_trace() or self.owner).depth == 0

    def __getitem__(self, key: object) -> Any:
        if is_unknown_mask(key) and self._is_users():
            return Selection(self, key)
        result: Tracer = self._run("getitem", self.owner.index, (self, key), {})
        if self._is_users():
            link_item(result, self, key)
        return result

    def __setitem__(self, key: object, value: object) -> None:
        if isinstance(value, Selection):
            assign(self, value.written_to(self, key))
        else:
            assign(self, self._updated("set", key, value))

    def _updated(self, method: str, key: object, value: object) -> Tracer:
        args = (method, self, key, value)
        result: Tracer = self._run(f"at.{method}", self.owner.update, args, {})
        return result

    def _in_place(self, value: Any, what: str) -> Any:
        return in_place(self, value, what) if self._is_users() else value

    def copy(self) -> Tracer:
        """The same values in an array of its own."""
        return Tracer(self.owner, self.instr, is_weak=self.is_weak)

    def view(self, dtype: object) -> Any:
        """The same bits as elements of another type, in the same memory."""
        rule = self.owner.functions[np.ndarray.view]
        made: Tracer = self._run("view", rule, (self, dtype), {})
        if self._is_users():
            link(made, self, lambda x: x.view(dtype), lambda x, value: value.view(x.dtype))
        return made

    @property
    def device(self) -> None:
        """Where it lies is not known while tracing."""
        return None

    def to_device(self, device: object, /, *, stream: None = None) -> Tracer:
        """The array itself: the program is compiled for its device as a whole."""
        return self

    # --- values do not exist yet ----------------------------------------------------------------

    def __bool__(self) -> bool:
        raise self._has_no_value(
            "a condition (if, while, and, or, assert, max, sorted)",
            "use np.where (np.maximum, np.sort), or tpuc.lax.cond and tpuc.lax.while_loop",
        )

    def __int__(self) -> int:
        raise self._has_no_value("int()", "use .astype")

    def __float__(self) -> float:
        raise self._has_no_value(
            "float(), a function of math's, or storing it in an array that NumPy made on the host",
            "use .astype, np.sqrt, ...; for an array to store in, tpuc.numpy.zeros or np.zeros_like",
        )

    def __complex__(self) -> complex:
        raise self._has_no_value("complex()", "use .astype")

    def __index__(self) -> int:
        raise self._has_no_value(
            "a Python index, size or number of turns",
            "pass it as a static argument (static_argnames), or use np.take, tpuc.lax.fori_loop, or a mask "
            "of np.arange(size) < n",
        )

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise self._has_no_value(
            "np.asarray, np.array, np.eye(n)[x], or storing it in an array that NumPy made on the host",
            "write tpuc.numpy for np there (tpuc.numpy.array, .eye, .zeros, ...: arrays that are part of "
            "the program), np.stack to join several, tpuc.numpy.asarray(table)[x] to look up",
        )

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._has_no_value("a formatted text", "return the array, and print it outside")
        return repr(self)

    def item(self, *_: object) -> NoReturn:
        """Refused: there is no value."""
        raise self._has_no_value("item()", "return the array instead")

    def tolist(self) -> NoReturn:
        """Refused: there are no values."""
        raise self._has_no_value("tolist()", "list(x) has its rows as arrays, or return the array")

    def _has_no_value(self, use: str, advice: str) -> CompileError:
        site = site_of_use(UseSite(use, advice))
        return UnknownValueError(
            f"{site.use} needs the value of {self!r}, which is not known yet: {site.advice}"
        )

    def __repr__(self) -> str:
        return f"<traced {self.instr.array.dtype}{list(self.shape)} %{self.instr.name}>"


def _change(name: str, target: object, change: Callable[[Tracer], Any]) -> None:
    if not isinstance(target, Tracer):
        raise UnsupportedError(
            f"{name} of traced values: an array that NumPy made on the host does not hold them; make it with "
            "tpuc.numpy (tpuc.numpy.zeros, ...) or np.zeros_like of a traced array"
        )
    assign(target, change(target))


def _written(name: str, out: Any, result: Any, where: object = None) -> Any:
    """What `out=` gives: that array with the result in it, where a mask holds if there is one."""

    def value(x: Tracer) -> Any:
        chosen = result if where is None else np.where(where, result, x)  # type: ignore[call-overload]
        return np.broadcast_to(chosen, x.shape).astype(x.dtype)

    _change(f"{name}(out=)", out, value)
    return out


_GENERAL_EIGENVALUES = (
    "a chip has no eigenvalues of general matrices; np.linalg.eigh has those of symmetric ones, or call it "
    "on the host, on np.asarray(..) of what comes out"
)
_INSTEAD = {
    "np.linalg.eig": _GENERAL_EIGENVALUES,
    "np.linalg.eigvals": _GENERAL_EIGENVALUES,
    "np.real_if_close": "its type depends on values; write x.real",
    "np.roots": "how many roots there are depends on values, and a chip has no eigenvalues of general "
    "matrices; call it on the host, on np.asarray(..) of what comes out",
    "np.trim_zeros": "its size depends on values; keep the zeros, or cut to a known size with x[a:b]",
}
"""What to do instead of functions whose results have no size before they run."""


def unsupported_function(name: str) -> UnsupportedError:
    """The error for a NumPy function that has no rule."""
    if name in SIZED:
        return UnsupportedError(
            f"{name}: the number of results depends on values; write tpuc.numpy.{name[3:]}(.., size=)"
        )
    other = "write it with functions that can"
    if "." not in name:  # a function of scipy.special
        other = "tpuc.special has functions of SciPy's, for traced arrays too"
    advice = _INSTEAD.get(name, other)
    return UnsupportedError(f"{name} cannot be traced; {advice}")
