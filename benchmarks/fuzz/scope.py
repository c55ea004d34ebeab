"""A module while it grows: computations as lists of lines, and the values they hold.

A `Scope` is one computation. Makers add instructions to it and take operands from it; when they
ask for something new, the entry gets a parameter, and an inner computation captures a value of
the computation that calls it (or makes a constant). How a captured value arrives, as a parameter
of its own or as an element of one tuple, is the scope's `style`.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.fuzz import kinds
from benchmarks.fuzz.literals import literal

_WORD = re.compile(r"[A-Za-z_]\w*")

MOST_ELEMENTS = 6_000
"""Of one array, as a rule: the NumPy machine takes a microsecond for each."""


@dataclass(frozen=True)
class Value:
    """One instruction's array. `most` bounds the magnitude of its floats (inf: not known)."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    most: float = math.inf

    @property
    def shape(self) -> str:
        """``f32[2,3]``."""
        return kinds.text(self.dtype, self.dims)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def written(self) -> int:
        """What its text takes as a literal: one of no elements may still have many braces."""
        return math.prod(max(1, n) for n in self.dims)

    @property
    def is_tame(self) -> bool:
        """Whether sums and products of a few of these stay finite."""
        return not (kinds.is_float(self.dtype) or kinds.is_complex(self.dtype)) or self.most <= 64


class Program:
    """What the scopes of one module share: the source of chance, names, finished computations."""

    def __init__(
        self, rng: random.Random, most_elements: int = MOST_ELEMENTS, is_real: bool = False
    ) -> None:
        self.rng = rng
        self.most_elements = most_elements
        self.is_real = is_real
        """Whether sizes are those of programs that do real work: nobody executes them."""
        self.computations: dict[str, str] = {}
        self.loops: list[tuple[str, str, tuple[tuple[str, tuple[int, ...]], ...]]] = []
        self.callables: list[tuple[str, tuple[Value, ...], tuple[Value, ...], bool]] = []
        self.loop_starts: dict[str, tuple[int, Any]] = {}
        self.header: list[str] = []
        self._names = 0

    def name(self, stem: str = "v") -> str:
        """A name that nothing else has."""
        self._names += 1
        return f"{stem}{self._names}"

    def computation(self, name: str, body: str) -> str:
        """Keep a computation under a fixed name; equal names mean equal bodies."""
        self.computations.setdefault(name, f"{name} {{\n{body}\n}}\n")
        return name

    def pair(self, opcode: str, dtype: str) -> str:
        """The computation ``opcode(a, b)`` of scalars."""
        body = (
            f"  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
            f"  ROOT r = {dtype}[] {opcode}(a, b)"
        )
        return self.computation(f"{opcode}_{dtype}".replace("-", "_"), body)


