"""Arguments that are given up: which result of a traced module may lie in the place of which."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontends.numpy.pytree import TreeDef
from compiler.hlo.attributes import InputOutputAlias
from compiler.hlo.ir import HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape


def donate(module: HloModule, arguments: TreeDef, donated: Sequence[int]) -> None:
    """Let each leaf of the `donated` arguments (positions in the tuple `arguments`) share its memory
    with the first result of its shape and type that shares none yet.

    One that no result fits stays what it is: an input that the call leaves alone.
    """
    results: list[tuple[tuple[int, ...], Shape]] = _indexed(module.entry.root_instruction.shape)
    aliases = []
    for number in _leaf_numbers(arguments, donated):
        shape = module.entry.parameters[number].array
        found = next((r for r in results if r[1] == shape), None)
        if found is not None:
            results.remove(found)
            aliases.append(InputOutputAlias(found[0], number, (), "may-alias"))
    if aliases:
        module.attrs["input_output_alias"] = tuple(aliases)


def _indexed(shape: Shape) -> list[tuple[tuple[int, ...], Shape]]:
    if isinstance(shape, TupleShape):
        return [((i,), element) for i, element in enumerate(shape.elements)]
    assert isinstance(shape, ArrayShape)
    return [((), shape)]


def _leaf_numbers(arguments: TreeDef, donated: Sequence[int]) -> list[int]:
    """The numbers of the parameters that the leaves of these arguments are."""
    numbers: list[int] = []
    first = 0
    for position, child in enumerate(arguments.children):
        if position in donated:
            numbers += range(first, first + child.leaf_count)
        first += child.leaf_count
    return numbers
