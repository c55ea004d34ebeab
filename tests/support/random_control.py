"""Random modules of nested control flow: what loops and branches carry, share, swap and overwrite.

    text = control_module(seed)

All arithmetic is exact (integers of many widths, and sums and maxima of small f32 numbers), so
that evaluator and machine must agree to the bit. What a module has depends on the seed alone:

    loops with counters of every width and sign, counted up, down, past the wrap-around, or not
    run at all; states with one value twice, elements unchanged, swapped, dropped
    conditions, bodies and branches that several instructions share
    updates in place before, in and after loops; reads of what was updated
    conditionals by predicate and by index, with branches that hand on what they were given
    calls, control edges, donated parameters, results that are parameters
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.random_instructions import (
    DIMS,
    DIRECTIONS,
    INTEGERS,
    TYPES,
    Block,
    Instructions,
    Type,
    Value,
    tuple_text,
)

_BITS = {"s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64}
_MOST_TRIPS = 5


@dataclass
class Loop:
    """A condition and a body, and what they carry; the counter is element `counter`."""

    condition: str
    body: str
    types: list[Type]
    counter: int
    first: int
    is_bound_carried: bool


class Generator(Instructions):
    """Writes one module."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.loops: list[Loop] = []
        self.branches: list[tuple[str, list[Type], list[Type]]] = []

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
            direction = self.rng.choice(DIRECTIONS)
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
