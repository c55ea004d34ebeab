"""Programs that talk to the host while they run, cut into programs that do not.

A device runs a program from its start to its end. A ``send`` to the host or a ``recv`` from it, as JAX's
callbacks have them, is made by running what comes before it, handing values over, and running the rest:

    y = f(x); send(y); z = recv(); g(x, z)     ->     run f; send y; receive z; run g

`stage_program` finds the stages: an operation belongs to the first one in which all of its operands are
there. What is not used after a transfer is not waited for, so a program that only prints is one stage.
Transfers are made in the order of the program. A loop or a branch with transfers inside is a step of its
own, whose condition, body and branches are programs in stages again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from compiler.hlo.call_graph import control_computations, post_order
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.shape import ArrayShape, TokenShape, TupleShape
from compiler.passes.call_inliner import inline_calls
from compiler.passes.context import PassContext
from compiler.passes.dce import eliminate_dead_code
from compiler.passes.stage_text import REMADE, stage_of, with_entry
from compiler.passes.stages import (
    Branch,
    HostTransfer,
    Named,
    StagedProgram,
    StageLoop,
    Step,
)
from compiler.passes.transfer_devices import transfer_device
from compiler.passes.tuple_flattener import flatten_tuples
from compiler.rewrite.graph import emit

Instr = HloInstruction
_TRANSFERS = ("send", "recv")
_HALVES = ("send", "send-done", "recv", "recv-done")


@dataclass(frozen=True)
class _Event:
    """A step between stages: the values that it needs, and what it is once they have names."""

    needs: tuple[Instr, ...]
    step: Step


@dataclass
class _Plan:
    """Which stage an instruction of the entry is in; what comes of no stage but of a step; the steps."""

    stage: dict[Instr, int] = field(default_factory=dict)
    given: set[Instr] = field(default_factory=set)
    carriers: set[Instr] = field(default_factory=set)
    events: list[_Event] = field(default_factory=list)


def stage_program(module: HloModule, context: PassContext) -> StagedProgram:
    """Cut a module whose arrays are a device's own; its calls are inlined in place. Raises
    UnsupportedError."""
    inline_calls(module, context)
    given = [_named(p) for p in module.entry.parameters]
    made = [_named(r) for r in _results(module.entry.root_instruction)]
    flatten_tuples(module, context)
    _read_tuples_through(module)
    eliminate_dead_code(module, context)
    program = _staged(module)
    return StagedProgram(
        module.name,
        _with_tokens(given, program.arguments),
        _with_tokens(made, program.results),
        program.steps,
    )


def _read_tuples_through(module: HloModule) -> None:
    """What is put into a tuple and taken out again is used itself: of a tuple that holds a received value
    another stage may need another part."""
    for computation in control_computations(module):
        for instr in list(computation):
            if instr.opcode == "get-tuple-element" and instr.operands[0].opcode == "tuple":
                index = instr.attrs["index"]
                assert isinstance(index, int)
                instr.replace_all_uses_with(instr.operands[0].operands[index])


def _with_tokens(
    whole: Sequence[Named | None], arrays: Sequence[Named | None]
) -> tuple[Named | None, ...]:
    """The values in `arrays` where a signature with tokens has arrays."""
    rest = iter(arrays)
    return tuple(None if value is None else next(rest) for value in whole)


def _named(value: Instr) -> Named | None:
    return None if isinstance(value.shape, TokenShape) else (value.name, value.array)


def _results(root: Instr) -> Sequence[Instr]:
    if isinstance(root.shape, TupleShape) and root.opcode != "tuple":
        return _leaves(root)
    return root.operands if root.opcode == "tuple" else [root]


def _leaves(value: Instr) -> list[Instr]:
    """The arrays of a value that is an array or a flat tuple."""
    if not isinstance(value.shape, TupleShape):
        return [value]
    if value.opcode == "tuple":
        return list(value.operands)
    return [
        emit(value, "get-tuple-element", part, (value,), {"index": number})
        for number, part in enumerate(value.shape.elements)
    ]


def _staged(module: HloModule) -> StagedProgram:
    """The steps of a module whose tuples are flat."""
    entry = module.entry
    carriers = [i for i in entry if i.opcode in ("while", "conditional") and _talks(i)]
    operands = {carrier: [_leaves(o) for o in carrier.operands] for carrier in carriers}
    for carrier in carriers:
        _expect_read_by_leaves(carrier)
    results = _results(entry.root_instruction)
    entry.sort()
    plan, text = _Plan(), print_module(module)
    for instr in list(entry):
        _place(instr, plan, operands, text)
    wanted = [*results, *(value for event in plan.events for value in event.needs)]
    last = max((plan.stage[value] for value in wanted), default=0)
    uses = _uses(plan, wanted, last, entry)
    numbers = {instr.name: stage for instr, stage in plan.stage.items()}
    given = frozenset(instr.name for instr in plan.given)
    stages = (stage_of(text, n, [i.name for i in uses[n]], numbers, given) for n in range(last + 1))
    steps: list[Step] = []
    done = -1
    for needs, step in [*((event.needs, event.step) for event in plan.events), (wanted, None)]:
        until = max((plan.stage[value] for value in needs), default=-1)
        steps += filter(None, islice(stages, max(0, until - done)))
        done = max(done, until)
        steps += () if step is None else (step,)
    given_first = tuple(_named(p) for p in entry.parameters)
    return StagedProgram(module.name, given_first, tuple(map(_named, results)), tuple(steps))


def _talks(carrier: Instr) -> bool:
    """Whether a loop or branch has transfers inside."""
    return any(
        instr.opcode in _TRANSFERS
        for computation in post_order(list(carrier.called_computations()))
        for instr in computation
    )


def _expect_read_by_leaves(carrier: Instr) -> None:
    """Let whoever reads a loop's or branch's result as a whole read it an array at a time."""
    whole = [user for user in carrier.users if user.opcode != "get-tuple-element"]
    computation = carrier.home
    if not isinstance(carrier.shape, TupleShape) or not (whole or computation.root is carrier):
        return
    parts = emit(carrier, "tuple", carrier.shape, _leaves(carrier))
    for user in whole:
        if user is not parts:
            user.set_operands([parts if o is carrier else o for o in user.operands])
    if computation.root is carrier:
        computation.root = parts


def _place(instr: Instr, plan: _Plan, operands: dict[Instr, list[list[Instr]]], text: str) -> None:
    """Say which stage an instruction is in, and whether it is a step."""
    if instr in plan.given:
        return  # its step has said it
    if instr in operands:
        _place_carrier(instr, plan, operands[instr], text)
        return
    wanted = [o for o in instr.operands if not isinstance(o.shape, TokenShape)]
    if instr.opcode in _HALVES and instr.opcode != "send":
        wanted = []
    plan.stage[instr] = max((plan.stage[o] for o in wanted), default=0)
    if instr.opcode == "send":
        value = instr.operands[0]
        where = _channel(instr), value.name, value.array
        plan.events.append(_Event((value,), HostTransfer(*where, True, transfer_device(instr))))
    elif instr.opcode == "recv-done":
        data = [u for u in instr.users if u.opcode == "get-tuple-element" and u.attrs["index"] == 0]
        _give(data, plan)
        assert isinstance(instr.shape, TupleShape)
        (shape, _), name = instr.shape.elements, (data or [instr])[0].name
        assert isinstance(shape, ArrayShape)
        where = _channel(instr), name, shape
        plan.events.append(_Event((), HostTransfer(*where, False, transfer_device(instr))))


def _channel(transfer: Instr) -> int:
    channel = transfer.attrs.get("channel_id", 0)
    assert isinstance(channel, int)
    return channel


def _give(values: Sequence[Instr], plan: _Plan) -> None:
    """The values come of a step: what uses them is in a stage behind it."""
    if values:
        number = max(plan.stage[value] for value in plan.given) + 1 if plan.given else 1
        plan.given.update(values)
        plan.stage.update(dict.fromkeys(values, number))


def _place_carrier(instr: Instr, plan: _Plan, operands: list[list[Instr]], text: str) -> None:
    is_array = isinstance(instr.shape, ArrayShape)
    made = [instr] if is_array else list(instr.users)
    plan.stage[instr] = 0
    plan.carriers.add(instr)
    _give(made, plan)
    numbers = [0] if is_array else [int(str(user.attrs["index"])) for user in made]
    results = tuple((value.name, n) for value, n in zip(made, numbers, strict=True))
    names = [tuple(value.name for value in group) for group in operands]
    step: Step
    if instr.opcode == "while":
        condition, body = (_nested(text, called) for called in (instr.condition, instr.body))
        step = StageLoop(condition, body, names[0], results)
    else:
        branches = tuple(_nested(text, called) for called in instr.called_computations())
        step = Branch(names[0][0], branches, tuple(names[1:]), results)
    plan.events.append(_Event(tuple(value for group in operands for value in group), step))


def _nested(text: str, called: HloComputation) -> StagedProgram:
    """The steps of a computation that a loop or a branch calls."""
    module = parse_module(text)
    return _staged(with_entry(module, module.computations[called.name]))


def _uses(
    plan: _Plan, wanted: Sequence[Instr], last: int, entry: HloComputation
) -> dict[int, list[Instr]]:
    """For each stage the values it makes that are wanted outside of it."""
    outside = set(wanted)
    for instr in entry:
        for operand in _inputs_of(instr, plan):
            if plan.stage[operand] < plan.stage[instr]:
                outside.add(operand)
    uses: dict[int, list[Instr]] = {number: [] for number in range(last + 1)}
    for instr in entry:
        is_made = instr.opcode != "parameter" and instr not in plan.given
        if instr in outside and is_made and plan.stage[instr] <= last:
            uses[plan.stage[instr]].append(instr)
    return uses


def _inputs_of(instr: Instr, plan: _Plan) -> Iterator[Instr]:
    """The values that an instruction needs, seen through what is made again where it is wanted."""
    is_step = instr.opcode in _HALVES or instr in plan.given or instr in plan.carriers
    if is_step or isinstance(instr.shape, TokenShape):
        return
    stack = list(instr.operands)
    seen: set[Instr] = set()
    while stack:
        operand = stack.pop()
        if operand in seen:
            continue
        seen.add(operand)
        if operand.opcode in REMADE and plan.stage[operand] < plan.stage[instr]:
            stack += operand.operands
        elif not isinstance(operand.shape, TokenShape):
            yield operand
