"""The device's random state as a value: `rng` and `rng-get-and-update-state` without side effects.

A u32 scalar counts how many 128-bit counters were used. It starts at 0 with every run of the
program, passes through every instruction that draws, and through the loops and branches that
hold one, as one more element of what they carry. After 2^32 counters it starts over.
"""

from __future__ import annotations

import math

from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import control_computations, drop_unreachable
from compiler.hlo.cloning import clone_computation
from compiler.hlo.dtypes import BY_NAME, F32, PRED, U32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.context import PassContext
from compiler.passes.expanders.counter_generators import advance, count_up, philox_4x32
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
DRAWS = with_trait(Trait.NONDETERMINISTIC)
_KEY = (0x243F6A88, 0x85A308D3)  # the first digits of pi
_U64 = BY_NAME["u64"]
_COUNTER = ArrayShape(U32, ())


def thread_random_state(module: HloModule, context: PassContext) -> bool:
    """Expand every drawing instruction of the program's control flow."""
    drawing = _drawing(module)
    if module.entry not in drawing:
        return False
    e = Emitter.at(module.entry.root_instruction)
    _Thread(drawing, context).run(module.entry, e.constant(U32, 0))
    module.entry.sort()
    drop_unreachable(module)
    return True


def _drawing(module: HloModule) -> set[HloComputation]:
    """The computations that draw, themselves or through what they call."""
    found: set[HloComputation] = set()
    for computation in control_computations(module):  # callees first
        for instr in computation:
            if instr.opcode in DRAWS or any(c in found for c in instr.called_computations()):
                found.add(computation)
    return found


class _Thread:
    """Passes the counter through computations; each is copied, as two loops may share one."""

    def __init__(self, drawing: set[HloComputation], context: PassContext) -> None:
        self.drawing = drawing
        self.context = context

    def run(self, computation: HloComputation, counter: Instr) -> Instr:
        """Expand in one computation; return the counter at its end."""
        for instr in list(computation):
            if instr.opcode in DRAWS:
                value, counter = _drawn(instr, counter)
                self._replace(instr, value)
            elif any(c in self.drawing for c in instr.called_computations()):
                counter = self._control(instr, counter)
        return counter

    def _replace(self, instr: Instr, value: Instr) -> None:
        self.context.counts[instr.opcode] += 1
        instr.replace_all_uses_with(value)
        instr.home.remove(instr)

    def _control(self, instr: Instr, counter: Instr) -> Instr:
        e = Emitter.at(instr)
        if instr.opcode == "while":
            condition, body = instr.condition, instr.body
            if condition in self.drawing:
                raise UnsupportedError(
                    f"%{instr.name}: a loop condition that draws random numbers; draw in the body",
                    instr.span,
                )
            init = _with_counter(e, instr.operands[0], counter)
            made = e.while_(self._copy(condition), self._copy(body, returns=True), init)
        elif instr.opcode == "conditional":
            branches = [self._copy(c, returns=True) for c in instr.called_computations()]
            arguments = [_with_counter(e, a, counter) for a in instr.operands[1:]]
            made = e.conditional(instr.operands[0], branches, arguments)
        else:
            raise UnsupportedError(
                f"%{instr.name}: random numbers inside {instr.opcode}; draw them before",
                instr.span,
            )
        self._replace(instr, _without_counter(e, made, instr.shape))
        assert isinstance(made.shape, TupleShape)
        return e.get_tuple_element(made, len(made.shape.elements) - 1)

    def _copy(self, source: HloComputation, *, returns: bool = False) -> HloComputation:
        """A copy whose parameter carries the counter, and whose result does if it `returns`."""
        copy = clone_computation(source, f"{source.name}.random", source.owner)
        (old,) = copy.parameters
        e = Emitter.at(old)
        shape = TupleShape((*_elements(old.shape), _COUNTER))
        new = HloInstruction("parameter", "state", shape, (), {"parameter_number": 0})
        copy.add(new)
        old.replace_all_uses_with(_without_counter(e, new, old.shape))
        copy.remove(old)
        counter = e.get_tuple_element(new, len(shape.elements) - 1)
        copy.sort()
        if returns:
            last = self.run(copy, counter) if source in self.drawing else counter
            copy.root = _with_counter(e, copy.root_instruction, last)
        copy.sort()
        return copy


def _elements(shape: Shape) -> tuple[Shape, ...]:
    return shape.elements if isinstance(shape, TupleShape) else (shape,)


def _with_counter(e: Emitter, value: Instr, counter: Instr) -> Instr:
    """A tuple of the value (of its elements) and the counter."""
    if not isinstance(value.shape, TupleShape):
        return e.tuple([value, counter])
    count = len(value.shape.elements)
    return e.tuple([*(e.get_tuple_element(value, i) for i in range(count)), counter])


