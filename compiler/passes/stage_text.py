"""The HLO of one stage of a program that talks to the host, cut out of the whole program's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import drop_unreachable
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.replica_groups import is_partitioned
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.stages import Stage

Instr = HloInstruction
REMADE = ("constant", "iota", "tuple", "after-all")
"""What a later stage makes again instead of getting it from an earlier one."""
_ENTRY_ATTRIBUTES = ("entry_computation_layout", "input_output_alias", "buffer_donor")


def stage_of(
    text: str,
    number: int,
    outputs: Sequence[str],
    numbers: Mapping[str, int],
    given: frozenset[str],
) -> Stage | None:
    """The program that makes `outputs` of what is there before stage `number`; None if it makes nothing.

    `numbers` are the stages of all instructions of the entry; `given` are those that steps make.
    """
    if not outputs:
        return None
    module = parse_module(text)
    source, main = module.entry, HloComputation(_name(module))
    by_name = {instr.name: instr for instr in source}

    def is_given(instr: Instr) -> bool:
        if instr.opcode == "parameter" or instr.name in given:
            return True
        return numbers[instr.name] < number and instr.opcode not in REMADE

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
        made[instr] = _parameter(main, instr.name, instr.shape)
        inputs.append(instr.name)
    _put_entry(module, main, [made[by_name[name]] for name in outputs])
    return Stage(print_module(module), tuple(inputs), tuple(outputs))


def with_entry(module: HloModule, called: HloComputation) -> HloModule:
    """The module with a computation that a loop or branch calls as its entry: of arrays, to a tuple."""
    main = HloComputation(_name(module))
    (given,) = called.parameters
    is_tuple = isinstance(given.shape, TupleShape)
    shapes = given.shape.elements if isinstance(given.shape, TupleShape) else (given.shape,)
    arrays = [_parameter(main, f"argument.{n}", shape) for n, shape in enumerate(shapes)]
    made: dict[Instr, Instr] = {}
    for instr in called:
        if instr is given:
            made[instr] = _tuple(main, arrays) if is_tuple else arrays[0]
        elif instr.opcode == "get-tuple-element" and made[instr.operands[0]].opcode == "tuple":
            index = instr.attrs["index"]
            assert isinstance(index, int)
            made[instr] = made[instr.operands[0]].operands[index]
        else:
            made[instr] = clone(instr, main, [made[operand] for operand in instr.operands])
    root = made[called.root_instruction]
    if isinstance(root.shape, TupleShape):
        main.root = root
        _put_entry(module, main, None)
    else:
        _put_entry(module, main, [root])
    return module


def _name(module: HloModule) -> str:
    """The entry's name says whether the module has been partitioned, as its parts have then."""
    return "main_spmd" if is_partitioned(module) else "main"


def _parameter(computation: HloComputation, name: str, shape: Shape) -> Instr:
    number = len(computation.parameters)
    attrs: dict[str, object] = {"parameter_number": number}
    return computation.add(HloInstruction("parameter", name, shape, (), attrs))


def _tuple(computation: HloComputation, values: Sequence[Instr]) -> Instr:
    shape = TupleShape(tuple(value.shape for value in values))
    return computation.add(HloInstruction("tuple", "results", shape, values, {}))


def _put_entry(module: HloModule, main: HloComputation, results: Sequence[Instr] | None) -> None:
    """Make `main` the entry, of a tuple of `results` unless it has its root."""
    if results is not None:
        main.root = _tuple(main, results)
    module.add_computation(main)
    module.entry_name = main.name
    for name in _ENTRY_ATTRIBUTES:
        module.attrs.pop(name, None)
    drop_unreachable(module)
