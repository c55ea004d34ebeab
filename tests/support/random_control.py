"""Random modules of nested control flow: what loops and branches carry, share, swap and overwrite.

    text = control_module(seed)

All arithmetic is exact (integers of many widths, and sums and maxima of small f32 numbers), so
that evaluator and machine must agree to the bit. What a module has depends on the seed alone:

    loops with counters of every width and sign, counted up, down, past the wrap-around, or not
    run at all; states with one value twice, elements unchanged, swapped, dropped, nested tuples
    conditions, bodies and branches that several instructions share
    updates in place before, in and after loops; reads of what was updated
    conditionals by predicate and by index, with branches that hand on what they were given
    calls, control edges, donated parameters, results that are parameters
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32")
TYPES = (*INTEGERS, "f32", "s32", "f32", "pred")
DIMS = ((), (), (4,), (3, 5), (8, 128), (130,), (24, 300))
_BITS = {"s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64}
_DIRECTIONS = ("LT", "LE", "GT", "GE", "NE", "LT")
_MOST_TRIPS = 5


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
class Loop:
    """A condition and a body, and what they carry; the counter is element `counter`."""

    condition: str
    body: str
    types: list[Type]
    counter: int
    first: int
    is_bound_carried: bool


@dataclass
class Block:
    """The computation that is being written."""

    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    edges: list[str] = field(default_factory=list)


class Generator:
    """Writes one module."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0
        self.computations: list[str] = []
        self.loops: list[Loop] = []
        self.branches: list[tuple[str, list[Type], list[Type]]] = []
        self.reducers: dict[str, str] = {}

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
        direction = self.rng.choice(_DIRECTIONS)
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
        arrays = [v for v in block.values if v.type.dtype == "s32" and v.type.dims in ((4,), (130,))]
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

    # Control flow.

    def control(self, block: Block, depth: int) -> None:
        """A loop, a conditional or a call."""
        kind = self.rng.random()
        if kind < 0.55:
            self.loop(block, depth)
        elif kind < 0.9:
            self.conditional(block, depth)
        else:
            scalar = Type(self.rng.choice(("s32", "f32")))
            a, b = self.pick(block, scalar), self.pick(block, scalar)
            called = self.maximum(scalar)
            self.emit(block, scalar, f"call({a.name}, {b.name}), to_apply={called}")

    def loop(self, block: Block, depth: int) -> None:
        """A loop of its own, or one with the condition and body of another."""
        if self.loops and self.rng.random() < 0.3:
            loop = self.rng.choice(self.loops)
        else:
            types = [self.any_type(block) for _ in range(self.rng.randint(1, 4))]
            loop = self.new_loop(types, depth)
        parts = [self.pick(block, t) for t in loop.types]
        counter = loop.types[loop.counter]
        parts[loop.counter] = self.emit(block, counter, f"constant({loop.first})")
        if loop.is_bound_carried:
            parts[-1] = self.emit(block, counter, f"constant({self.rng.randint(0, 4)})")
        state = self.tuple(block, parts)
        called = f"condition={loop.condition}, body={loop.body}"
        text = tuple_text(loop.types)
        result = self.name()
        block.lines.append(f"  {result} = {text} while({state}), {called}")
        if self.rng.random() < 0.15:  # the whole state goes on into another loop
            again = self.name()
            block.lines.append(f"  {again} = {text} while({result}), {called}")
            result = again
        self.take(block, result, loop.types, share=0.8)
        self.vector_loop(block)

    def vector_loop(self, block: Block) -> None:
        """A loop that carries one array and no tuple, until its first element is negative."""
        if self.rng.random() < 0.85:
            return
        condition, body, vector = f"cond{self.name()}", f"body{self.name()}", Type("s32", (4,))
        self.computations += [
            f"""{condition} {{
  x = {vector} parameter(0)
  first = s32[1] slice(x), slice={{[0:1]}}
  one = s32[] reshape(first)
  zero = s32[] constant(0)
  ROOT more = pred[] compare(one, zero), direction=GT
}}
""",
            f"""{body} {{
  x = {vector} parameter(0)
  step = s32[] constant(500000000)
  steps = {vector} broadcast(step), dimensions={{}}
  less = {vector} subtract(x, steps)
  ROOT y = {vector} minimum(less, x)
}}
""",
        ]
        start = self.pick(block, vector)
        self.emit(block, vector, f"while({start.name}), condition={condition}, body={body}")

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

    def new_loop(self, types: list[Type], depth: int) -> Loop:
        """A counted loop of at most a few trips; some carry the bound."""
        rng = self.rng
        counter = Type(rng.choice((*INTEGERS, "s32", "s64")))
        is_bound_carried = rng.random() < 0.3
        if is_bound_carried:
            first, bound, step, direction = 0, 0, 1, "LT"
        else:
            first, bound, step, direction = self.counting(counter.dtype)
        at = rng.randint(0, len(types))
        types = [*types[:at], counter, *types[at:]]
        if is_bound_carried:
            types.append(counter)
        text, state = tuple_text(types), self.name()
        condition = Block()
        condition.lines.append(f"  {state} = {text} parameter(0)")
        i, limit = self.name(), self.name()
        condition.lines.append(f"  {i} = {counter} get-tuple-element({state}), index={at}")
        made = f"get-tuple-element({state}), index={len(types) - 1}"
        made = made if is_bound_carried else f"constant({bound})"
        condition.lines.append(f"  {limit} = {counter} {made}")
        sides = (i, limit) if rng.random() < 0.8 else (limit, i)
        mirrored = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, direction)
        how = direction if sides[0] == i else mirrored
        root = f"compare({sides[0]}, {sides[1]}), direction={how}"
        condition.lines.append(f"  ROOT {self.name()} = pred[] {root}")
        body = Block()
        parameter = self.name()
        body.lines.append(f"  {parameter} = {text} parameter(0)")
        old = self.name()
        body.lines.append(f"  {old} = {counter} get-tuple-element({parameter}), index={at}")
        carried = self.take(body, parameter, types[:-1] if is_bound_carried else types, 0.9)
        self.fill(body, rng.randint(1, 5), depth + 1)
        parts = [
            rng.choice([v for v in carried if v.type == t] or [self.pick(body, t)])
            if rng.random() < 0.3
            else self.pick(body, t)
            for t in types
        ]
        by = self.emit(body, counter, f"constant({step})")
        parts[at] = self.emit(body, counter, f"add({old}, {by.name})")
        if is_bound_carried:
            where = f"get-tuple-element({parameter}), index={len(types) - 1}"
            parts[-1] = self.emit(body, counter, where)
        self.finish(body, self.tuple(body, parts))
        names = f"cond{self.name()}", f"body{self.name()}"
        self.computations += [
            f"{name} {{\n" + "\n".join(b.lines) + "\n}\n"
            for name, b in zip(names, (condition, body), strict=True)
        ]
        loop = Loop(*names, types, at, first, is_bound_carried)
        self.loops.append(loop)
        return loop

    def counting(self, dtype: str) -> tuple[int, int, int, str]:
        """First value, bound, step and comparison of a loop that ends soon."""
        bits = _BITS[dtype]
        low = 0 if dtype.startswith("u") else -(1 << (bits - 1))
        size = 1 << bits
        while True:
            near = self.rng.choice((low, low + size - 4, 0, 0, 0))
            first = (near + self.rng.randint(0, 6) - low) % size + low
            bound = (near + self.rng.randint(0, 6) - low) % size + low
            step = self.rng.choice((1, 1, 1, 2, 3, -1, -2))
            step = (step - low) % size + low
            direction = self.rng.choice(_DIRECTIONS)
            value, trips = first, 0
            holds = {
                "LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__,
                "GE": int.__ge__, "NE": int.__ne__,
            }[direction]  # fmt: skip
            while holds(value, bound) and trips <= _MOST_TRIPS:
                value, trips = (value + step - low) % size + low, trips + 1
            if trips <= _MOST_TRIPS:
                return first, bound, step, direction

    def conditional(self, block: Block, depth: int) -> None:
        """Branches by predicate or index, of which some are shared."""
        rng = self.rng
        results = [self.any_type(block) for _ in range(rng.randint(1, 3))]
        is_predicated = rng.random() < 0.5
        names: list[str] = []
        operands: list[str] = []
        for _ in range(2 if is_predicated else rng.randint(1, 3)):
            shared = [b for b in self.branches if b[2] == results]
            if shared and rng.random() < 0.4:
                name, given, _ = rng.choice(shared)
            else:
                given = [self.any_type(block) for _ in range(rng.randint(1, 3))]
                name = self.new_branch(given, results, depth)
            names.append(name)
            operands.append(self.tuple(block, [self.pick(block, t) for t in given]))
        selector = self.pick(block, Type("pred" if is_predicated else "s32"))
        arguments = ", ".join([selector.name, *operands])
        which = f"true_computation={names[0]}, false_computation={names[-1]}"
        if not is_predicated:
            which = f"branch_computations={{{', '.join(names)}}}"
        result = self.name()
        text = tuple_text(results)
        block.lines.append(f"  {result} = {text} conditional({arguments}), {which}")
        self.take(block, result, results, share=0.8)

    def new_branch(self, given: list[Type], results: list[Type], depth: int) -> str:
        """A computation from a tuple to a tuple."""
        branch, name, parameter = Block(), f"branch{self.name()}", self.name()
        branch.lines.append(f"  {parameter} = {tuple_text(given)} parameter(0)")
        self.take(branch, parameter, given, share=0.9)
        if not branch.values:
            self.constant(branch, Type("s32"))
        self.fill(branch, self.rng.randint(0, 3), depth + 1)
        root = self.tuple(branch, [self.pick(branch, t) for t in results])
        self.finish(branch, self.wrapped(branch, root, results, depth + 1))
        self.computations.append(f"{name} {{\n" + "\n".join(branch.lines) + "\n}\n")
        self.branches.append((name, given, results))
        return name

    def wrapped(self, block: Block, root: str, types: list[Type], depth: int) -> str:
        """The root, or a conditional in its place whose branches are given it."""
        if depth > 2 or self.rng.random() < 0.85:
            return root
        names = [self.new_branch(types, types, depth + 1) for _ in range(2)]
        selector, name = self.pick(block, Type("pred")), self.name()
        block.lines.append(
            f"  {name} = {tuple_text(types)} conditional({selector.name}, {root}, {root}), "
            f"true_computation={names[0]}, false_computation={names[1]}"
        )
        return name

    def finish(self, block: Block, root: str) -> None:
        """Mark the root, which is the last line that was written or an earlier one."""
        for i, line in enumerate(block.lines):
            if line.startswith(f"  {root} = "):
                block.lines[i] = line.replace("  ", "  ROOT ", 1)

    def module(self) -> str:
        """The whole module."""
        rng, entry = self.rng, Block()
        types = [Type(rng.choice(TYPES), rng.choice(DIMS)) for _ in range(rng.randint(2, 5))]
        types.append(Type("s32"))
        for i, type_ in enumerate(types):
            self.emit(entry, type_, f"parameter({i})")
        parameters = list(entry.values)
        self.fill(entry, rng.randint(4, 12), 0)
        results = [rng.choice(entry.values[-8:]) for _ in range(rng.randint(1, 4))]
        results += rng.choices(entry.values, k=rng.randint(0, 3))
        root = self.tuple(entry, results)
        self.finish(entry, self.wrapped(entry, root, [r.type for r in results], 0))
        header = "HloModule m" + self.donations(parameters, results)
        lines = "\n".join(entry.lines)
        return "\n".join([header, "", *self.computations, f"ENTRY e {{\n{lines}\n}}", ""])

    def donations(self, parameters: list[Value], results: list[Value]) -> str:
        """``input_output_alias`` of some results with parameters of their types."""
        if self.rng.random() < 0.6:
            return ""
        free = list(enumerate(parameters))
        found: list[str] = []
        for i, result in enumerate(results):
            match = [p for p in free if p[1].type == result.type]
            if match and self.rng.random() < 0.7:
                chosen = self.rng.choice(match)
                free.remove(chosen)
                found.append(f"{{{i}}}: ({chosen[0]}, {{}}, may-alias)")
        return f", input_output_alias={{ {', '.join(found)} }}" if found else ""


def control_module(seed: int) -> str:
    """A random module of control flow as HLO text."""
    return Generator(seed).module()
