"""Donor aliasing: a donated parameter gives its buffer to a result of the same type and dimensions.

``buffer_donor`` says that the caller wants a parameter no more, not which result may lie there: JAX leaves
that to the compiler where it does not know the results' shardings yet. Parameters take the first
result that is still free, in order, as XLA's OptimizeInputOutputBufferAlias does for arrays of one size.
A donor that fits no result stays one.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.hlo.attributes import BufferDonor, InputOutputAlias
from compiler.hlo.ir import HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.context import PassContext

_Path = tuple[int, ...]


def alias_donors(module: HloModule, context: PassContext) -> bool:
    """Turn entries of ``buffer_donor`` into entries of ``input_output_alias``."""
    donors = module.attrs.get("buffer_donor", ())
    aliases = module.attrs.get("input_output_alias", ())
    assert isinstance(donors, tuple)
    assert isinstance(aliases, tuple)
    free = dict(_arrays(module.entry.root_instruction.shape))
    for alias in aliases:
        free.pop(alias.output_index, None)
    left: list[BufferDonor] = []
    made: list[InputOutputAlias] = []
    for donor in donors:
        given = dict(_arrays(module.entry.parameters[donor.parameter_number].shape))
        wanted = given.get(donor.parameter_index)
        path = next((path for path, kind in free.items() if kind == wanted), None)
        if path is None:
            left.append(donor)
            continue
        del free[path]
        made.append(InputOutputAlias(path, donor.parameter_number, donor.parameter_index))
        context.counts["aliases"] += 1
    if made:
        module.attrs["input_output_alias"] = (*aliases, *made)
        module.attrs["buffer_donor"] = tuple(left)
        if not left:
            del module.attrs["buffer_donor"]
    return bool(made)


def _arrays(shape: Shape, path: _Path = ()) -> Iterator[tuple[_Path, tuple[object, ...]]]:
    """The path of each array that is not empty, with its type and dimensions."""
    if isinstance(shape, TupleShape):
        for number, element in enumerate(shape.elements):
            yield from _arrays(element, (*path, number))
    elif isinstance(shape, ArrayShape) and shape.element_count:
        yield path, (shape.dtype, shape.dims)
