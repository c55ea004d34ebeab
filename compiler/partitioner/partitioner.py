"""SPMD partitioning: global arrays with shardings become local arrays and collectives.

The module must say how every parameter is sharded; other instructions may say what is wanted of
them. Each device runs the program that results, on its part of every parameter; what differs
between devices is read from tables by partition-id. Parameters and the root keep `sharding=`, by
which a caller cuts arguments and puts results together.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.diagnostics import UnsupportedError
from compiler.hlo.attributes import BufferDonor, ComputationLayout
from compiler.hlo.call_graph import control_computations, drop_unreachable, sort_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.replica_groups import device_counts, is_partitioned
from compiler.hlo.shape import has_size_of, leaves, subshape
from compiler.hlo.shape_text import print_shape
from compiler.hlo.sharding import HloSharding
from compiler.partitioner.grid import Cut, Grid
from compiler.partitioner.moves import Router
from compiler.partitioner.region import Handler, LocalComputation, Partition
from compiler.partitioner.rules.basic import BASIC
from compiler.partitioner.rules.contraction import CONTRACTION
from compiler.partitioner.rules.control import CONTROL
from compiler.partitioner.rules.convolution import CONVOLUTION
from compiler.partitioner.rules.indexing import INDEXING
from compiler.partitioner.rules.pooling_gradient import POOLING_GRADIENT
from compiler.partitioner.rules.windows import WINDOWS
from compiler.passes.call_inliner import inline_calls
from compiler.passes.context import PassContext
from compiler.passes.dce import eliminate_dead_code

HANDLERS: dict[str, Handler] = {
    **BASIC,
    **CONTRACTION,
    **CONTROL,
    **INDEXING,
    **POOLING_GRADIENT,
    **CONVOLUTION,
    **WINDOWS,
}


def partition_module(module: HloModule, context: PassContext) -> bool:
    """Partition a module of several partitions whose arrays are global."""
    counts = device_counts(module)
    if counts.partitions == 1 or is_partitioned(module):
        return False
    inline_calls(module, context)
    eliminate_dead_code(module, context)
    _clean_embedded(module)
    grid = Grid.of(counts.partitions, _shardings(module))
    shared = Partition(module, grid, counts, Router(grid), context, HANDLERS)
    region = LocalComputation(shared, module.entry)
    for parameter in module.entry.parameters:
        shapes = leaves(parameter.shape)
        cuts = [
            hint or Cut.whole(shape.rank)
            for hint, shape in zip(region.stated(parameter), shapes, strict=True)
        ]
        region.bind(parameter, cuts)
    region.run()
    root = module.entry.root_instruction
    results = [
        said if said is not None and said.partial else cut
        for cut, said in zip(region.hinted(region.held[root]), region.stated(root), strict=True)
    ]
    made = region.finish(results)
    _say_shardings(region, made, root, results)
    _replace_entry(module, made)
    _settle_aliases(module, context)
    eliminate_dead_code(module, context)  # what two ways to a value had both begun
    return True


def _shardings(module: HloModule) -> Iterator[HloSharding]:
    for computation in module.computations.values():
        for instr in computation:
            sharding = instr.attrs.get("sharding")
            if isinstance(sharding, HloSharding):
                yield from sharding.elements or (sharding,)


def _clean_embedded(module: HloModule) -> None:
    """Computations of scalars need no shardings, and no notes of them."""
    control = set(control_computations(module))
    for computation in module.computations.values():
        if computation in control:
            continue
        for instr in list(computation):
            instr.attrs.pop("sharding", None)
            if instr.attrs.get("custom_call_target") == "Sharding":
                instr.replace_all_uses_with(instr.operands[0])
                computation.remove(instr)


def _say_shardings(
    region: LocalComputation, made: HloComputation, root: HloInstruction, results: list[Cut]
) -> None:
    """Parameters and the root say how the global arrays are cut."""
    for old, new in zip(region.source.parameters, made.parameters, strict=True):
        cuts = [value.first for value in region.arrays(region.held[old])]
        new.attrs["sharding"] = _sharding_of(region, old, cuts)
    if made.root is not None:
        if made.root in made.parameters:
            made.root = region.b.instruction("copy", (made.root,))
        made.root.attrs["sharding"] = _sharding_of(region, root, results)


def _sharding_of(region: LocalComputation, instr: HloInstruction, cuts: list[Cut]) -> HloSharding:
    parts = [region.grid.sharding(cut) for cut in cuts]
    is_array = len(parts) == 1 and instr.shape in leaves(instr.shape)
    return parts[0] if is_array else HloSharding.of_tuple(parts)


def _settle_aliases(module: HloModule, context: PassContext) -> None:
    """A result takes a parameter's place where its pieces have that shape; where one only may, and
    they have not, the parameter is given away all the same."""
    aliases = module.attrs.get("input_output_alias")
    if not isinstance(aliases, tuple):
        return
    entry, kept, donors = module.entry, [], []
    for alias in aliases:
        parameter = entry.parameters[alias.parameter_number]
        given = subshape(parameter.shape, alias.parameter_index)
        made = subshape(entry.root_instruction.shape, alias.output_index)
        assert given is not None and made is not None
        if has_size_of(made, given):
            kept.append(alias)
        elif alias.kind == "must-alias":
            raise UnsupportedError(
                f"parameter {alias.parameter_number} must be the place of a result that is cut "
                f"otherwise, into pieces of {print_shape(made, False)}; give both one sharding",
                parameter.span,
            )
        else:
            donors.append(BufferDonor(alias.parameter_number, alias.parameter_index))
            context.remarks.append(
                f"parameter {alias.parameter_number}: the result in its place is cut otherwise"
            )
    module.attrs["input_output_alias"] = tuple(kept)
    others = module.attrs.get("buffer_donor", ())
    assert isinstance(others, tuple)
    module.attrs["buffer_donor"] = (*others, *donors)
    for name in ("input_output_alias", "buffer_donor"):
        if not module.attrs[name]:
            del module.attrs[name]


def _replace_entry(module: HloModule, made: HloComputation) -> None:
    module.entry_name = made.name
    parameters = tuple(p.shape for p in made.parameters)
    layout = ComputationLayout(parameters, made.root_instruction.shape)
    module.attrs["entry_computation_layout"] = layout
    drop_unreachable(module)
    for computation in module.computations.values():
        computation.sort()
    sort_computations(module)
