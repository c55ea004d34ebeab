"""Tuple flattener: what control flow takes and gives is one flat tuple.

XLA lets a loop carry a single array, and loops and branches tuples within tuples. Every later pass
and the backend follow values element by element, so such a tuple becomes one of its arrays: a
computation takes it apart at its start, and puts its result together at its end.
A constant that is a tuple becomes a tuple of constants.

Tokens are left out, also of the entry's parameters and results: they hold nothing, and what they
order runs in order anyway. So the host, which counts arrays, neither gives nor gets one.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import Shape, TokenShape, TupleShape
from compiler.passes.context import PassContext
from compiler.passes.signature import Replacement
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit

Instr = HloInstruction
_WHOLE = with_trait(Trait.CARRIES) - {"opt-barrier"}
"""What is or hands on a tuple without a kernel."""


def flatten_tuples(module: HloModule, context: PassContext) -> bool:
    """Flatten the tuples that loops carry and conditionals pass."""
    context.counts["tokens"] += _drop_tokens(module)
    flattener = _Flattener()
    for computation in control_computations(module):
        before = context.counts["tuples"]
        for instr in list(computation):
            context.counts["tuples"] += (
                _write_parts(instr) or _copy_parts(instr) or _bar_parts(instr) or _take_apart(instr)
            )
            if instr.opcode == "while":
                context.counts["tuples"] += flattener.flatten_loop(instr)
            elif instr.opcode == "conditional":
                context.counts["tuples"] += flattener.flatten_conditional(instr)
        if context.counts["tuples"] > before:
            computation.sort()
    context.counts["tuples"] += _spell_out(module.entry)
    return bool(context.counts["tuples"] or context.counts["tokens"])


_TOKENLESS = Replacement(lambda shape: () if isinstance(shape, TokenShape) else (shape,))


def _drop_tokens(module: HloModule) -> bool:
    """Give the entry a signature without tokens; return whether it had any."""
    entry = module.entry
    has_tokens = [p for p in entry.parameters if _TOKENLESS.lowered(p.shape) != p.shape]
    result = _TOKENLESS.lowered(entry.root_instruction.shape)
    if not has_tokens and result == entry.root_instruction.shape:
        return False
    attrs = _TOKENLESS.attributes(module)
    for parameter in has_tokens:
        if isinstance(parameter.shape, TokenShape):
            parameter.replace_all_uses_with(emit(parameter, "after-all", parameter.shape))
            entry.remove(parameter)
        else:
            _reshape_value(parameter, _TOKENLESS.lowered(parameter.shape))
    for number, parameter in enumerate(entry.parameters):
        parameter.attrs["parameter_number"] = number
    root = entry.root_instruction
    if result != root.shape:
        entry.root = _nested(root, result, _leaves(root))
    module.attrs = attrs
    entry.sort()
    return True


def _write_parts(instr: Instr) -> bool:
    """A constant of a tuple is a tuple of constants."""
    parts = constant_parts(instr)
    if parts is not None:
        instr.replace_all_uses_with(parts)
        instr.home.remove(instr)
    return parts is not None


def constant_parts(instr: Instr) -> Instr | None:
    """A tuple of constants for a constant of a tuple; None for that of an array."""
    if instr.opcode != "constant" or not isinstance(instr.shape, TupleShape):
        return None
    return _constants(Emitter.at(instr), instr.attrs["literal"], instr.shape)


def _constants(e: Emitter, value: object, shape: Shape) -> Instr:
    if not isinstance(shape, TupleShape):
        return e.instruction("constant", (), {"literal": value}, shape)
    assert isinstance(value, tuple)
    pairs = zip(value, shape.elements, strict=True)
    return e.tuple([_constants(e, part, element) for part, element in pairs])


def _copy_parts(instr: Instr) -> bool:
    """A copy of a tuple is a tuple of copies."""
    if instr.opcode != "copy" or not isinstance(instr.shape, TupleShape):
        return False
    parts = [emit(instr, "copy", leaf.shape, (leaf,)) for leaf in _leaves(instr.operands[0])]
    instr.replace_all_uses_with(_nested(instr, instr.shape, iter(parts)))
    instr.home.remove(instr)
    return True


def _bar_parts(instr: Instr) -> bool:
    """A barrier is one of the arrays in its tuple."""
    if instr.opcode != "opt-barrier" or not _is_nested(instr.shape):
        return False
    flat = _flattened(instr.operands[0])
    barrier = emit(instr, "opt-barrier", flat.shape, (flat,))
    instr.replace_all_uses_with(_nested(instr, instr.shape, _leaves(barrier)))
    instr.home.remove(instr)
    return True


def _take_apart(instr: Instr) -> bool:
    """The result of a kernel that gives several arrays is read an array at a time."""
    computation = instr.computation
    if computation is None or instr.opcode in _WHOLE or not isinstance(instr.shape, TupleShape):
        return False
    users = [user for user in instr.users if user.opcode != "get-tuple-element"]
    is_root = computation.root is instr
    if not users and not is_root:
        return False
    whole = _nested(instr, instr.shape, _leaves(instr))
    for user in users:
        user.set_operands([whole if o is instr else o for o in user.operands])
    if is_root:
        computation.root = whole
    return True


def _spell_out(entry: HloComputation) -> bool:
    """Make a nested result of tuples of arrays, each of which can be copied by itself."""
    root = entry.root_instruction
    if not _is_nested(root.shape) or _is_spelled_out(root):
        return False
    entry.root = _nested(root, root.shape, _leaves(root))
    entry.sort()
    return True


class _Flattener:
    """Knows which ends of which computations are flat: several instructions may share one."""

    def __init__(self) -> None:
        self._done: set[tuple[HloComputation, str]] = set()

    def flatten_loop(self, loop: Instr) -> bool:
        """Make the state a flat tuple; return whether it was none."""
        if isinstance(loop.shape, TupleShape) and not _is_nested(loop.shape):
            return False
        condition, body = loop.condition, loop.body
        self._parameter(condition)
        self._parameter(body)
        self._root(body)
        loop.set_operands([_flattened(loop.operands[0])])
        _flatten_value(loop)
        return True

    def flatten_conditional(self, instr: Instr) -> bool:
        """Make nested tuples flat that go into a branch or come out; return whether any did."""
        operands = list(instr.operands)
        for index, branch in enumerate(instr.called_computations()):
            if _is_nested(operands[index + 1].shape):
                self._parameter(branch)
                operands[index + 1] = _flattened(operands[index + 1])
            if _is_nested(instr.shape):
                self._root(branch)
        is_changed = operands != instr.operands or _is_nested(instr.shape)
        instr.set_operands(operands)
        if _is_nested(instr.shape):
            _flatten_value(instr)
        return is_changed

    def _parameter(self, callee: HloComputation) -> None:
        if (callee, "parameter") not in self._done:
            self._done.add((callee, "parameter"))
            _flatten_value(callee.parameters[0])
            callee.sort()

    def _root(self, callee: HloComputation) -> None:
        if (callee, "root") not in self._done:
            self._done.add((callee, "root"))
            callee.root = _flattened(callee.root_instruction)
            callee.sort()


def _is_nested(shape: Shape) -> bool:
    """Whether a shape is or has a token, or is a tuple with tuples in it."""
    if isinstance(shape, TupleShape):
        return any(isinstance(part, TupleShape | TokenShape) for part in shape.elements)
    return isinstance(shape, TokenShape)


def _is_spelled_out(value: Instr) -> bool:
    if value.opcode == "tuple":
        return all(_is_spelled_out(operand) for operand in value.operands)
    return not isinstance(value.shape, TupleShape)


def _flat(shape: Shape) -> TupleShape:
    return TupleShape(tuple(_parts(shape)))


def _parts(shape: Shape) -> Iterator[Shape]:
    """What a shape has at its leaves but for tokens."""
    if isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from _parts(element)
    elif not isinstance(shape, TokenShape):
        yield shape


def _leaves(value: Instr) -> Iterator[Instr]:
    if isinstance(value.shape, TokenShape):
        return
    if not isinstance(value.shape, TupleShape):
        yield value
        return
    for index, shape in enumerate(value.shape.elements):
        yield from _leaves(emit(value, "get-tuple-element", shape, (value,), {"index": index}))


def _flattened(value: Instr) -> Instr:
    parts = tuple(_leaves(value))
    return emit(value, "tuple", _flat(value.shape), parts)


def _nested(near: Instr, shape: Shape, parts: Iterator[Instr]) -> Instr:
    """The value of a shape from its leaves, in order; a token is a new one."""
    if isinstance(shape, TokenShape):
        return emit(near, "after-all", shape)
    if not isinstance(shape, TupleShape):
        return next(parts)
    elements = [_nested(near, element, parts) for element in shape.elements]
    return emit(near, "tuple", shape, elements)


def _flatten_value(value: Instr) -> None:
    """Give `value` its flat shape."""
    _reshape_value(value, _flat(value.shape))


def _reshape_value(value: Instr, new: Shape) -> None:
    """Give `value` a shape of the same arrays; who uses it gets what it was, put together again."""
    computation, shape, users = value.home, value.shape, list(value.users)
    value.shape = new
    whole = _nested(value, shape, _leaves(value))
    for user in users:
        user.set_operands([whole if o is value else o for o in user.operands])
    if computation.root is value:
        computation.root = whole
