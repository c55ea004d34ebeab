"""Writes what propagation found: ``sharding=`` on every instruction, and nothing else of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import Shape, TupleShape
from compiler.hlo.sharding import HloSharding, leaf_count
from compiler.passes.sharding.importer import ImportedProgram, stand_in
from compiler.passes.sharding.statements import SHARDY
from compiler.rewrite.graph import emit
from compiler.sharding.mesh import Axes, Axis
from compiler.sharding.op_rules import FULL_TO_SHARD
from compiler.sharding.placement import is_equal_placement
from compiler.sharding.projection import product
from compiler.sharding.values import ShardedValue, Values

Instr = HloInstruction


def export_shardings(program: ImportedProgram, values: Values) -> None:
    """Give every instruction of the program's control flow its sharding."""
    found: dict[ShardedValue, HloSharding] = {}
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


def _settle_boundaries(program: ImportedProgram, values: Values) -> None:
    """The copy before a boundary has the sharding from which the other side's shape follows."""
    for instr in program.manual:
        (given,), (made,) = values.of[instr.operands[0]], values.of[instr]
        is_entering = instr.attrs["custom_call_target"] == FULL_TO_SHARD
        around, inside = (given, made) if is_entering else (made, given)
        is_one_mesh = around.mesh == inside.mesh
        for dim, axes in enumerate(around.axes):
            cut = tuple(axis for axis in axes if _is_manual(axis, around, inside))
            if is_entering:
                around.axes[dim] = (*cut, *inside.axes[dim]) if is_one_mesh else cut
            elif is_one_mesh:
                inside.axes[dim] = tuple(axis for axis in axes if axis not in cut)


def _is_manual(axis: Axis, around: ShardedValue, inside: ShardedValue) -> bool:
    """Whether an axis that cuts an array outside of a region is a manual one inside."""
    if around.mesh == inside.mesh:
        return any(axis.overlaps(other) for other in inside.manual)
    if around.mesh is None or inside.mesh is None:
        return False
    return around.mesh.is_within(axis, inside.mesh, inside.manual)


def _drop_if_equal(note: Instr, program: ImportedProgram) -> None:
    """A copy to the sharding that its operand has already says nothing."""
    (operand,) = note.operands
    a, b = operand.attrs.get("sharding"), note.attrs.get("sharding")
    assert isinstance(a, HloSharding)
    assert isinstance(b, HloSharding)
    if is_equal_placement(a, b, note.array.rank, program.statements.device_count):
        note.replace_all_uses_with(operand)
        note.home.remove(note)


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


def settle_parameters(program: ImportedProgram, values: Values) -> int:
    """The same for arguments of which nothing is said, before results: how many are cut in another way."""
    changed = 0
    for parameter in list(program.module.entry.parameters):
        said = program.stated.get(parameter, [])
        if isinstance(parameter.shape, TupleShape) or any(one is not None for one in said):
            continue
        (value,) = values.of[parameter]
        axes = _settled(value)
        if axes == value.axes:
            continue
        users = list(parameter.users)
        attrs = {"sharding": parameter.attrs["sharding"]}
        stand_in(emit(parameter, "copy", parameter.shape, [parameter], attrs), parameter, users)
        mesh = program.statements.mesh
        parameter.attrs["sharding"] = value.sharding(mesh).with_axes(axes).to_hlo()
        changed += 1
    return changed


def stated_results(program: ImportedProgram) -> list[bool]:
    """By array of the results whether the program's signature says how it is cut.

    A constraint inside that happens to be on a result does not. GSPMD's text has one form for both.
    """
    root = program.module.entry.root_instruction
    stated = program.stated.get(root, [None] * leaf_count(root.shape))
    if not program.statements.is_shardy:
        return [True] * len(stated)
    parts = program.module.entry.results
    signed = [part in program.signed for part in parts for _ in range(leaf_count(part.shape))]
    is_root_note = root in program.notes  # which has a sharding, be it of the signature or not
    whole = [one is not None and not is_root_note for one in stated]
    return [a or b for a, b in zip(signed, whole, strict=True)]


def settle_results(program: ImportedProgram, own: list[ShardedValue], stated: list[bool]) -> int:
    """Make results that the signature leaves open easy for a caller to hold; returns how many change.

    Each is cut evenly and by whole axes of the mesh: what is not is gathered at the end, as in
    Shardy. `own` are the values of the results, `stated` says of each whether the signature has it.
    """
    module = program.module
    root = module.entry.root_instruction
    wanted = [
        list(value.axes) if value.is_fixed and is_stated else _settled(value)
        for value, is_stated in zip(own, stated, strict=True)
    ]
    changed = [value.axes != axes for value, axes in zip(own, wanted, strict=True)]
    if not any(changed):
        return 0
    mesh = program.statements.mesh
    shardings = []
    for value, axes in zip(own, wanted, strict=True):
        shardings.append(value.sharding(mesh).with_axes(axes).to_hlo())
    module.entry.root = _resharded(root, iter(zip(shardings, changed, strict=True)))
    if root.opcode == "tuple" and not root.users:
        module.entry.remove(root)
    return sum(changed)


def _resharded(part: Instr, wanted: Iterator[tuple[HloSharding, bool]]) -> Instr:
    """A result whose arrays have these shardings, those that change by a copy."""
    if not isinstance(part.shape, TupleShape):
        sharding, is_changed = next(wanted)
        attrs: dict[str, object] = {"sharding": sharding}
        return emit(part, "copy", part.shape, [part], attrs) if is_changed else part
    parts = [_resharded(element, wanted) for element in _parts(part)]
    found = [leaf for one in parts for leaf in _leaves(one)]
    return emit(part, "tuple", part.shape, parts, {"sharding": HloSharding.of_tuple(found)})


def _leaves(instr: Instr) -> list[HloSharding]:
    sharding = instr.attrs["sharding"]
    assert isinstance(sharding, HloSharding)
    return [sharding.of_leaf(i) for i in range(leaf_count(instr.shape))]


def _settled(value: ShardedValue) -> list[Axes]:
    """The axes of each dimension that may stay in a result."""
    if value.mesh is None:
        return list(value.axes)
    sizes = value.mesh.sizes
    found: list[Axes] = []
    for size, axes in zip(value.dims, value.axes, strict=True):
        whole = tuple(itertools.takewhile(lambda axis: axis.size == sizes[axis.name], axes))
        most = next(n for n in range(len(whole), -1, -1) if size % product(whole[:n]) == 0)
        found.append(whole[:most])
    return found


def _parts(root: Instr) -> list[Instr]:
    """The elements of a tuple that is returned."""
    if root.opcode == "tuple":
        return list(root.operands)
    assert isinstance(root.shape, TupleShape)
    sharding = root.attrs["sharding"]
    assert isinstance(sharding, HloSharding)
    found, start = [], 0
    for index, shape in enumerate(root.shape.elements):
        count = leaf_count(shape)
        own = [sharding.of_leaf(start + i) for i in range(count)]
        start += count
        attrs: dict[str, object] = {"index": index, "sharding": _of(shape, own)}
        found.append(emit(root, "get-tuple-element", shape, [root], attrs))
    return found


def _of(shape: Shape, leaves: list[HloSharding]) -> HloSharding:
    return HloSharding.of_tuple(leaves) if isinstance(shape, TupleShape) else leaves[0]
