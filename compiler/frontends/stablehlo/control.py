"""Control flow, calls, tuples and tokens.

HLO computations see nothing but their parameters. What a region of a while, case or if uses from
outside becomes part of the loop state or of the branch's argument, except for constants, which are
made again inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontends.stablehlo.body import Body, Instr, Lowering, is_plain_constant
from compiler.frontends.stablehlo.chlo import ragged_dot_composite
from compiler.frontends.stablehlo.elementwise import take, take_some
from compiler.frontends.stablehlo.syntax import Operation, Region
from compiler.hlo.dtypes import PRED, U32
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import ArrayShape, TokenShape, TupleShape

_MAX_DEPTH = 100  # of functions calling functions


def free_names(regions: Sequence[Region]) -> list[str]:
    """Names of values that the regions use but do not define, in order of first use."""
    found: dict[str, None] = {}
    for region in regions:
        _collect(region, set(), found)
    return list(found)


def _collect(region: Region, outer: set[str], found: dict[str, None]) -> None:
    defined = outer | {name for name, _ in region.arguments}
    for op in region.operations:
        for operand in op.operands:
            if operand.partition("#")[0] not in defined:
                found.setdefault(operand)
        for inner in op.regions:
            _collect(inner, defined, found)
        defined.update(name for name, _ in op.results)


def _captures(b: Body, regions: Sequence[Region]) -> dict[str, Instr]:
    """What the regions need to be passed: free names that are not plain constants."""
    found: dict[str, Instr] = {}
    for name in free_names(regions):
        value = b.value(name)
        if not is_plain_constant(value):
            found[name] = value
    return found


def _distinct(captured: dict[str, Instr]) -> list[Instr]:
    return list(dict.fromkeys(captured.values()))


def _while(b: Body, op: Operation) -> list[Instr]:
    if len(op.regions) != 2:
        op.fail("want a condition and a body")
    inits = b.operands()
    captured = _captures(b, op.regions)
    extras = _distinct(captured)
    state = [*inits, *extras]
    condition = _loop_region(b, op.regions[0], "condition", inits, state, captured)
    body = _loop_region(b, op.regions[1], "body", inits, state, captured)
    loop = b.while_(condition, body, b.pack(state))
    if len(state) == 1:
        return [loop]
    return [b.get_tuple_element(loop, i) for i in range(len(inits))]


def _loop_region(
    b: Body,
    region: Region,
    name: str,
    inits: Sequence[Instr],
    state: Sequence[Instr],
    captured: dict[str, Instr],
) -> HloComputation:
    child = Body(b.unit, name, b.op, b)
    if len(region.arguments) != len(inits):
        b.op.fail(f"the {name} takes {len(region.arguments)} arguments, want {len(inits)}")
    extras = state[len(inits) :]
    elements = _parameter_elements(child, state)
    for (argument, _), element in zip(region.arguments, elements, strict=False):
        child.bind(argument, element)
    for captured_name, value in captured.items():
        child.capture(captured_name, elements[len(inits) + extras.index(value)])
    results = child.lower_block(region.operations)
    if name == "condition":
        if len(results) != 1:
            b.op.fail(f"the condition returns {len(results)} values, want one")
        return child.build(results[0])
    return child.build(child.pack([*results, *elements[len(inits) :]]))


def _parameter_elements(child: Body, state: Sequence[Instr]) -> list[Instr]:
    """The parameter of a computation, taken apart: one instruction per state element."""
    if len(state) == 1:
        return [child.parameter(state[0].shape, "arg")]
    parameter = child.parameter(TupleShape(tuple(v.shape for v in state)), "arg_tuple")
    return [child.get_tuple_element(parameter, i) for i in range(len(state))]


def _branches(
    b: Body, op: Operation, names: Sequence[str]
) -> tuple[list[HloComputation], list[Instr]]:
    """A computation and an argument for each region."""
    computations, arguments = [], []
    for region, name in zip(op.regions, names, strict=True):
        captured = _captures(b, [region])
        values = _distinct(captured)
        child = Body(b.unit, name, op, b)
        elements = dict(zip(values, _parameter_elements(child, values), strict=True))
        for captured_name, value in captured.items():
            child.capture(captured_name, elements[value])
        results = child.lower_block(region.operations)
        computations.append(child.build(child.pack(results)))
        b.op = op
        arguments.append(b.pack(values))
    return computations, arguments


def _if(b: Body, op: Operation) -> list[Instr]:
    (predicate,) = take(b, op, 1)
    if len(op.regions) != 2:
        op.fail("want two regions")
    branches, arguments = _branches(b, op, ("true_branch", "false_branch"))
    return _conditional(b, op, predicate, branches, arguments)


def _case(b: Body, op: Operation) -> list[Instr]:
    (index,) = take(b, op, 1)
    if not op.regions:
        op.fail("want at least one region")
    names = [f"branch_{i}" for i in range(len(op.regions))]
    branches, arguments = _branches(b, op, names)
    if index.array.dtype is PRED:
        op.fail("the index is i1, want an integer")
    return _conditional(b, op, index, branches, arguments)


def _conditional(
    b: Body,
    op: Operation,
    selector: Instr,
    branches: list[HloComputation],
    arguments: list[Instr],
) -> list[Instr]:
    chosen = b.conditional(selector, branches, arguments)
    return _elements(b, chosen, op.result_count)


# Calls.


def _call(b: Body, op: Operation) -> list[Instr]:
    return call(b, op, b.attributes().string("callee"), b.operands())


def call(b: Body, op: Operation, name: str, operands: list[Instr]) -> list[Instr]:
    """Call a function of the module; one with unknown dimensions is inlined instead."""
    function = b.unit.functions.get(name)
    if function is None:
        op.fail(f"function @{name} is not defined")
    if name in b.unit.active or len(b.unit.active) > _MAX_DEPTH:
        op.fail(f"function @{name} calls itself; recursion is not supported")
    b.unit.active.append(name)
    try:
        if _is_polymorphic(function):
            return _inline(b, op, function, operands)
        computation = b.function(name)
    finally:
        b.unit.active.pop()
    b.op = op
    called = b.call(computation, operands)
    count = _result_count(function)
    return _elements(b, called, count)


def _is_polymorphic(function: Operation) -> bool:
    """Whether any type in it has an unknown dimension."""
    text = "".join(kind for _, kind in function.regions[0].arguments) if function.regions else ""
    return "?" in text or _mentions_unknown(function.regions)


def _mentions_unknown(regions: Sequence[Region]) -> bool:
    return any(
        "?" in op.signature or _mentions_unknown(op.regions)
        for region in regions
        for op in region.operations
    )


def _result_count(function: Operation) -> int:
    operations = function.regions[0].operations if function.regions else []
    return len(operations[-1].operands) if operations else 0


def _inline(b: Body, op: Operation, function: Operation, operands: list[Instr]) -> list[Instr]:
    """Lower a function's operations here, so that shapes given as constants are known in it."""
    if not function.regions:
        op.fail("the function is declared, but has no body")
    return inline_region(b, op, function.regions[0], operands)


