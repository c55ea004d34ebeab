"""Random well-typed HLO modules for hypothesis: several opcodes over awkward shapes, as text.

A module is built value by value. A value is `exact` when evaluator and machine must agree to the
bit; sums of floats and transcendental functions are not, and nothing that jumps (compare, floor,
sort, conversion to integers) is applied to what comes from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

SIZES = (0, 1, 2, 3, 7, 8, 127, 128, 129, 1025)
MAX_ELEMENTS = 20_000
MAX_RANK = 4
FLOATS = ("f32", "bf16")
INTEGERS = ("s32", "u32", "s8", "u8", "s16")
DTYPES = (*FLOATS, *INTEGERS, "pred")
_FLOAT_UNARY = ("negate", "abs", "floor", "ceil", "sign", "round-nearest-even")
_SMOOTH_UNARY = ("tanh", "logistic", "exponential", "sine", "sqrt", "log-plus-one", "erf")
_BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
_BITS = ("and", "or", "xor")
_JUMPING = frozenset(("floor", "ceil", "sign", "round-nearest-even"))
_REDUCERS = {"add": "0", "maximum": "-100", "minimum": "100"}


@dataclass(frozen=True)
class Value:
    """One instruction's result; `exact`: see the module's docstring."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    exact: bool = True

    @property
    def shape(self) -> str:
        """``f32[2,3]``."""
        return shape_text(self.dtype, self.dims)


def shape_text(dtype: str, dims: tuple[int, ...]) -> str:
    """``f32[2,3]``."""
    return f"{dtype}[{','.join(map(str, dims))}]"


def dims_strategy(max_rank: int = 3) -> st.SearchStrategy[tuple[int, ...]]:
    """Dimensions of at most `MAX_ELEMENTS` elements."""
    sizes = st.lists(st.sampled_from(SIZES), min_size=0, max_size=max_rank)
    return sizes.map(tuple).filter(lambda dims: math.prod(dims) <= MAX_ELEMENTS)


