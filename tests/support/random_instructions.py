"""Random instructions on exact values, as HLO text: see `tests.support.random_control`."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32")
TYPES = (*INTEGERS, "f32", "s32", "f32", "pred")
DIMS = ((), (), (4,), (3, 5), (8, 128), (130,), (24, 300))
DIRECTIONS = ("LT", "LE", "GT", "GE", "NE", "LT")


@dataclass(frozen=True)
class Type:
    """An array type."""

    dtype: str
    dims: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class Value:
    """An instruction that gives an array."""

    name: str
    type: Type


def tuple_text(types: list[Type]) -> str:
    """``(s32[], f32[4])``."""
    return f"({', '.join(map(str, types))})"


@dataclass
class Block:
    """The computation that is being written."""

    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    edges: list[str] = field(default_factory=list)


class Instructions:
    """Writes instructions; `control` is what holds other computations."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0
        self.computations: list[str] = []
        self.reducers: dict[str, str] = {}

    def control(self, block: Block, depth: int) -> None:
        """Add control flow."""
        raise NotImplementedError

    # Pieces.

    def name(self) -> str:
        """A name that is free in the module."""
        self.count += 1
        return f"v{self.count}"

    def emit(self, block: Block, type_: Type, text: str) -> Value:
        """Add ``name = type text``, now and then after something it does not use."""
        value = Value(self.name(), type_)
        edge = ""
        if block.edges and self.rng.random() < 0.04:
            edge = f", control-predecessors={{{self.rng.choice(block.edges)}}}"
        block.lines.append(f"  {value.name} = {type_} {text}{edge}")
        block.values.append(value)
        block.edges.append(value.name)
        return value

    def number(self, dtype: str) -> str:
        """A literal."""
        if dtype == "pred":
            return self.rng.choice(("true", "false"))
        if dtype == "f32":
            return str(self.rng.randrange(-8, 9) / 2)
        low = 0 if dtype.startswith("u") else -5
        return str(self.rng.randrange(low, 12))

    def constant(self, block: Block, type_: Type) -> Value:
        """A constant, broadcast."""
        scalar = self.emit(block, Type(type_.dtype), f"constant({self.number(type_.dtype)})")
        if not type_.dims:
            return scalar
        return self.emit(block, type_, f"broadcast({scalar.name}), dimensions={{}}")

    def pick(self, block: Block, type_: Type) -> Value:
        """A value of a type, or a new one."""
        found = [v for v in block.values if v.type == type_]
        if found and self.rng.random() < 0.9:
            return self.rng.choice(found[-6:] if self.rng.random() < 0.6 else found)
        same = [v for v in block.values if v.type.dims == type_.dims and v.type.dtype != "f32"]
        if same and type_.dtype not in ("f32", "pred") and self.rng.random() < 0.5:
            return self.emit(block, type_, f"convert({self.rng.choice(same).name})")
        return self.constant(block, type_)

    def any_type(self, block: Block) -> Type:
        """A type, mostly one that there is a value of."""
        if block.values and self.rng.random() < 0.8:
            return self.rng.choice(block.values).type
        return Type(self.rng.choice(TYPES), self.rng.choice(DIMS))

    def tuple(self, block: Block, parts: list[Value]) -> str:
        """A tuple of values; its name."""
        name = self.name()
        operands = ", ".join(v.name for v in parts)
        block.lines.append(f"  {name} = {tuple_text([v.type for v in parts])} tuple({operands})")
        return name

    def take(self, block: Block, source: str, types: list[Type], share: float) -> list[Value]:
        """Elements of a tuple, not necessarily all of them."""
        return [
            self.emit(block, t, f"get-tuple-element({source}), index={i}")
            for i, t in enumerate(types)
            if self.rng.random() < share
        ]

    # Instructions.

    def fill(self, block: Block, count: int, depth: int) -> None:
        """Add some instructions."""
        choices = [
            (8, self.elementwise), (2, self.select), (4, self.update), (2, self.slice),
            (1, self.reduce), (1, self.reverse), (1, self.copy), (1, self.convert),
            (1, self.scatter), (1, self.sort), (1, self.barrier), (1, self.dot),
        ]  # fmt: skip
        if not block.values:
            self.constant(block, self.any_type(block))
        for _ in range(count):
            if depth < 3 and self.rng.random() < 0.22:
                self.control(block, depth)
                continue
            (make,) = self.rng.choices([c for _, c in choices], [w for w, _ in choices])
            make(block)

    def elementwise(self, block: Block) -> None:
        """A sum, a maximum, bits."""
        type_ = self.any_type(block)
        a, b = self.pick(block, type_), self.pick(block, type_)
        opcodes = {
            "pred": ("and", "or", "xor"),
            "f32": ("maximum", "minimum", "maximum", "negate", "abs"),
        }.get(type_.dtype, ("add", "subtract", "multiply", "xor", "maximum", "minimum", "negate"))
        opcode = self.rng.choice(opcodes)
        operands = a.name if opcode in ("negate", "abs") else f"{a.name}, {b.name}"
        self.emit(block, type_, f"{opcode}({operands})")

    def select(self, block: Block) -> None:
        """The larger by the comparison of two values."""
        type_ = self.any_type(block)
        a, b = self.pick(block, type_), self.pick(block, type_)
        mask = Type("pred", type_.dims)
        direction = self.rng.choice(DIRECTIONS)
        test = self.emit(block, mask, f"compare({a.name}, {b.name}), direction={direction}")
        self.emit(block, type_, f"select({test.name}, {b.name}, {a.name})")

    def starts(self, block: Block, rank: int) -> str:
        """Start indices of one type, some of them out of bounds."""
        index = Type(self.rng.choice(INTEGERS))
        return ", ".join(self.pick(block, index).name for _ in range(rank))

    def update(self, block: Block) -> None:
        """A dynamic-update-slice, whose operand may well be read later."""
        arrays = [v for v in block.values if v.type.dims]
        if not arrays:
            return
        array = self.rng.choice(arrays[-5:])
        dims = tuple(self.rng.randint(1, min(d, 3)) for d in array.type.dims)
        part = Type(array.type.dtype, dims)
        if self.rng.random() < 0.5:
            starts = self.starts(block, len(dims))
            sizes = ",".join(map(str, dims))
            source = self.rng.choice([v for v in arrays if v.type == array.type])
            text = f"dynamic-slice({source.name}, {starts}), dynamic_slice_sizes={{{sizes}}}"
            new = self.emit(block, part, text)
        else:
            new = self.pick(block, part)
        starts = self.starts(block, len(dims))
        self.emit(block, array.type, f"dynamic-update-slice({array.name}, {new.name}, {starts})")

    def slice(self, block: Block) -> None:
        """An element of an array as a scalar."""
        arrays = [v for v in block.values if v.type.dims]
        if not arrays:
            return
        array = self.rng.choice(arrays)
        dims = tuple(1 for _ in array.type.dims)
        starts, sizes = self.starts(block, len(dims)), ",".join("1" for _ in dims)
        text = f"dynamic-slice({array.name}, {starts}), dynamic_slice_sizes={{{sizes}}}"
        piece = self.emit(block, Type(array.type.dtype, dims), text)
        self.emit(block, Type(array.type.dtype), f"reshape({piece.name})")

    def reduce(self, block: Block) -> None:
        """The maximum of an array."""
        arrays = [v for v in block.values if v.type.dims and v.type.dtype in ("s32", "f32")]
        if not arrays:
            return
        array = self.rng.choice(arrays)
        scalar = Type(array.type.dtype)
        start = self.pick(block, scalar)
        dims = ",".join(map(str, range(len(array.type.dims))))
        text = f"reduce({array.name}, {start.name}), dimensions={{{dims}}}"
        self.emit(block, scalar, f"{text}, to_apply={self.maximum(scalar)}")

    def maximum(self, scalar: Type) -> str:
        """A computation that reductions share, and calls too."""
        if scalar.dtype not in self.reducers:
            name = self.reducers[scalar.dtype] = f"max_{scalar.dtype}"
            self.computations.append(
                f"{name} {{\n  a = {scalar} parameter(0)\n  b = {scalar} parameter(1)\n"
                f"  ROOT m = {scalar} maximum(a, b)\n}}\n"
            )
        return self.reducers[scalar.dtype]

    def reverse(self, block: Block) -> None:
        """An array backwards: a kernel that cannot run in place."""
        arrays = [v for v in block.values if v.type.dims]
        if arrays:
            array = self.rng.choice(arrays[-5:])
            self.emit(block, array.type, f"reverse({array.name}), dimensions={{0}}")

    def copy(self, block: Block) -> None:
        """A copy."""
        value = self.rng.choice(block.values)
        self.emit(block, value.type, f"copy({value.name})")

    def convert(self, block: Block) -> None:
        """Another integer type."""
        values = [v for v in block.values if v.type.dtype in INTEGERS]
        if values:
            value = self.rng.choice(values)
            type_ = Type(self.rng.choice(INTEGERS), value.type.dims)
            self.emit(block, type_, f"convert({value.name})")

    def scatter(self, block: Block) -> None:
        """Maxima of some elements of a vector, or rows of a matrix, with others."""
        arrays = [v for v in block.values if v.type.dims and v.type.dtype in ("s32", "f32")]
        if not arrays:
            return
        array = self.rng.choice(arrays[-4:])
        first, *row = array.type.dims
        count = self.rng.randint(1, min(first, 4))
        index = self.pick(block, Type(self.rng.choice(("s32", "u8", "s16")), (count,)))
        new = self.pick(block, Type(array.type.dtype, (count, *row)))
        window = ",".join(str(d + 1) for d in range(len(row)))
        applied = self.maximum(Type(array.type.dtype))
        text = (
            f"scatter({array.name}, {index.name}, {new.name}), update_window_dims={{{window}}}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
        )
        self.emit(block, array.type, f"{text}, to_apply={applied}")

    def sort(self, block: Block) -> None:
        """Two arrays sorted by the first: a kernel with two results."""
        arrays = [
            v for v in block.values if v.type.dtype == "s32" and v.type.dims in ((4,), (130,))
        ]
        if not arrays:
            return
        keys = self.rng.choice(arrays)
        other = self.pick(block, Type(self.rng.choice(("f32", "s32")), keys.type.dims))
        types, scalars = [keys.type, other.type], [Type("s32"), Type(other.type.dtype)]
        less, result = self.less(scalars[1]), self.name()
        block.lines.append(
            f"  {result} = {tuple_text(types)} sort({keys.name}, {other.name}), "
            f"dimensions={{0}}, is_stable=true, to_apply={less}"
        )
        self.take(block, result, types, share=0.7)

    def less(self, other: Type) -> str:
        """The order of the first of two operands."""
        name = f"less_{other.dtype}"
        if name not in self.reducers:
            self.reducers[name] = name
            self.computations.append(
                f"{name} {{\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n"
                f"  c = {other} parameter(2)\n  d = {other} parameter(3)\n"
                "  ROOT l = pred[] compare(a, b), direction=LT\n}\n"
            )
        return name

    def barrier(self, block: Block) -> None:
        """Several values that are handed on together."""
        parts = [self.rng.choice(block.values) for _ in range(self.rng.randint(1, 3))]
        types, name = [v.type for v in parts], self.name()
        block.lines.append(
            f"  {name} = {tuple_text(types)} opt-barrier({self.tuple(block, parts)})"
        )
        self.take(block, name, types, share=0.9)

    def dot(self, block: Block) -> None:
        """The product of a small matrix with itself, brought back to small numbers."""
        small = Type("f32", (3, 5))
        a, b = self.pick(block, small), self.pick(block, small)
        square, half = Type("f32", (3, 3)), self.constant(block, Type("f32", (3, 3)))
        text = f"dot({a.name}, {b.name}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
        product = self.emit(block, square, text)
        least = self.emit(block, square, f"minimum({product.name}, {half.name})")
        self.emit(block, square, f"maximum({least.name}, {half.name})")