def inline_region(b: Body, op: Operation, region: Region, operands: list[Instr]) -> list[Instr]:
    """Lower the operations of an isolated region here, on these operands."""
    if len(region.arguments) != len(operands):
        op.fail(f"{len(operands)} operands, the body takes {len(region.arguments)}")
    outer = b.values, b.captured, b.parent
    b.values, b.captured, b.parent = {}, {}, None
    try:
        for (argument, _), operand in zip(region.arguments, operands, strict=True):
            b.bind(argument, operand)
        results = b.lower_block(region.operations)
    finally:
        b.values, b.captured, b.parent = outer
        b.op = op
    return results


def _composite(b: Body, op: Operation) -> list[Instr]:
    """A composite operation is one that HLO has, or its decomposition, a function of the module."""
    if b.attributes().string("name", "") == "chlo.ragged_dot":
        return [ragged_dot_composite(b, op)]
    return call(b, op, b.attributes().string("decomposition"), b.operands())


# Tuples and tokens.


def _tuple(b: Body, op: Operation) -> Instr:
    return b.tuple(b.operands())


def _get_tuple_element(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    return b.get_tuple_element(operand, b.attributes().integer("index"))


def _optimization_barrier(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    if not operands:
        return []
    barrier = b.instruction("opt-barrier", (b.pack(operands),))
    return _elements(b, barrier, len(operands))


def _after_all(b: Body, op: Operation) -> Instr:
    return b.instruction("after-all", b.operands())


def _async_start(b: Body, op: Operation) -> Instr:
    """What is begun is its region; when it runs beside others is for the scheduler to say."""
    if len(op.regions) != 1:
        op.fail("want one region")
    return b.pack(inline_region(b, op, op.regions[0], b.operands()))


def _async_update(b: Body, op: Operation) -> Instr:
    (begun,) = take(b, op, 1)
    return begun


def _async_done(b: Body, op: Operation) -> list[Instr]:
    (begun,) = take(b, op, 1)
    return _elements(b, begun, op.result_count)


def _infeed(b: Body, op: Operation) -> list[Instr]:
    (token,) = take(b, op, 1)
    *arrays, last = b.result_types()
    if not isinstance(last, TokenShape):
        op.fail("the last result must be a token")
    attrs: dict[str, object] = {}
    if config := b.attributes().string("infeed_config", ""):
        attrs["infeed_config"] = config
    fed = b.instruction("infeed", (token,), attrs, TupleShape((b.pack_types(arrays), last)))
    values = b.get_tuple_element(fed, 0)
    return [*_elements(b, values, len(arrays)), b.get_tuple_element(fed, 1)]


def _outfeed(b: Body, op: Operation) -> Instr:
    *values, token = take_some(b, op, 1)
    attrs: dict[str, object] = {}
    if config := b.attributes().string("outfeed_config", ""):
        attrs["outfeed_config"] = config
    return b.instruction("outfeed", (b.pack(values), token), attrs)


def _send(b: Body, op: Operation) -> Instr:
    *values, token = take_some(b, op, 1)
    attrs = _transfer(b)
    context = TupleShape(
        (b.pack_types([v.shape for v in values]), ArrayShape(U32, ()), token.shape)
    )
    sent = b.instruction("send", (b.pack(values), token), attrs, context)
    return b.instruction("send-done", (sent,), dict(attrs))


def _recv(b: Body, op: Operation) -> list[Instr]:
    (token,) = take(b, op, 1)
    attrs = _transfer(b)
    *arrays, _ = b.result_types()
    data = b.pack_types(arrays)
    context = TupleShape((data, ArrayShape(U32, ()), token.shape))
    begun = b.instruction("recv", (token,), attrs, context)
    done = b.instruction("recv-done", (begun,), dict(attrs), TupleShape((data, token.shape)))
    values = b.get_tuple_element(done, 0)
    return [*_elements(b, values, len(arrays)), b.get_tuple_element(done, 1)]


def _transfer(b: Body) -> dict[str, object]:
    a = b.attributes()
    attrs: dict[str, object] = {"channel_id": a.record("channel_handle").integer("handle", 0)}
    if a.flag("is_host_transfer"):
        attrs["is_host_transfer"] = True
    return attrs


def _elements(b: Body, value: Instr, count: int) -> list[Instr]:
    """What `pack` put together."""
    return [value] if count == 1 else [b.get_tuple_element(value, i) for i in range(count)]


TABLE: dict[str, Lowering] = {
    "func.call": _call,
    "stablehlo.after_all": _after_all,
    "stablehlo.async_done": _async_done,
    "stablehlo.async_start": _async_start,
    "stablehlo.async_update": _async_update,
    "stablehlo.case": _case,
    "stablehlo.composite": _composite,
    "stablehlo.create_token": _after_all,
    "stablehlo.get_tuple_element": _get_tuple_element,
    "stablehlo.if": _if,
    "stablehlo.infeed": _infeed,
    "stablehlo.optimization_barrier": _optimization_barrier,
    "stablehlo.outfeed": _outfeed,
    "stablehlo.recv": _recv,
    "stablehlo.send": _send,
    "stablehlo.tuple": _tuple,
    "stablehlo.while": _while,
}
