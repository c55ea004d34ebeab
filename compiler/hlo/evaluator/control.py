"""Opcodes about computations, tuples and order: call, while, conditional, fusion, async, tuple."""

from __future__ import annotations

import numpy as np

from compiler.hlo.evaluator.context import Context, Handler, Operands, Value, unsupported
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import TupleShape, leaves


def _call(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    if ctx.is_batched:
        results = ctx.call_batched(_callee(instr), list(operands))
        return results if _callee(instr).root_instruction.opcode == "tuple" else results[0]
    return ctx.call(_callee(instr), operands)


def _fusion(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    if ctx.is_batched:
        return _call(ctx, instr, operands)
    return ctx.call_fused(_callee(instr), operands)


def _callee(instr: HloInstruction) -> HloComputation:
    return instr.to_apply if "to_apply" in instr.attrs else instr.calls


def _while(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    condition = instr.condition
    body = instr.body
    state: Value = operands[0]
    while bool(ctx.call(condition, [state])):
        state = ctx.call(body, [state])
    return state


def _conditional(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """A branch index out of range takes the last branch; a predicate takes true, then false."""
    selector = operands[0]
    branches = instr.branches
    if selector.dtype == np.bool_:
        chosen = 0 if selector else 1
    else:
        chosen = int(selector)
        chosen = chosen if 0 <= chosen < len(branches) else len(branches) - 1
    return ctx.call(branches[chosen], [operands[1 + chosen]])


def _tuple(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    return tuple(operands)


def _get_tuple_element(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    element: Value = operands[0][instr.index]
    return element


def _first(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    value: Value = operands[0]
    return value


def _token(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    return ()


def _copy_start(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """(destination, source, context)."""
    return operands[0], operands[0], np.zeros((), np.uint32)


def _copy_done(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    destination: Value = operands[0][0]
    return destination


def _async_start(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """((operands), result, context ...): the work is done at the start."""
    result = ctx.call(instr.calls, operands)
    return tuple(operands), result, np.zeros((), np.uint32)


def _async_done(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    result: Value = operands[0][1]
    return result


def _parameter(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    raise AssertionError(f"%{instr.name}: the interpreter binds parameters itself")


def _refuse_transfer(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    raise unsupported(instr, "it needs a host; evaluate a module without it")


def _scan(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """The computation on each slice of the inputs in turn, with the carries of the one before."""
    body = instr.to_apply
    (dim,) = instr.dimensions
    split = len(operands) - instr.num_carries
    inputs, carries = operands[:split], list(operands[split:])
    shapes = leaves(instr.shape)
    outputs = [np.zeros(s.dims, s.dtype.numpy) for s in shapes[: len(shapes) - len(carries)]]
    count = (inputs[0] if inputs else outputs[0]).shape[dim]
    order = reversed(range(count)) if instr.is_reverse else range(count)
    for i in order:
        at: tuple[slice | int, ...] = (*(slice(None) for _ in range(dim)), i)
        values = ctx.call(body, [*(x[at] for x in inputs), *carries])
        results = list(values) if isinstance(values, tuple) else [values]
        for output, part in zip(outputs, results, strict=False):
            output[at] = part
        carries = results[len(outputs) :]
    found = (*outputs, *carries)
    return found if isinstance(instr.shape, TupleShape) else found[0]


CONTROL_HANDLERS: dict[str, Handler] = {
    "add-dependency": _first,
    "after-all": _token,
    "async-done": _async_done,
    "async-start": _async_start,
    "async-update": _first,
    "call": _call,
    "conditional": _conditional,
    "copy-done": _copy_done,
    "copy-start": _copy_start,
    "domain": _first,
    "fusion": _fusion,
    "get-tuple-element": _get_tuple_element,
    "infeed": _refuse_transfer,
    "opt-barrier": _first,
    "outfeed": _refuse_transfer,
    "parameter": _parameter,
    "scan": _scan,
    "tuple": _tuple,
    "while": _while,
}