def _without_counter(e: Emitter, value: Instr, shape: Shape) -> Instr:
    """What `_with_counter` was given."""
    if not isinstance(shape, TupleShape):
        return e.get_tuple_element(value, 0)
    return e.tuple([e.get_tuple_element(value, i) for i in range(len(shape.elements))])


def _drawn(instr: Instr, counter: Instr) -> tuple[Instr, Instr]:
    """The value of a drawing instruction, and the counter after it."""
    e = Emitter.at(instr)
    if instr.opcode == "rng-get-and-update-state":
        delta = instr.delta
        zero = e.constant(U32, 0)
        words = e.join([e.reshape(w, (1,)) for w in (counter, zero, zero, zero)], 0)
        value = e.bitcast_convert(e.reshape(words, (2, 2)), _U64)
        return e.shaped(value, instr.array.dims), _advanced(e, counter, delta)
    count = instr.array.element_count
    distribution = instr.distribution
    is_wide = instr.array.dtype.bits == 64 and instr.array.dtype.is_integer
    needed = count * (2 if is_wide or distribution == "rng_normal" else 1)
    blocks = max(1, -(-needed // 4))
    flat = _bits(e, counter, blocks, needed)
    after = _advanced(e, counter, blocks)
    if distribution == "rng_normal":
        return _normal(e, instr, flat, count), after
    if distribution != "rng_uniform":
        raise UnsupportedError(f"%{instr.name}: distribution={distribution}", instr.span)
    return _uniform(e, instr, flat, count), after


def _advanced(e: Emitter, counter: Instr, count: int) -> Instr:
    return advance(e, counter, e.constant(U32, 0), count)[0]


def _bits(e: Emitter, counter: Instr, blocks: int, needed: int) -> Instr:
    """u32 words ``[needed]``."""
    key = (e.constant(U32, _KEY[0]), e.constant(U32, _KEY[1]))
    low, high = count_up(e, counter, e.constant(U32, 0), blocks)
    zero = e.like(low, 0)
    words = philox_4x32(e, key, (low, high, zero, zero))
    stacked = e.join([e.reshape(word, (blocks, 1)) for word in words], 1)
    return e.part(e.reshape(stacked, (4 * blocks,)), 0, 0, needed)


def _unit(e: Emitter, words: Instr) -> Instr:
    """f32 in [0, 1): 23 random bits behind the point of 1.x, less 1."""
    mantissa = e.binary("shift-right-logical", words, e.like(words, 9))
    one = e.or_(mantissa, e.like(words, 0x3F800000))
    value = e.bitcast_convert(one, F32)
    return e.subtract(value, e.like(value, 1))


def _uniform(e: Emitter, instr: Instr, words: Instr, count: int) -> Instr:
    dims, dtype = instr.array.dims, instr.array.dtype
    if dtype == PRED:
        odd = e.and_(words, e.like(words, 1))
        return e.shaped(e.compare_to(odd, 1, "EQ"), dims)
    low, high = (e.broadcast(bound, dims) if dims else bound for bound in instr.operands)
    if dtype.is_integer:
        if dtype.bits == 64:
            wide = e.bitcast_convert(e.reshape(words, (count, 2)), _U64)
        else:
            wide = words
        bits = wide.array.dtype
        span = e.subtract(e.cast(high, bits), e.cast(low, bits))
        drawn = e.binary("remainder", e.shaped(wide, dims), span)
        return e.add(low, e.cast(drawn, dtype))
    unit = e.shaped(_unit(e, words), dims)
    bottom, top = e.cast(low, F32), e.cast(high, F32)
    return e.cast(e.add(bottom, e.multiply(unit, e.subtract(top, bottom))), dtype)


def _normal(e: Emitter, instr: Instr, words: Instr, count: int) -> Instr:
    """Box and Muller: ``sqrt(-2 log u) cos(2 pi v)`` with u in (0, 1]."""
    dims = instr.array.dims
    first, second = e.part(words, 0, 0, count), e.part(words, 0, count, 2 * count)
    u = e.subtract(e.full(F32, (count,), 1), _unit(e, first))
    angle = e.multiply(_unit(e, second), e.full(F32, (count,), 2 * math.pi))
    radius = e.unary("sqrt", e.multiply(e.unary("log", u), e.full(F32, (count,), -2)))
    drawn = e.shaped(e.multiply(radius, e.unary("cosine", angle)), dims)
    mean, deviation = (e.cast(e.broadcast(v, dims) if dims else v, F32) for v in instr.operands)
    return e.cast(e.add(e.multiply(drawn, deviation), mean), instr.array.dtype)
