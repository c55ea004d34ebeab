"""Which values share a buffer, by the rules of HLO: tuples, bitcasts, control flow, updates.

A *slot* is one array of an instruction's value: the instruction and the number of the leaf in
its shape. Slots that must lie in the same memory form one set:

    tuple, get-tuple-element, bitcast    hand their operand on
    start and done of an exchange        the start hands on its operands, the done the start's results
    while                                initial state, body and condition parameter, body result
                                         and the while's result are one state
    conditional                          operands and branch parameters; branch results and result
    fusion of dynamic-update-slice or    the result overwrites operand 0
    scatter (kCustom, kScalar)
    fusion with output_to_operand_    results overwrite operands: copy insertion says where that
    aliasing (kCustom)                costs nothing
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.hlo.attributes import InputOutputAlias, OutputOperandAlias
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, is_compatible

Slot = tuple[HloInstruction, int]


def leaf_count(shape: Shape) -> int:
    """Number of arrays in a shape."""
    if isinstance(shape, ArrayShape):
        return 1
    return shape.leaf_offsets[-1] if isinstance(shape, TupleShape) else 0


def element_offset(shape: Shape, index: int) -> int:
    """The leaf number at which tuple element `index` starts."""
    assert isinstance(shape, TupleShape)
    return shape.leaf_offsets[index]


def leaf_number(shape: Shape, path: tuple[int, ...]) -> int:
    """The leaf number of the array (or first array) at a shape index such as ``{1,0}``."""
    number = 0
    for index in path:
        number += element_offset(shape, index)
        assert isinstance(shape, TupleShape)
        shape = shape.elements[index]
    return number


def hands_on(loop: HloInstruction, leaf: int) -> bool:
    """Whether a loop's body hands an array of the state, which is flat, on as it is."""
    body = loop.body
    root = body.root_instruction
    value = root.operands[leaf] if root.opcode == "tuple" else root
    return (
        value.opcode == "get-tuple-element"
        and value.operands[0] is body.parameters[0]
        and value.index == leaf
    )


def updated_operand(fusion: HloInstruction) -> int | None:
    """The operand a fusion overwrites with its result, or None: kCustom ones, elements in SMEM."""
    if fusion.opcode != "fusion" or fusion.kind not in ("kCustom", "kScalar"):
        return None
    root = fusion.calls.root_instruction
    if not OPCODES[root.opcode].has(Trait.UPDATES):
        return None
    target = root.operands[0]
    if target.opcode != "parameter" or (root.opcode == "scatter" and len(root.operands) != 3):
        return None
    if root.opcode == "scatter" and root.operands.count(target) > 1:
        return None  # updates that would be overwritten before they are read
    return target.parameter_number


def reused_operands(fusion: HloInstruction) -> tuple[OutputOperandAlias, ...]:
    """Which operands a kernel overwrites because nobody needs them after it."""
    return fusion.output_to_operand_aliasing if fusion.kind == "kCustom" else ()


class SlotSets:
    """A union-find over slots."""

    def __init__(self) -> None:
        self._parent: dict[Slot, Slot] = {}

    def find(self, slot: Slot) -> Slot:
        """The representative of the slot's set."""
        parent = self._parent.setdefault(slot, slot)
        while parent != slot:
            grandparent = self._parent[parent]
            self._parent[slot] = grandparent
            slot, parent = parent, grandparent
        return slot

    def join(self, a: Slot, b: Slot) -> None:
        """Put two slots into one set."""
        first, second = self.find(a), self.find(b)
        if first != second:
            self._parent[second] = first


def forwarded(instr: HloInstruction) -> Iterator[tuple[Slot, Slot]]:
    """Pairs (operand slot, result slot) of arrays that an instruction only hands on.

    The start of an exchange hands on its operands beside the results that it begins; its done hands on these.
    """
    match instr.opcode:
        case "bitcast":
            yield (instr.operands[0], 0), (instr, 0)
        case "tuple":
            position = 0
            for operand in instr.operands:
                for leaf in range(leaf_count(operand.shape)):
                    yield (operand, leaf), (instr, position)
                    position += 1
        case "get-tuple-element":
            start = element_offset(instr.operands[0].shape, instr.index)
            for leaf in range(leaf_count(instr.shape)):
                yield (instr.operands[0], start + leaf), (instr, leaf)
        case "collective-permute-start" | "async-start":
            for number, operand in enumerate(instr.operands):
                yield (operand, 0), (instr, number)
        case "async-update":
            for leaf in range(leaf_count(instr.shape)):
                yield (instr.operands[0], leaf), (instr, leaf)
        case "collective-permute-done" | "async-done":
            count = leaf_count(instr.shape)
            for leaf in range(count):
                yield (instr.operands[0], count + leaf), (instr, leaf)


def must_share(instr: HloInstruction) -> Iterator[tuple[Slot, Slot]]:
    """All pairs of slots that an instruction forces into one buffer."""
    yield from forwarded(instr)
    match instr.opcode:
        case "while":
            body, condition = instr.body, instr.condition
            state = (instr.operands[0], body.parameters[0], body.root_instruction)
            for other in (*state, condition.parameters[0]):
                for leaf in range(leaf_count(instr.shape)):
                    yield (instr, leaf), (other, leaf)
        case "conditional":
            for number, branch in enumerate(instr.called_computations()):
                operand = instr.operands[number + 1]
                for leaf in range(leaf_count(operand.shape)):
                    yield (operand, leaf), (branch.parameters[0], leaf)
                for leaf in range(leaf_count(instr.shape)):
                    yield (instr, leaf), (branch.root_instruction, leaf)
        case "fusion":
            target = updated_operand(instr)
            if target is not None:
                yield (instr.operands[target], 0), (instr, 0)
            for alias in reused_operands(instr):
                leaf = leaf_number(instr.shape, alias.output_index)
                yield (instr.operands[alias.operand_number], 0), (instr, leaf)


def shared_slots(module: HloModule) -> SlotSets:
    """The buffers of a module's control flow, donated parameters included."""
    sets = SlotSets()
    for computation in control_computations(module):
        for instr in computation:
            for a, b in must_share(instr):
                sets.join(a, b)
    root = module.entry.root_instruction
    for alias in donations(module):
        sets.join(
            (module.entry.parameters[alias.parameter_number], _parameter_leaf(module, alias)),
            (root, leaf_number(root.shape, alias.output_index)),
        )
    return sets


def donations(module: HloModule) -> tuple[InputOutputAlias, ...]:
    """The module's ``input_output_alias`` entries between arrays of the same shape.

    Others (a result of as many bytes in another shape) are no more than a permission.
    """
    found = module.attrs.get("input_output_alias", ())
    assert isinstance(found, tuple)
    entry = module.entry
    result = entry.root_instruction.shape
    return tuple(
        alias
        for alias in found
        if isinstance(alias, InputOutputAlias)
        and is_compatible(
            _part(result, alias.output_index),
            _part(entry.parameters[alias.parameter_number].shape, alias.parameter_index),
        )
    )


def donated_slots(module: HloModule) -> set[Slot]:
    """The entry parameters' arrays that a result replaces."""
    parameters = module.entry.parameters
    return {(parameters[a.parameter_number], _parameter_leaf(module, a)) for a in donations(module)}


def _parameter_leaf(module: HloModule, alias: InputOutputAlias) -> int:
    parameter = module.entry.parameters[alias.parameter_number]
    return leaf_number(parameter.shape, alias.parameter_index)


def _part(shape: Shape, index: tuple[int, ...]) -> Shape:
    for number in index:
        assert isinstance(shape, TupleShape), shape
        shape = shape.elements[number]
    return shape
