"""Writes what propagation found: ``sharding=`` on every instruction, and nothing else of it."""

from __future__ import annotations

from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.hlo.sharding import REPLICATED, HloSharding, leaf_count
from compiler.passes.sharding.importer import Program
from compiler.passes.sharding.statements import SHARDY
from compiler.rewrite.graph import emit
from compiler.sharding.op_rules import FULL_TO_SHARD
from compiler.sharding.placement import is_equal_placement, tile_counts
from compiler.sharding.values import Value, Values

Instr = HloInstruction


def export_shardings(program: Program, values: Values) -> None:
    """Give every instruction of the program's control flow its sharding."""
    found: dict[Value, HloSharding] = {}
    mesh = program.statements.mesh
    _settle_boundaries(program, values)
    for value in values.all():
        found[value] = value.sharding(mesh).to_hlo()
    for instr, own in values.of.items():
        shardings = [found[value] for value in own]
        is_tuple = isinstance(instr.shape, TupleShape)
        instr.attrs["sharding"] = HloSharding.of_tuple(shardings) if is_tuple else shardings[0]
        _clean(instr)
    for note in program.notes:
        _drop_if_equal(note, program)
    _finish_header(program.module, program.statements.device_count)


def _settle_boundaries(program: Program, values: Values) -> None:
    """The copy before a boundary has the sharding from which the other side's shape follows."""
    for instr in program.manual:
        (given,), (made,) = values.of[instr.operands[0]], values.of[instr]
        is_entering = instr.attrs["custom_call_target"] == FULL_TO_SHARD
        around, inside = (given, made) if is_entering else (made, given)
        own = [axis for axis in inside.manual if axis not in around.manual]
        for dim, axes in enumerate(around.axes):
            if is_entering:
                cut = tuple(axis for axis in axes if any(axis.overlaps(m) for m in own))
                around.axes[dim] = (*cut, *inside.axes[dim])
            else:
                left = tuple(axis for axis in axes if not any(axis.overlaps(m) for m in own))
                inside.axes[dim] = left


def _drop_if_equal(note: Instr, program: Program) -> None:
    """A copy to the sharding that its operand has already says nothing."""
    (operand,) = note.operands
    a, b = operand.attrs.get("sharding"), note.attrs.get("sharding")
    assert isinstance(a, HloSharding)
    assert isinstance(b, HloSharding)
    if is_equal_placement(a, b, note.array.rank, program.statements.device_count):
        note.replace_all_uses_with(operand)
        assert note.computation is not None
        note.computation.remove(note)


def _clean(instr: Instr) -> None:
    """Drop Shardy's text and GSPMD's open dimensions: both have been taken into account."""
    attributes = instr.attrs.get("frontend_attributes")
    if isinstance(attributes, FrontendAttributes):
        kept = tuple(item for item in attributes.items if not item[0].startswith(SHARDY))
        del instr.attrs["frontend_attributes"]
        if kept:
            instr.attrs["frontend_attributes"] = FrontendAttributes(kept)
    if "unspecified_dims" in str(instr.attrs.get("backend_config", "")):
        del instr.attrs["backend_config"]


def _finish_header(module: HloModule, device_count: int) -> None:
    header = module.attrs.get("frontend_attributes")
    if isinstance(header, FrontendAttributes):
        kept = tuple(item for item in header.items if not item[0].startswith(SHARDY))
        del module.attrs["frontend_attributes"]
        if kept:
            module.attrs["frontend_attributes"] = FrontendAttributes(kept)
    if device_count > 1:
        module.attrs["num_partitions"] = device_count


def replicate_uneven_results(module: HloModule) -> int:
    """Gather the results of the program that do not divide evenly; returns how many.

    A caller gets arrays whose parts are equal, as in Shardy.
    """
    root = module.entry.root_instruction
    sharding = root.attrs["sharding"]
    assert isinstance(sharding, HloSharding)
    if not isinstance(root.shape, TupleShape):
        if _is_even(root, sharding):
            return 0
        module.entry.root = _replicated(root)
        return 1
    parts = _parts(root, sharding)
    uneven = [i for i, part in enumerate(parts) if not _is_even(part, _sharding(part))]
    if not uneven:
        return 0
    made = [_replicated(part) if i in uneven else part for i, part in enumerate(parts)]
    found = HloSharding.of_tuple(leaf for part in made for leaf in _leaves(part))
    module.entry.root = emit(root, "tuple", root.shape, made, {"sharding": found})
    if root.opcode == "tuple" and not root.users:
        module.entry.remove(root)
    return len(uneven)


def _parts(root: Instr, sharding: HloSharding) -> list[Instr]:
    """The elements of a tuple that is returned."""
    if root.opcode == "tuple":
        return list(root.operands)
    assert isinstance(root.shape, TupleShape)
    found, start = [], 0
    for index, shape in enumerate(root.shape.elements):
        leaves = [sharding.of_leaf(start + i) for i in range(leaf_count(shape))]
        start += len(leaves)
        own = HloSharding.of_tuple(leaves) if isinstance(shape, TupleShape) else leaves[0]
        attrs: dict[str, object] = {"index": index, "sharding": own}
        found.append(emit(root, "get-tuple-element", shape, [root], attrs))
    return found


def _sharding(instr: Instr) -> HloSharding:
    found = instr.attrs["sharding"]
    assert isinstance(found, HloSharding)
    return found


def _leaves(instr: Instr) -> list[HloSharding]:
    found = _sharding(instr)
    return [found] if found.elements is None else list(found.elements)


def _is_even(instr: Instr, sharding: HloSharding) -> bool:
    if not isinstance(instr.shape, ArrayShape):
        return True
    counts = tile_counts(sharding, instr.shape.rank)
    return all(size % n == 0 for size, n in zip(instr.shape.dims, counts, strict=True))


def _replicated(instr: Instr) -> Instr:
    return emit(instr, "copy", instr.shape, [instr], {"sharding": REPLICATED})
