"""Runs computations instruction by instruction, dropping each value after its last use.

    HANDLERS[opcode](context, instruction, operand values) -> value

One handler per opcode of `compiler.hlo.opcodes`. Computations of scalars (reducers, comparators,
scatter updates) also run *batched*: their parameters are bound to whole arrays and elementwise
handlers broadcast; a body that is more than elementwise runs element by element instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import BF16
from compiler.hlo.evaluator import (
    collectives,
    contraction,
    control,
    custom_calls,
    elementwise,
    indexing,
    linalg,
    movement,
    random,
    reduction,
    sorting,
)
from compiler.hlo.evaluator.context import (
    Array,
    EvaluationOptions,
    Handler,
    Operands,
    Value,
    storage_dtype,
    unsupported,
)
from compiler.hlo.evaluator.exchange import Mailboxes, Participant
from compiler.hlo.evaluator.numerics import cast_exactly_once
from compiler.hlo.evaluator.plan import EvaluationStep, make_plan
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.replica_groups import device_counts
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves

HANDLERS: dict[str, Handler] = {
    **collectives.COLLECTIVE_HANDLERS,
    **contraction.CONTRACTION_HANDLERS,
    **control.CONTROL_HANDLERS,
    **custom_calls.CUSTOM_CALL_HANDLERS,
    **elementwise.ELEMENTWISE_HANDLERS,
    **indexing.INDEXING_HANDLERS,
    **linalg.LINALG_HANDLERS,
    **movement.MOVEMENT_HANDLERS,
    **random.RANDOM_HANDLERS,
    **reduction.REDUCTION_HANDLERS,
    **sorting.SORTING_HANDLERS,
}

Watch = Callable[[HloInstruction, Operands, Value], None]

_KEEPS_WIDE = (
    elementwise.KEEPS_WIDE
    | movement.KEEPS_WIDE
    | indexing.KEEPS_WIDE
    | reduction.KEEPS_WIDE
    | {"tuple", "get-tuple-element", "parameter", "opt-barrier"}
)
_BATCHABLE = frozenset(elementwise.ELEMENTWISE_HANDLERS) | {
    "bitcast",
    "bitcast-convert",
    "broadcast",
    "call",
    "constant",
    "copy",
    "fusion",
    "get-tuple-element",
    "parameter",
    "reshape",
    "tuple",
}


def evaluate(
    module: HloModule,
    args: Sequence[Array],
    precision: str = "default",
    *,
    keep_f32_in_fusion: bool = False,
    seed: int = 0,
) -> list[Array]:
    """Run a module's entry computation on flat arguments and return its flat results.

    `args` are the leaves of the parameters in order; each must have the parameter's dimensions
    and element type. `precision` is that of f32 dots without their own: "default", "high" or
    "highest". Raises CompileError for arguments that do not fit, UnsupportedError for an
    instruction that one device cannot run.
    """
    options = EvaluationOptions(precision, keep_f32_in_fusion, seed)
    return evaluate_computation(module.entry, args, options)


def evaluate_computation(
    computation: HloComputation,
    args: Sequence[Array],
    options: EvaluationOptions | None = None,
) -> list[Array]:
    """As `evaluate`, for any computation."""
    return Interpreter(options or EvaluationOptions()).run(computation, args)


def evaluate_devices(
    module: HloModule,
    args: Sequence[Sequence[Array]],
    precision: str = "default",
    *,
    seed: int = 0,
) -> list[list[Array]]:
    """Run a module on all its devices at once; results as `evaluate` returns them, by device.

    `args[r * partitions + p]` are those of replica r's partition p. Raises as `evaluate` does, and
    CompileError naming where each device stands when they wait for each other.
    """
    options = EvaluationOptions(precision, seed=seed)
    exchange = Mailboxes(device_counts(module))
    if len(args) != exchange.counts.devices:
        want = f"one list for each of {exchange.counts.devices} devices"
        raise CompileError(f"found {len(args)} lists of arguments, want {want}")

    def program(number: int) -> list[Array]:
        return Interpreter(options, Participant(number, exchange)).run(module.entry, args[number])

    return exchange.run(program)


def _take(shape: Shape, parameter: HloInstruction, remaining: list[Array]) -> Value:
    """Take the leaves of one parameter off the end of `remaining`, checking each."""
    if isinstance(shape, TupleShape):
        return tuple(_take(element, parameter, remaining) for element in shape.elements)
    if not isinstance(shape, ArrayShape):
        return ()
    if not remaining:
        raise CompileError(f"%{parameter.name}: found no argument, want one", parameter.span)
    array = remaining.pop()
    if array.shape != shape.dims or array.dtype != shape.dtype.numpy:
        found = f"{array.dtype}{list(array.shape)}"
        want = f"{shape.dtype}{list(shape.dims)}"
        raise CompileError(f"%{parameter.name}: found {found}, want {want}", parameter.span)
    return array


def flatten(value: Value) -> list[Array]:
    """The arrays of a value, depth first."""
    if isinstance(value, tuple):
        return [leaf for element in value for leaf in flatten(element)]
    return [value]


class Interpreter:
    """The `Context` of handlers; a plan per computation is made once and kept."""

    def __init__(self, options: EvaluationOptions, device: Participant | None = None) -> None:
        self.options = options
        self.device = device or Participant()
        self.is_wide = False
        self.is_batched = False
        self.generator = np.random.default_rng(options.seed)
        self.rng_state = options.seed
        self.watch: Watch | None = None
        """Called with each instruction, its operands' values and its own, outside of batched bodies."""
        self._plans: dict[HloComputation, list[EvaluationStep]] = {}
        self._batchable: dict[HloComputation, bool] = {}

    def run(self, computation: HloComputation, args: Sequence[Array]) -> list[Array]:
        """Run a computation on flat arguments and return its flat results."""
        remaining = [np.asarray(arg) for arg in reversed(args)]
        operands = [
            _take(parameter.shape, parameter, remaining) for parameter in computation.parameters
        ]
        if remaining:
            want = len(args) - len(remaining)
            raise CompileError(f"%{computation.name}: found {len(args)} arguments, want {want}")
        with np.errstate(all="ignore"):
            result = self.call(computation, operands)
        return [np.array(leaf) for leaf in flatten(result)]

    def call(self, computation: HloComputation, operands: Operands) -> Value:
        """Run a computation on whole operands and return its root's value."""
        values: dict[HloInstruction, Value] = dict(
            zip(computation.parameters, operands, strict=True)
        )
        for step in self._plan(computation):
            if step.instr.opcode != "parameter":
                values[step.instr] = self._execute(step, values)
            for instr in step.dead:
                del values[instr]
        return values[computation.root_instruction]

    def call_fused(self, computation: HloComputation, operands: Operands) -> Value:
        """Run a fusion's computation, in f32 throughout when the options say so."""
        if not self.options.keep_f32_in_fusion or self.is_wide:
            return self.call(computation, operands)
        self.is_wide = True
        try:
            shapes = [parameter.shape for parameter in computation.parameters]
            wide = [self._stored(v, s) for v, s in zip(operands, shapes, strict=True)]
            result = self.call(computation, wide)
        finally:
            self.is_wide = False
        return self._stored(result, computation.root_instruction.shape)

    def call_batched(
        self, computation: HloComputation, operands: Sequence[Array]
    ) -> tuple[Array, ...]:
        """Run a computation of scalars on every element of equally shaped arrays."""
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        if not self._is_batchable(computation):
            return self._call_each(computation, operands, shape)
        was_batched, self.is_batched = self.is_batched, True
        try:
            results = flatten(self.call(computation, operands))
        finally:
            self.is_batched = was_batched
        return tuple(np.broadcast_to(result, shape) for result in results)

    def _call_each(
        self, computation: HloComputation, operands: Sequence[Array], shape: tuple[int, ...]
    ) -> tuple[Array, ...]:
        """As `call_batched`, element by element: for bodies with loops or other shapes."""
        lines = [np.broadcast_to(operand, shape).reshape(-1) for operand in operands]
        shapes = leaves(computation.root_instruction.shape)
        columns = [np.empty(lines[0].size, s.dtype.numpy) for s in shapes]
        for position in range(lines[0].size):
            scalars = [np.asarray(line[position]) for line in lines]
            for column, leaf in zip(columns, flatten(self.call(computation, scalars)), strict=True):
                column[position] = leaf
        return tuple(column.reshape(shape) for column in columns)

    def _execute(self, step: EvaluationStep, values: dict[HloInstruction, Value]) -> Value:
        instr = step.instr
        operands = [values[operand] for operand in instr.operands]
        if not self.is_wide or instr.opcode in _KEEPS_WIDE:
            result = HANDLERS[instr.opcode](self, instr, operands)
        else:
            result = self._execute_rounded(step, operands)
        if not self.is_batched:
            self._check(instr, result)
            if self.watch is not None:
                self.watch(instr, operands, result)
        return result

    def _execute_rounded(self, step: EvaluationStep, operands: Operands) -> Value:
        """Inside a wide fusion: an opcode that needs its operands in their own types."""
        instr = step.instr
        self.is_wide = False
        try:
            narrow = [
                self._stored(v, o.shape) for v, o in zip(operands, instr.operands, strict=True)
            ]
            result = HANDLERS[instr.opcode](self, instr, narrow)
        finally:
            self.is_wide = True
        return self._stored(result, instr.shape)

    def _stored(self, value: Value, shape: Shape) -> Value:
        """Round or widen the bf16 leaves of a value to how they are held here."""
        if isinstance(value, tuple):
            if not isinstance(shape, TupleShape):
                return value
            pairs = zip(value, shape.elements, strict=True)
            return tuple(self._stored(element, s) for element, s in pairs)
        if isinstance(shape, ArrayShape) and shape.dtype is BF16:
            return cast_exactly_once(value, storage_dtype(self, BF16))
        return value

    def _check(self, instr: HloInstruction, result: Value) -> None:
        shape = instr.shape
        if not isinstance(shape, ArrayShape) or isinstance(result, tuple):
            return
        want = storage_dtype(self, shape.dtype)
        assert result.shape == shape.dims, f"{instr}: found {result.shape}, want {shape.dims}"
        assert result.dtype == want, f"{instr}: found {result.dtype}, want {want}"

    def _plan(self, computation: HloComputation) -> list[EvaluationStep]:
        plan = self._plans.get(computation)
        if plan is None:
            plan = self._plans[computation] = make_plan(computation)
            for step in plan:
                if step.instr.opcode not in HANDLERS:
                    raise unsupported(step.instr, "the opcode is unknown")
        return plan

    def _is_batchable(self, computation: HloComputation) -> bool:
        known = self._batchable.get(computation)
        if known is None:
            known = all(
                instr.opcode in _BATCHABLE
                and all(s.rank == 0 for s in leaves(instr.shape))
                and all(self._is_batchable(callee) for callee in instr.called_computations())
                for instr in computation
            )
            self._batchable[computation] = known
        return known
