"""Programs that talk to the host while they run, cut into programs that do not.

A device runs a program from its start to its end. A ``send`` to the host or a ``recv`` from it, as JAX's
callbacks have them, is made by running what comes before it, handing values over, and running the rest:

    y = f(x); send(y); z = recv(); g(x, z)     ->     run f; send y; receive z; run g

`stage_program` finds the stages: an operation belongs to the first one in which all of its operands are
there. What is not used after a transfer is not waited for, so a program that only prints is one stage.
Transfers are made in the order of the program. One inside of a loop or a branch is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.shape import ArrayShape, TokenShape, TupleShape
from compiler.passes.call_inliner import inline_calls
from compiler.passes.context import PassContext
from compiler.passes.stages import HostTransfer, Stage, StagedProgram

Instr = HloInstruction
_TRANSFERS = ("send", "recv")
_HALVES = ("send", "send-done", "recv", "recv-done")
_REMADE = ("constant", "iota", "tuple", "after-all")
"""What a later stage makes again instead of getting it from an earlier one."""
_ENTRY_ATTRIBUTES = ("entry_computation_layout", "input_output_alias", "buffer_donor")


@dataclass
class _Plan:
    """Which stage an instruction of the entry is in, and who wants its value later."""

    stage: dict[Instr, int] = field(default_factory=dict)
    received: dict[Instr, int] = field(default_factory=dict)  # data of a recv: its channel
    transfers: list[tuple[HostTransfer, Instr]] = field(default_factory=list)


def stage_program(module: HloModule, context: PassContext) -> StagedProgram:
    """Cut a module of one device; its calls are inlined in place. Raises UnsupportedError."""
    inline_calls(module, context)
    _expect_transfers_at_the_top(module)
    entry = module.entry
    entry.sort()
    plan = _planned(entry)
    results = _results(entry.root_instruction)
    wanted = [r for r in results if r is not None]
    last = max([plan.stage[value] for value in wanted], default=0)
    last = max([last, *(plan.stage[i] for t, i in plan.transfers if t.is_send)])
    text = print_module(module)
    uses = _uses(plan, wanted, last, entry)
    steps: list[Stage | HostTransfer] = []
    done = -1
    for transfer, value in plan.transfers:
        while transfer.is_send and done < plan.stage[value]:
            done += 1
            steps += _stage(text, done, plan, uses)
        steps.append(transfer)
    for number in range(done + 1, last + 1):
        steps += _stage(text, number, plan, uses)
    given = [None if isinstance(p.shape, TokenShape) else p for p in entry.parameters]
    return StagedProgram(module.name, _named(given), _named(results), tuple(steps))


def _named(values: Sequence[Instr | None]) -> tuple[tuple[str, ArrayShape] | None, ...]:
    return tuple(None if value is None else (value.name, value.array) for value in values)


def _expect_transfers_at_the_top(module: HloModule) -> None:
    for computation in reachable(module):
        for instr in computation:
            if instr.opcode in _TRANSFERS and computation is not module.entry:
                raise UnsupportedError(
                    f"%{instr.name}: {instr.opcode}: a callback to the host inside of a loop or a branch; "
                    "return the values from it (as a scan's stacked results), and call back behind it",
                    instr.span,
                )


def _planned(entry: HloComputation) -> _Plan:
    plan = _Plan()
    received = 0
    for instr in entry:
        data = _received_data(instr)
        if data is not None:
            received += 1
            plan.stage[instr] = received
            plan.received[instr] = data
            plan.transfers.append((HostTransfer(data, instr.name, instr.array, False), instr))
            continue
        operands = [o for o in instr.operands if not isinstance(o.shape, TokenShape)]
        if instr.opcode in _HALVES and instr.opcode != "send":
            operands = []
        plan.stage[instr] = max((plan.stage[o] for o in operands), default=0)
        if instr.opcode == "send":
            value, channel = instr.operands[0], instr.attrs.get("channel_id", 0)
            assert isinstance(channel, int)
            found = HostTransfer(channel, value.name, value.array, True)
            plan.transfers.append((found, value))
    return plan


def _received_data(instr: Instr) -> int | None:
    """The channel, if this is the data of a recv."""
    if instr.opcode != "get-tuple-element" or instr.operands[0].opcode != "recv-done":
        return None
    channel = instr.operands[0].attrs.get("channel_id", 0)
    return channel if instr.attrs["index"] == 0 and isinstance(channel, int) else None


def _results(root: Instr) -> list[Instr | None]:
    values = root.operands if root.opcode == "tuple" else [root]
    if isinstance(root.shape, TupleShape) and root.opcode != "tuple":
        raise UnsupportedError(f"%{root.name}: a root that is no tuple of arrays", root.span)
    return [None if isinstance(v.shape, TokenShape) else v for v in values]


def _uses(
    plan: _Plan, wanted: Sequence[Instr], last: int, entry: HloComputation
) -> dict[int, list[Instr]]:
    """For each stage the values it makes that are wanted outside of it."""
    outside = {*wanted, *(value for transfer, value in plan.transfers if transfer.is_send)}
    for instr in entry:
        for operand in _inputs_of(instr, plan):
            if plan.stage[operand] < plan.stage[instr]:
                outside.add(operand)
    uses: dict[int, list[Instr]] = {number: [] for number in range(last + 1)}
    for instr in entry:
        is_made = instr.opcode != "parameter" and instr not in plan.received
        if instr in outside and is_made and plan.stage[instr] <= last:
            uses[plan.stage[instr]].append(instr)
    return uses


def _inputs_of(instr: Instr, plan: _Plan) -> Iterator[Instr]:
    """The values that an instruction needs, seen through what is made again where it is wanted."""
    is_transfer = instr.opcode in _HALVES or instr in plan.received
    if is_transfer or instr.opcode in _REMADE or isinstance(instr.shape, TokenShape):
        return
    stack = list(instr.operands)
    while stack:
        operand = stack.pop()
        if operand.opcode in _REMADE and plan.stage[operand] < plan.stage[instr]:
            stack += operand.operands
        elif not isinstance(operand.shape, TokenShape):
            yield operand


def _stage(text: str, number: int, plan: _Plan, uses: dict[int, list[Instr]]) -> list[Stage]:
    """The program of a stage; none for one that makes nothing."""
    outputs = [value.name for value in uses[number]]
    if not outputs:
        return []
    module = parse_module(text)
    numbers = {instr.name: stage for instr, stage in plan.stage.items()}
    given = {instr.name for instr in plan.received}
    source, main = module.entry, HloComputation("main")
    by_name = {instr.name: instr for instr in source}

    def is_given(instr: Instr) -> bool:
        if instr.opcode == "parameter" or instr.name in given:
            return True
        return numbers[instr.name] < number and instr.opcode not in _REMADE

    needed: set[Instr] = set()
    stack = [by_name[name] for name in outputs]
    while stack:
        instr = stack.pop()
        if instr not in needed:
            needed.add(instr)
            stack += () if is_given(instr) else instr.operands
    made: dict[Instr, Instr] = {}
    inputs: list[str] = []
    for instr in source:
        if instr not in needed:
            continue
        if not is_given(instr):
            made[instr] = clone(instr, main, [made[operand] for operand in instr.operands])
            continue
        if not isinstance(instr.shape, ArrayShape):
            raise UnsupportedError(
                f"%{instr.name}: a {instr.opcode} of a tuple, used before and after a callback",
                instr.span,
            )
        attrs: dict[str, object] = {"parameter_number": len(inputs)}
        made[instr] = main.add(HloInstruction("parameter", instr.name, instr.shape, (), attrs))
        inputs.append(instr.name)
    results = [made[by_name[name]] for name in outputs]
    shape = TupleShape(tuple(value.shape for value in results))
    main.root = main.add(HloInstruction("tuple", "results", shape, results, {}))
    module.add_computation(main)
    module.entry_name = main.name
    for name in _ENTRY_ATTRIBUTES:
        module.attrs.pop(name, None)
    drop_unreachable(module)
    return [Stage(print_module(module), tuple(inputs), tuple(outputs))]
