"""Shapes of tuples, calls, control flow, tokens and asynchronous halves."""

from __future__ import annotations

from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloComputation
from compiler.hlo.ops.custom_calls import custom_call
from compiler.hlo.ops.declaration import (
    APPLY,
    CONVOLUTION_GROUPS,
    PRECISION,
    AttributeRow,
    Op,
    flags,
    variadic,
    words,
)
from compiler.hlo.ops.declaration import Trait as T
from compiler.hlo.ops.inference import Inference, declared, first_operand, plain
from compiler.hlo.shape import Shape, TokenShape, TupleShape, is_compatible
from compiler.hlo.shape_text import print_shape


def _check_call(q: Inference, callee: HloComputation, arguments: tuple[Shape, ...]) -> Shape:
    """The callee's result, after checking the arguments against its parameters."""
    if len(callee.parameters) != len(arguments):
        found, want = len(arguments), len(callee.parameters)
        q.fail(f"%{callee.name} takes {want} parameters, found {found} operands")
    for i, (argument, parameter) in enumerate(zip(arguments, callee.parameters, strict=True)):
        if not is_compatible(argument, parameter.shape):
            q.fail(
                f"parameter {i} of %{callee.name} is {print_shape(parameter.shape, False)}, "
                f"found {print_shape(argument, False)}"
            )
    return callee.root_instruction.shape


def _call(q: Inference) -> Shape:
    return _check_call(q, q.computation("to_apply"), q.shapes)


def _fusion(q: Inference) -> Shape:
    return _check_call(q, q.computation("calls"), q.shapes)


def _conditional(q: Inference) -> Shape:
    selector = q.array(0)
    branches = q.attrs.get("branch_computations")
    if branches is None:
        branches = (q.computation("true_computation"), q.computation("false_computation"))
        is_pred = selector.is_same_array(plain(PRED, ()))
        q.require(is_pred, "operand 0 of a two-way conditional is pred[]")
    if not isinstance(branches, tuple) or not branches:
        q.fail("want branch_computations={...}")
    q.require(selector.rank == 0, "operand 0 must be a scalar")
    q.require(len(q.shapes) == 1 + len(branches), f"want one operand per branch ({len(branches)})")
    results = [
        _check_call(q, branch, (argument,))
        for branch, argument in zip(branches, q.shapes[1:], strict=True)
    ]
    for branch, result in zip(branches, results, strict=True):
        if not is_compatible(result, results[0]):
            q.fail(f"%{branch.name} returns another shape than %{branches[0].name}")
    return results[0]


def _while(q: Inference) -> Shape:
    state = q.shapes[0]
    condition = _check_call(q, q.computation("condition"), q.shapes)
    if not is_compatible(condition, plain(PRED, ())):
        q.fail(f"the condition returns {print_shape(condition, False)}, want pred[]")
    body = _check_call(q, q.computation("body"), q.shapes)
    if not is_compatible(body, state):
        q.fail(f"the body returns {print_shape(body, False)}, want {print_shape(state, False)}")
    return state


def _tuple(q: Inference) -> Shape:
    return TupleShape(q.shapes)


def _element(q: Inference, index: int) -> Shape:
    operand = q.shapes[0]
    if not isinstance(operand, TupleShape):
        q.fail(f"operand is {print_shape(operand, False)}, want a tuple")
    if not 0 <= index < len(operand.elements):
        q.fail(f"index {index} of a tuple of {len(operand.elements)}")
    return operand.elements[index]


def _get_tuple_element(q: Inference) -> Shape:
    return _element(q, q.integer("index"))


def _copy_done(q: Inference) -> Shape:
    return _element(q, 0)


def _token(q: Inference) -> Shape:
    return TokenShape()


def _after_all(_q: Inference) -> Shape:
    """Operands may be tokens or, in what passes make, any values that must have been computed."""
    return TokenShape()


def _async_done(q: Inference) -> Shape:
    """An async value is ((operands), result, context...): done returns the result."""
    return _element(q, 1)


_TRANSFER = (*words("channel_id"), *flags("is_host_transfer"))

OPS = (
    Op("add-dependency", 2, first_operand, T.TUPLE_ONLY),
    variadic("after-all", 0, _after_all, T.TUPLE_ONLY),
    variadic(
        "async-done",
        1,
        _async_done,
        T.ASYNC | T.CALLS,
        (),
        ("async_execution_thread", "calls"),
        most=1,
    ),
    variadic(
        "async-start",
        0,
        declared,
        T.ASYNC | T.CALLS,
        words("async_execution_thread output_to_operand_aliasing calls"),
    ),
    variadic(
        "async-update",
        1,
        first_operand,
        T.ASYNC | T.CALLS,
        (),
        ("async_execution_thread", "calls"),
        most=1,
    ),
    variadic("call", 0, _call, T.CALLS | T.CONTROL_FLOW | T.RUNS, (*APPLY, *flags("is_composite"))),
    variadic(
        "conditional",
        1,
        _conditional,
        T.CALLS | T.CONTROL_FLOW | T.RUNS | T.HANDS_STATE | T.CARRIES,
        words("true_computation false_computation branch_computations"),
    ),
    Op("copy-done", 1, _copy_done, T.ASYNC),
    Op("copy-start", 1, declared, T.ASYNC, words("cross_program_prefetch_index")),
    variadic(
        "custom-call",
        0,
        custom_call,
        T.CALLS | T.OPAQUE,
        (
            *words("window dim_labels"),
            *CONVOLUTION_GROUPS,
            *PRECISION,
            *words("padding_type custom_call_target operand_layout_constraints"),
            *flags("custom_call_has_side_effect"),
            *words("literal output_to_operand_aliasing"),
            AttributeRow("schedule", omitted="SCHEDULE_NONE"),
            AttributeRow("custom_call_schedule", omitted="SCHEDULE_NONE"),
            AttributeRow("api_version", omitted="API_VERSION_ORIGINAL"),
            *words("called_computations"),
        ),
        ("to_apply",),
    ),
    Op("domain", 1, first_operand, T.TUPLE_ONLY, words("domain")),
    variadic(
        "fusion",
        0,
        _fusion,
        T.KERNEL | T.CALLS | T.RUNS,
        words("kind output_to_operand_aliasing calls"),
    ),
    Op(
        "get-tuple-element",
        1,
        _get_tuple_element,
        T.TUPLE_ONLY | T.FORWARDS | T.CARRIES,
        words("index"),
    ),
    Op("infeed", 1, declared, T.SIDE_EFFECT, (AttributeRow("infeed_config", omitted=""),)),
    Op("opt-barrier", 1, first_operand, T.TUPLE_ONLY | T.CARRIES),
    Op(
        "outfeed",
        2,
        _token,
        T.SIDE_EFFECT,
        (*words("outfeed_shape"), AttributeRow("outfeed_config", omitted="")),
    ),
    Op("recv", 1, declared, T.SIDE_EFFECT | T.ASYNC, _TRANSFER),
    Op("recv-done", 1, declared, T.SIDE_EFFECT | T.ASYNC, _TRANSFER),
    Op("send", 2, declared, T.SIDE_EFFECT | T.ASYNC, _TRANSFER),
    Op("send-done", 1, _token, T.SIDE_EFFECT | T.ASYNC, _TRANSFER),
    variadic("tuple", 0, _tuple, T.TUPLE_ONLY | T.FORWARDS | T.CARRIES),
    Op(
        "while",
        1,
        _while,
        T.CALLS | T.CONTROL_FLOW | T.RUNS | T.HANDS_STATE | T.CARRIES,
        words("condition body"),
    ),
)