class Builder:
    """A module while it grows; `draw` is hypothesis'."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.values: list[Value] = []
        self.lines: list[str] = []
        self.computations: dict[str, str] = {}
        self.parameters = 0

    # Pieces.

    def pick(self, *wanted: str, rank: int = 0, exact: bool = False) -> Value:
        """A value of one of these dtypes (any when none is named), or a new parameter."""
        found = [
            v for v in self.values
            if (not wanted or v.dtype in wanted) and len(v.dims) >= rank and (v.exact or not exact)
        ]  # fmt: skip
        if found and self.draw(st.integers(0, 4)):
            return self.draw(st.sampled_from(found[::-1]))
        dims = self.draw(dims_strategy().filter(lambda dims: len(dims) >= rank))
        return self.parameter(self.draw(st.sampled_from(wanted or DTYPES)), dims)

    def parameter(self, dtype: str, dims: tuple[int, ...]) -> Value:
        """A new input."""
        number = self.parameters
        self.parameters += 1
        return self.add(f"parameter({number})", dtype, dims)

    def add(self, call: str, dtype: str, dims: tuple[int, ...], exact: bool = True) -> Value:
        """A new instruction ``opcode(...), attributes``."""
        value = Value(f"v{len(self.lines)}", dtype, dims, exact)
        self.lines.append(f"  {value.name} = {value.shape} {call}")
        self.values.append(value)
        return value

    def constant(self, dtype: str, text: str) -> Value:
        """A scalar constant."""
        return self.add(f"constant({text})", dtype, ())

    def number(self, low: int, high: int) -> int:
        """A drawn integer, both ends included."""
        return self.draw(st.integers(low, high))

    def scalar_computation(self, opcode: str, dtype: str) -> str:
        """The name of ``opcode(a, b)`` on scalars."""
        name = f"{opcode}_{dtype}".replace("-", "_")
        self.computations[name] = (
            f"{name} {{\n  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
            f"  ROOT r = {dtype}[] {opcode}(a, b)\n}}\n"
        )
        return name

    def text(self) -> str:
        """The module; its results are some of the values, the last one among them."""
        others = self.draw(st.lists(st.sampled_from(self.values), max_size=2, unique=True))
        results = [self.values[-1], *(v for v in others if v is not self.values[-1])]
        shapes = ", ".join(v.shape for v in results)
        names = ", ".join(v.name for v in results)
        root = f"  ROOT result = ({shapes}) tuple({names})"
        body = "\n".join([*self.lines, root])
        return "\n".join([*self.computations.values(), f"ENTRY main {{\n{body}\n}}\n"])

    # Operations. Each adds at least one value.

    def unary(self) -> Value:
        """One elementwise operand."""
        x = self.pick()
        if x.dtype == "pred":
            return self.add(f"not({x.name})", x.dtype, x.dims, x.exact)
        if x.dtype not in FLOATS:
            options = ("negate", "abs", "sign", "not", "popcnt") if x.dtype[0] == "s" else ("not",)
            opcode = self.draw(st.sampled_from(options))
            return self.add(f"{opcode}({x.name})", x.dtype, x.dims)
        opcode = self.draw(st.sampled_from((*_FLOAT_UNARY, *_SMOOTH_UNARY)))
        if opcode in _JUMPING and not x.exact:
            opcode = "negate"
        if opcode in ("sqrt", "log-plus-one"):
            x = self.add(f"abs({x.name})", x.dtype, x.dims, x.exact)
        if opcode in ("exponential", "sine"):
            x = self.add(f"tanh({x.name})", x.dtype, x.dims, exact=False)
        exact = x.exact and opcode not in _SMOOTH_UNARY
        return self.add(f"{opcode}({x.name})", x.dtype, x.dims, exact)

    def partner(self, x: Value) -> Value:
        """A value of the same shape."""
        same = [v for v in self.values if (v.dtype, v.dims) == (x.dtype, x.dims)]
        if self.number(0, 2):
            return self.draw(st.sampled_from(same))
        return self.parameter(x.dtype, x.dims)

    def binary(self) -> Value:
        """Two elementwise operands."""
        x = self.pick()
        y = self.partner(x)
        options = _BITS if x.dtype == "pred" else _BINARY
        if x.dtype in INTEGERS:
            options = (*_BINARY, *_BITS, "divide", "remainder", "shift-left",
                       "shift-right-arithmetic", "shift-right-logical")  # fmt: skip
        opcode = self.draw(st.sampled_from(options))
        return self.add(f"{opcode}({x.name}, {y.name})", x.dtype, x.dims, x.exact and y.exact)

    def compare_select(self) -> Value:
        """A mask, and a choice by it."""
        x = self.pick(exact=True)
        y = self.partner(x)
        if not y.exact:
            y = x
        direction = self.draw(st.sampled_from(("EQ", "NE", "LT", "LE", "GT", "GE")))
        mask = self.add(f"compare({x.name}, {y.name}), direction={direction}", "pred", x.dims)
        a = self.partner(x)
        exact = a.exact and y.exact
        return self.add(f"select({mask.name}, {a.name}, {y.name})", x.dtype, x.dims, exact)

    def clamp(self) -> Value:
        """Between scalar bounds."""
        x = self.pick(*FLOATS, *INTEGERS)
        low = self.constant(x.dtype, "1")
        high = self.constant(x.dtype, str(self.number(1, 9)))
        return self.add(f"clamp({low.name}, {x.name}, {high.name})", x.dtype, x.dims, x.exact)

    def convert(self) -> Value:
        """To another type."""
        x = self.pick(exact=True)
        to = self.draw(st.sampled_from(DTYPES))
        if x.dtype in FLOATS and to in INTEGERS:  # out of range is not defined
            low, high = self.constant(x.dtype, "0"), self.constant(x.dtype, "100")
            x = self.add(f"clamp({low.name}, {x.name}, {high.name})", x.dtype, x.dims)
        return self.add(f"convert({x.name})", to, x.dims)

    def iota(self) -> Value:
        """Counting along a dimension."""
        dims = self.draw(dims_strategy().filter(bool))
        dtype = self.draw(st.sampled_from(("s32", "f32", "u8")))
        return self.add(f"iota(), iota_dimension={self.number(0, len(dims) - 1)}", dtype, dims)

    def broadcast(self) -> Value:
        """New dimensions."""
        x = self.pick()
        room = MAX_ELEMENTS // max(1, math.prod(x.dims))
        fresh = [n for n in SIZES if n <= room]
        if len(x.dims) >= MAX_RANK or not fresh:
            return x
        size = self.draw(st.sampled_from(fresh))
        at = self.number(0, len(x.dims))
        dims = (*x.dims[:at], size, *x.dims[at:])
        kept = ",".join(str(d) for d in range(len(dims)) if d != at)
        return self.add(f"broadcast({x.name}), dimensions={{{kept}}}", x.dtype, dims, x.exact)

    def reshape(self) -> Value:
        """Flatten, split or merge dimensions, add or drop ones."""
        x = self.pick()
        count = math.prod(x.dims)
        options = [(count,), (1, *x.dims), (*x.dims, 1), tuple(n for n in x.dims if n != 1)]
        options += [(f, count // f) for f in (2, 3, 7, 8, 129) if count and count % f == 0]
        dims = self.draw(st.sampled_from([o for o in options if len(o) <= MAX_RANK]))
        if math.prod(dims) != count:
            dims = (count,)
        return self.add(f"reshape({x.name})", x.dtype, dims, x.exact)

    def transpose(self) -> Value:
        """Any order of dimensions."""
        x = self.pick(rank=2)
        order = self.draw(st.permutations(range(len(x.dims))))
        dims = tuple(x.dims[d] for d in order)
        listed = ",".join(map(str, order))
        return self.add(f"transpose({x.name}), dimensions={{{listed}}}", x.dtype, dims, x.exact)

    def reverse(self) -> Value:
        """Back to front along some dimensions."""
        x = self.pick(rank=1)
        dims = self.draw(st.sets(st.integers(0, len(x.dims) - 1), min_size=1))
        listed = ",".join(map(str, sorted(dims)))
        return self.add(f"reverse({x.name}), dimensions={{{listed}}}", x.dtype, x.dims, x.exact)

    def slice(self) -> Value:
        """Any start, limit and stride."""
        x = self.pick(rank=1)
        ranges = []
        for size in x.dims:
            start = self.number(0, size)
            limit = self.number(start, size)
            ranges.append((start, limit, self.draw(st.sampled_from((1, 1, 2, 3)))))
        dims = tuple(-(-(b - a) // s) for a, b, s in ranges)
        listed = ", ".join(f"[{a}:{b}:{s}]" for a, b, s in ranges)
        return self.add(f"slice({x.name}), slice={{{listed}}}", x.dtype, dims, x.exact)

    def pad(self) -> Value:
        """Edges (also negative) and interior."""
        x = self.pick(rank=1)
        value = self.constant(x.dtype, "true" if x.dtype == "pred" else "1")
        edges, dims = [], []
        for size in x.dims:
            interior = self.draw(st.sampled_from((0, 0, 0, 1)))
            inner = size + max(0, size - 1) * interior
            low = self.number(-min(2, inner), 3)
            high = self.number(-min(2, max(0, inner + low)), 3)
            edges.append(f"{low}_{high}_{interior}")
            dims.append(inner + low + high)
        if math.prod(dims) > MAX_ELEMENTS or min(dims) < 0:
            return x
        call = f"pad({x.name}, {value.name}), padding={'x'.join(edges)}"
        return self.add(call, x.dtype, tuple(dims), x.exact)

    def concatenate(self) -> Value:
        """With itself and a new parameter."""
        x = self.pick(rank=1)
        along = self.number(0, len(x.dims) - 1)
        other = list(x.dims)
        other[along] = self.draw(st.sampled_from((0, 1, 7, 8, 127)))
        if math.prod(other) + 2 * math.prod(x.dims) > MAX_ELEMENTS:
            return x
        y = self.parameter(x.dtype, tuple(other))
        names = self.draw(st.permutations((x.name, y.name, x.name)))
        dims = list(x.dims)
        dims[along] = 2 * x.dims[along] + other[along]
        call = f"concatenate({', '.join(names)}), dimensions={{{along}}}"
        return self.add(call, x.dtype, tuple(dims), x.exact)

    def reduce(self) -> Value:
        """Over some dimensions."""
        x = self.pick("f32", "s32", "bf16", rank=1)
        opcode = self.draw(st.sampled_from(sorted(_REDUCERS)))
        over = self.draw(st.sets(st.integers(0, len(x.dims) - 1), min_size=1))
        start = self.constant(x.dtype, _REDUCERS[opcode])
        dims = tuple(n for d, n in enumerate(x.dims) if d not in over)
        listed = ",".join(map(str, sorted(over)))
        apply = self.scalar_computation(opcode, x.dtype)
        call = f"reduce({x.name}, {start.name}), dimensions={{{listed}}}, to_apply={apply}"
        return self.add(call, x.dtype, dims, x.exact and self.is_exact(opcode, x))

    def is_exact(self, opcode: str, x: Value) -> bool:
        """Whether the order of combining does not matter."""
        return opcode != "add" or x.dtype not in FLOATS

    def reduce_window(self) -> Value:
        """Sliding windows with strides and padding."""
        x = self.pick("f32", "s32", rank=1)
        opcode = self.draw(st.sampled_from(sorted(_REDUCERS)))
        parts, dims = [], []
        for size in x.dims:
            window = self.draw(st.sampled_from((1, 1, 2, 3)))
            stride = self.draw(st.sampled_from((1, 1, 2)))
            low, high = self.number(0, window - 1), self.number(0, window - 1)
            parts.append((window, stride, f"{low}_{high}"))
            dims.append(max(0, (size + low + high - window) // stride + 1))
        start = self.constant(x.dtype, _REDUCERS[opcode])
        window_text = (
            f"size={'x'.join(str(w) for w, _, _ in parts)} "
            f"stride={'x'.join(str(s) for _, s, _ in parts)} "
            f"pad={'x'.join(p for _, _, p in parts)}"
        )
        apply = self.scalar_computation(opcode, x.dtype)
        call = f"reduce-window({x.name}, {start.name}), window={{{window_text}}}, to_apply={apply}"
        return self.add(call, x.dtype, tuple(dims), x.exact and self.is_exact(opcode, x))

    def dot(self) -> Value:
        """Contract one dimension with that of a new parameter, maybe with a batch dimension."""
        x = self.pick("f32", "bf16", "s8", rank=1)
        k = self.number(0, len(x.dims) - 1)
        free = [n for d, n in enumerate(x.dims) if d != k]
        n = self.draw(st.sampled_from((1, 7, 8, 129)))
        if math.prod(free) * n > MAX_ELEMENTS or x.dims[k] * n > MAX_ELEMENTS:
            return x
        y = self.parameter(x.dtype, (x.dims[k], n))
        dtype = "s32" if x.dtype == "s8" else "f32"
        call = f"dot({x.name}, {y.name}), lhs_contracting_dims={{{k}}}, rhs_contracting_dims={{0}}"
        return self.add(call, dtype, (*free, n), exact=x.dtype == "s8")

    def starts(self, rank: int) -> str:
        """Scalar start indices, some of them outside."""
        return "".join(f", {self.parameter('s32', ()).name}" for _ in range(rank))

    def dynamic_slice(self) -> Value:
        """A window at indices known at run time."""
        x = self.pick(rank=1)
        dims = tuple(self.draw(st.sampled_from([n for n in SIZES if n <= size])) for size in x.dims)
        sizes = ",".join(map(str, dims))
        call = f"dynamic-slice({x.name}{self.starts(len(dims))}), dynamic_slice_sizes={{{sizes}}}"
        return self.add(call, x.dtype, dims, x.exact)

    def dynamic_update_slice(self) -> Value:
        """Overwrite such a window."""
        x = self.pick(rank=1)
        dims = tuple(self.draw(st.sampled_from([n for n in SIZES if n <= size])) for size in x.dims)
        update = self.parameter(x.dtype, dims)
        call = f"dynamic-update-slice({x.name}, {update.name}{self.starts(len(dims))})"
        return self.add(call, x.dtype, x.dims, x.exact)

    def gather(self) -> Value:
        """Rows of the leading dimension."""
        x = self.pick(rank=1)
        count = self.draw(st.sampled_from((0, 1, 7, 8, 129)))
        row = x.dims[1:]
        if x.dims[0] == 0 or count * math.prod(row) > MAX_ELEMENTS:
            return x
        indices = self.parameter("s32", (count,))
        offset = ",".join(str(1 + d) for d in range(len(row)))
        sizes = ",".join(map(str, (1, *row)))
        call = (
            f"gather({x.name}, {indices.name}), offset_dims={{{offset}}}, collapsed_slice_dims={{0}}"
            f", start_index_map={{0}}, index_vector_dim=1, slice_sizes={{{sizes}}}"
        )
        return self.add(call, x.dtype, (count, *row), x.exact)

    def scatter(self) -> Value:
        """Add rows into the leading dimension."""
        x = self.pick("f32", "s32", rank=1)
        count = self.draw(st.sampled_from((0, 1, 7, 8)))
        row = x.dims[1:]
        indices = self.parameter("s32", (count,))
        updates = self.parameter(x.dtype, (count, *row))
        window = ",".join(str(1 + d) for d in range(len(row)))
        opcode = self.draw(st.sampled_from(("add", "maximum")))
        apply = self.scalar_computation(opcode, x.dtype)
        call = (
            f"scatter({x.name}, {indices.name}, {updates.name}), update_window_dims={{{window}}}"
            f", inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}"
            f", index_vector_dim=1, to_apply={apply}"
        )
        return self.add(call, x.dtype, x.dims, x.exact and self.is_exact(opcode, x))

    def sort(self) -> Value:
        """Ascending, stable, along one dimension; sometimes with the positions."""
        x = self.pick("f32", "s32", "s8", rank=1, exact=True)
        along = self.number(0, len(x.dims) - 1)
        name = f"less_{x.dtype}"
        self.computations[name] = (
            f"{name} {{\n  a = {x.dtype}[] parameter(0)\n  b = {x.dtype}[] parameter(1)\n"
            f"  ROOT r = pred[] compare(a, b), direction=LT\n}}\n"
        )
        call = f"sort({x.name}), dimensions={{{along}}}, is_stable=true, to_apply={name}"
        return self.add(call, x.dtype, x.dims)

    def loop(self) -> Value:
        """A while loop that applies an operation a few times."""
        x = self.pick("f32", "s32")
        opcode = self.draw(st.sampled_from(("add", "maximum", "subtract")))
        trips = self.number(0, 3)
        number = len(self.lines)
        state = f"(s32[], {x.shape}, {x.shape})"
        self.computations[f"loop{number}"] = (
            f"cond{number} {{\n  t = {state} parameter(0)\n"
            f"  i = s32[] get-tuple-element(t), index=0\n  n = s32[] constant({trips})\n"
            f"  ROOT r = pred[] compare(i, n), direction=LT\n}}\n\n"
            f"body{number} {{\n  t = {state} parameter(0)\n"
            f"  i = s32[] get-tuple-element(t), index=0\n  one = s32[] constant(1)\n"
            f"  j = s32[] add(i, one)\n  x = {x.shape} get-tuple-element(t), index=1\n"
            f"  y = {x.shape} get-tuple-element(t), index=2\n  z = {x.shape} {opcode}(x, y)\n"
            f"  ROOT r = {state} tuple(j, z, y)\n}}\n"
        )
        y = self.partner(x)
        zero = self.constant("s32", "0")
        names = [f"t{number}", f"w{number}"]
        self.lines.append(f"  {names[0]} = {state} tuple({zero.name}, {x.name}, {y.name})")
        call = f"while({names[0]}), condition=cond{number}, body=body{number}"
        self.lines.append(f"  {names[1]} = {state} {call}")
        exact = x.exact and y.exact
        return self.add(f"get-tuple-element({names[1]}), index=1", x.dtype, x.dims, exact)

    def conditional(self) -> Value:
        """One of two branches."""
        x = self.pick("f32", "s32")
        chooser = self.parameter("pred", ())
        number = len(self.lines)
        names = []
        for opcode in self.draw(st.permutations(("negate", "abs"))):
            name = f"{opcode}{number}"
            names.append(name)
            self.computations[name] = (
                f"{name} {{\n  x = {x.shape} parameter(0)\n  ROOT r = {x.shape} {opcode}(x)\n}}\n"
            )
        call = (
            f"conditional({chooser.name}, {x.name}, {x.name}), true_computation={names[0]}, "
            f"false_computation={names[1]}"
        )
        return self.add(call, x.dtype, x.dims, x.exact)


_OPERATIONS: tuple[Callable[[Builder], Value], ...] = (
    Builder.unary, Builder.binary, Builder.binary, Builder.compare_select, Builder.clamp,
    Builder.convert, Builder.iota, Builder.broadcast, Builder.reshape, Builder.transpose,
    Builder.reverse, Builder.slice, Builder.pad, Builder.concatenate, Builder.reduce,
    Builder.reduce_window, Builder.dot, Builder.dynamic_slice, Builder.dynamic_update_slice,
    Builder.gather, Builder.scatter, Builder.sort, Builder.loop, Builder.conditional,
)  # fmt: skip


@st.composite
def modules(draw: st.DrawFn, most: int = 7) -> str:
    """The text of a module of up to `most` operations (and what they need)."""
    builder = Builder(draw)
    for operation in draw(st.lists(st.sampled_from(_OPERATIONS), min_size=1, max_size=most)):
        operation(builder)
    return builder.text()