class Scope:
    """One computation. `style`: "entry", "flat" (parameters) or "tuple" (one parameter)."""

    def __init__(self, program: Program, style: str, parent: Scope | None = None) -> None:
        self.program = program
        self.rng = program.rng
        self.style = style
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.values: list[Value] = []
        self.lines: list[str] = []
        self.captured: list[tuple[Value, Value]] = []
        self.given: list[Value] = []
        self.groups: list[list[Value]] = []
        """Of the entry: parameters that arrive as tuples, by their kinds."""
        self.is_nested = False
        """Of the entry: whether its result is a tuple of tuples."""

    # Instructions.

    def add(
        self, call: str, dtype: str, dims: Sequence[int], most: float = math.inf, stem: str = "v"
    ) -> Value:
        """A new instruction ``opcode(...), attributes``."""
        name = self.program.name(stem)
        value = Value(name, dtype, tuple(dims), most)
        self.lines.append(f"  {name} = {value.shape} {call}")
        self.values.append(value)
        return value

    def hidden(self, call: str, dtype: str, dims: Sequence[int]) -> Value:
        """An instruction that only its maker uses."""
        value = self.add(call, dtype, dims)
        self.values.remove(value)
        return value

    def raw(self, shape: str, call: str, stem: str = "t") -> str:
        """An instruction that is no array; its name."""
        name = self.program.name(stem)
        self.lines.append(f"  {name} = {shape} {call}")
        return name

    def element(
        self, of: str, index: int, dtype: str, dims: Sequence[int], most: float = math.inf
    ) -> Value:
        """One element of a tuple."""
        return self.add(f"get-tuple-element({of}), index={index}", dtype, dims, most)

    def tuple(self, values: Sequence[Value]) -> tuple[str, str]:
        """A tuple of values: its name and its shape."""
        shape = f"({', '.join(v.shape for v in values)})"
        return self.raw(shape, f"tuple({', '.join(v.name for v in values)})"), shape

    def constant(self, dtype: str, dims: Sequence[int] = (), text: str = "") -> Value:
        """A constant: the given text, or values of chance."""
        most = math.inf
        if not text:
            text, most = literal(self.rng, dtype, tuple(dims))
        return self.add(f"constant({text})", dtype, dims, most)

    def zero(self, dtype: str) -> Value:
        """The scalar zero of any type: literals of complex types are pairs."""
        return self.constant(dtype, (), "(0, 0)" if dtype == "c64" else "0")

    # Operands.

    def new(self, dtype: str, dims: Sequence[int], kind: str = "") -> Value:
        """A new value of this type. `kind`: see `benchmarks.fuzz.inputs`."""
        dims = tuple(dims)
        draw = self.rng.random()
        if not kind and Value("", dtype, dims).written <= 24 and draw < 0.2:
            return self.constant(dtype, dims)
        if not kind and draw < 0.25 and dims and dtype != "pred" and kinds.has_zero(dtype):
            return self.iota(dtype, dims)
        if self.parent is None:
            return self.parameter(dtype, dims, kind or self.kind(dtype))
        outer = self.parent.like(dtype, dims, kind)
        return self.capture(outer)

    def kind(self, dtype: str) -> str:
        """How an input's values are made up."""
        if kinds.is_integer(dtype):
            return self.rng.choice(("any", "small", "small"))
        return self.rng.choice(("any", "tame", "tame", "whole", "whole"))

    def parameter(self, dtype: str, dims: tuple[int, ...], kind: str) -> Value:
        """A new input of the entry."""
        most = {"any": math.inf}.get(kind, 8.0)
        value = Value(self.program.name("p") + "_" + kind, dtype, dims, most)
        self.given.append(value)
        self.values.append(value)
        return value

    def capture(self, outer: Value) -> Value:
        """A value of the calling computation, seen from in here."""
        for known, inner in self.captured:
            if known is outer:
                return inner
        inner = Value(self.program.name("in"), outer.dtype, outer.dims, outer.most)
        self.captured.append((outer, inner))
        self.values.append(inner)
        return inner

    def iota(self, dtype: str, dims: tuple[int, ...]) -> Value:
        """Counting along a dimension."""
        along = self.rng.randrange(len(dims))
        return self.add(f"iota(), iota_dimension={along}", dtype, dims, float(dims[along]))

    def dims(
        self, least_rank: int = 0, most_rank: int = kinds.MOST_RANK, most: int = 0
    ) -> tuple[int, ...]:
        """Dimensions of a new array."""
        most = most or self.program.most_elements
        is_real = self.program.is_real and most > 100
        draw = kinds.real_size if is_real else kinds.size
        dims = kinds.dims(self.rng, most, least_rank, most_rank, draw)
        return kinds.grown(self.rng, dims, most) if is_real and dims else dims

    def size(self) -> int:
        """The size of a new dimension."""
        return kinds.real_size(self.rng) if self.program.is_real else kinds.size(self.rng)

    def room(self, elements: int) -> int:
        """A limit of elements that is meant for small programs, as it is for this one."""
        return max(1, elements * self.program.most_elements // MOST_ELEMENTS)

    def choose(self, small: Sequence[int], real: Sequence[int]) -> int:
        """One of the sizes for small programs or for real ones."""
        return self.rng.choice(real if self.program.is_real else small)

    def pick(
        self,
        dtypes: tuple[str, ...] = kinds.ALL,
        least_rank: int = 0,
        most_rank: int = kinds.MOST_RANK,
        tame: bool = False,
        accept: Callable[[Value], bool] = lambda value: True,
    ) -> Value:
        """A value of one of these types, late ones more often, or a new one."""
        found = [
            v
            for v in self.values
            if v.dtype in dtypes
            and least_rank <= v.rank <= most_rank
            and (v.is_tame or not tame)
            and accept(v)
        ]
        if found and self.rng.random() < 0.8:
            return found[-1 - min(int(self.rng.expovariate(0.4)), len(found) - 1)]
        dtype = kinds.dtype(self.rng, dtypes)
        for _ in range(20):
            dims = self.dims(least_rank, most_rank)
            if accept(Value("", dtype, dims, 1)):
                break
        return self.new(dtype, dims, self.tame_kind(dtype) if tame else "")

    def tame_kind(self, dtype: str) -> str:
        """A kind of input whose sums and products are finite."""
        return "small" if kinds.is_integer(dtype) else self.rng.choice(("tame", "whole"))

    def like(self, dtype: str, dims: Sequence[int], kind: str = "", fresh: float = 0.4) -> Value:
        """A value of exactly this shape, an old one if there is one."""
        tame = kind in ("tame", "whole", "small", "index")
        found = [
            v
            for v in self.values
            if v.dtype == dtype and v.dims == tuple(dims) and (v.is_tame or not tame)
        ]
        if found and self.rng.random() > fresh and kind in ("", "tame", "whole", "small", "any"):
            return self.rng.choice(found)
        return self.new(dtype, dims, kind)

    def tamed(self, x: Value) -> Value:
        """The same shape with finite small values."""
        if x.is_tame:
            return x
        if kinds.is_complex(x.dtype):
            return self.new(x.dtype, x.dims, "tame")
        low = self.constant(x.dtype, (), "-2" if kinds.has_zero(x.dtype) else "0.5")
        high = self.constant(x.dtype, (), "3" if kinds.has_zero(x.dtype) else "2")
        return self.add(f"clamp({low.name}, {x.name}, {high.name})", x.dtype, x.dims, 3.0)

    # The end.

    def prune(self, results: Sequence[Value]) -> None:
        """Drop what these results do not need: XLA wants fusions without dead instructions."""
        needed = {v.name for v in results}
        kept = []
        for line in reversed(self.lines):
            name, _, call = line.strip().partition(" = ")
            if name in needed:
                kept.append(line)
                needed.update(_WORD.findall(call))
        self.lines = kept[::-1]
        self.captured = [(o, i) for o, i in self.captured if i.name in needed]

    def text(self, name: str, results: Sequence[Value], as_tuple: bool) -> str:
        """The computation with these results, parameters in front."""
        lines = self._parameters() + self.lines
        if as_tuple:
            shapes = ", ".join(v.shape for v in results)
            names = ", ".join(v.name for v in results)
            if self.is_nested and len(results) > 1:
                lines += self._nested_root(results)
            else:
                lines.append(f"  ROOT {self.program.name('r')} = ({shapes}) tuple({names})")
        else:
            lines = _with_root(lines, results[0].name)
        return f"{name} {{\n" + "\n".join(lines) + "\n}\n"

    def _nested_root(self, results: Sequence[Value]) -> list[str]:
        """The results as ``((a, b), c, ())``."""
        cut = 1 + len(results) // 2
        name = self.program.name("part")
        inner = f"({', '.join(v.shape for v in results[:cut])})"
        lines = [f"  {name} = {inner} tuple({', '.join(v.name for v in results[:cut])})"]
        names, shapes = [name], [inner]
        names += [v.name for v in results[cut:]]
        shapes += [v.shape for v in results[cut:]]
        root = f"({', '.join(shapes)}) tuple({', '.join(names)})"
        return [*lines, f"  ROOT {self.program.name('r')} = {root}"]

    def _entry_parameters(self) -> list[str]:
        """Single parameters, and behind them those that arrive as tuples."""
        grouped = {id(v) for group in self.groups for v in group}
        single = [v for v in self.given if id(v) not in grouped]
        lines = [f"  {v.name} = {v.shape} parameter({i})" for i, v in enumerate(single)]
        for number, group in enumerate(self.groups, len(single)):
            name = f"{self.program.name('q')}_{group[0].name.rpartition('_')[2]}"
            shape = f"({', '.join(v.shape for v in group)})"
            lines.append(f"  {name} = {shape} parameter({number})")
            for i, v in enumerate(group):
                lines.append(f"  {v.name} = {v.shape} get-tuple-element({name}), index={i}")
        return lines

    def _parameters(self) -> list[str]:
        if self.groups:
            return self._entry_parameters()
        inner = self.given + [value for _, value in self.captured]
        if self.style != "tuple":
            return [f"  {v.name} = {v.shape} parameter({i})" for i, v in enumerate(inner)]
        name = self.program.name("state")
        lines = [f"  {name} = ({', '.join(v.shape for v in inner)}) parameter(0)"]
        for i, v in enumerate(inner):
            lines.append(f"  {v.name} = {v.shape} get-tuple-element({name}), index={i}")
        return lines


def _with_root(lines: list[str], name: str) -> list[str]:
    head = f"  {name} = "
    return [f"  ROOT {line[2:]}" if line.startswith(head) else line for line in lines]
