"""Port layout: parameters and results whose last dimensions are short lie with long ones there.

    p = f32[4096,3] parameter(0)        p = f32[3,4096] parameter(0)
                                        transpose = f32[4096,3] transpose(p), dimensions={1,0}

The module notes what the host sees (`compiler.analysis.host_ports`); the runtime lays arrays out in that
order as it copies them. Where rows are looked up by index, the dimension that numbers them stays major,
and what is left of a row has the order that it would have by itself; in tuples the order stays descending.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from compiler.analysis.aliasing import donations
from compiler.analysis.code_costs import OrderCosts
from compiler.analysis.gather_dims import HELD_SHARE, gather_dims
from compiler.analysis.host_ports import HostPorts, host_ports, set_host_ports
from compiler.analysis.port_order import Dims, port_order
from compiler.analysis.scatter_dims import scatter_dims
from compiler.hlo.attributes import ComputationLayout
from compiler.hlo.device_types import plane_type
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_any
from compiler.hlo.shape import ArrayShape, Layout, TupleShape, leaves
from compiler.hlo.shape_text import parse_shape, print_shape
from compiler.passes.context import PassContext
from compiler.passes.dimension_order.indexed import indexed_cycles, table_bytes
from compiler.passes.dimension_order.orders import descending
from compiler.rewrite import make
from compiler.rewrite.graph import emit, remove_dead
from tpu_sim.isa.chips import Chip

Instr = HloInstruction
_BY_ROWS = frozenset({"gather", "scatter"})
_KEEP_ROWS = with_any(Trait.ELEMENTWISE | Trait.REARRANGES)


def lay_out_ports(module: HloModule, context: PassContext) -> bool:
    """Turn the parameters and results that waste most of their memory."""
    entry, chip = module.entry, context.chip
    if not all(isinstance(parameter.shape, ArrayShape) for parameter in entry.parameters):
        return False
    inputs = {n: _order_of(p, chip) for n, p in enumerate(entry.parameters)}
    inputs = {n: order for n, order in inputs.items() if not _is_descending(order)}
    outputs = dict(_result_orders(entry.root_instruction))
    _agree(module, inputs, outputs)
    if not inputs and not outputs:
        return False
    noted = host_ports(module)
    texts = list(noted.parameters), list(noted.results)
    for number, order in inputs.items():
        texts[0][number] = _noted(texts[0][number], entry.parameters[number].array, order)
        _turn_parameter(entry.parameters[number], order)
    results = leaves(entry.root_instruction.shape)
    for number, order in outputs.items():
        texts[1][number] = _noted(texts[1][number], results[number], order)
    _turn_results(module, outputs)
    entry.sort()
    set_host_ports(module, HostPorts(tuple(texts[0]), tuple(texts[1])))
    module.attrs["entry_computation_layout"] = ComputationLayout(
        tuple(p.shape for p in entry.parameters), entry.root_instruction.shape
    )
    context.counts["parameters"] += len(inputs)
    context.counts["results"] += len(outputs)
    return True


def _order(shape: ArrayShape) -> Dims:
    return port_order(plane_type(shape.dtype)[0], shape.dims)


def _is_descending(order: Dims) -> bool:
    return order == tuple(range(len(order)))


def _order_of(parameter: Instr, chip: Chip) -> Dims:
    """The order of a parameter: the type's, or where slices of it are looked up or changed by index and
    that order would tear them apart, one in which what is numbered by any of them is major. Slices of one
    element cannot be torn apart."""
    lookups = [lookup for lookup in _lookups(parameter) if _slice_elements(lookup) > 1]
    kept = descending(parameter.array.rank)
    if sum(_saved_cycles(lookup, chip) for lookup in lookups) >= 0:
        return _order(parameter.array)
    if any(lookup.operands[0] is not parameter for lookup in lookups):
        return kept
    numbered = {d for lookup in lookups for d in _numbered(lookup)}
    if not all(_takes_whole_slices(lookup, numbered) for lookup in lookups):
        return kept
    dtype = plane_type(parameter.array.dtype)[0]
    return port_order(dtype, parameter.array.dims, tuple(sorted(numbered)))


def _lookups(parameter: Instr) -> Iterator[Instr]:
    """The gathers and scatters of a parameter, or of what is computed of it element by element or
    pads it, as for the image of overlapping windows."""
    found: dict[Instr, None] = {parameter: None}
    pending = [parameter]
    while pending:
        value = pending.pop()
        for user in value.users:
            if user.opcode in _BY_ROWS and user.operands[0] is value:
                yield user
            if user not in found and _keeps_rows(user):
                found[user] = None
                pending.append(user)


def _numbered(lookup: Instr) -> Dims:
    """Dimensions of the operand of which a slice has one element, at its index."""
    if lookup.opcode == "gather":
        g = gather_dims(lookup)
        return g.collapsed + g.operand_batch
    s = scatter_dims(lookup)
    return s.inserted + s.operand_batch


def _takes_whole_slices(lookup: Instr, numbered: set[int]) -> bool:
    """Whether slices have every dimension whole that is not among those numbered."""
    sizes = _slice_sizes(lookup)
    dims = lookup.operands[0].array.dims
    return all(sizes[d] == size for d, size in enumerate(dims) if d not in numbered)


def _slice_sizes(lookup: Instr) -> Dims:
    if lookup.opcode == "gather":
        return gather_dims(lookup).slice_sizes
    s = scatter_dims(lookup)
    return tuple(s.window_size(d) for d in range(lookup.operands[0].array.rank))


def _slice_elements(lookup: Instr) -> int:
    return math.prod(_slice_sizes(lookup))


def _saved_cycles(instr: Instr, chip: Chip) -> float:
    """What a lookup takes less where its table lies with its rows along the lanes: elements are then
    loaded by address from a table that lies in VMEM. Less than nothing where that cannot be."""
    if instr.opcode != "gather":
        return -math.inf
    d = gather_dims(instr)
    order = _order(d.operand.array)
    if not d.window_dims or d.operand_batch or order[-1] not in d.start_map:
        return -math.inf
    if table_bytes(d.operand, order) > HELD_SHARE * chip.vmem_bytes:
        return -math.inf
    window = [d.offset_dims[d.window_dims.index(i)] for i in order if i in d.window_dims]
    indices = descending(d.indices.array.rank)
    costs = OrderCosts.of(chip)
    plain = (descending(len(order)), indices)
    rows = indexed_cycles(instr, plain, (*d.batch_dims, *window), costs)
    return rows - indexed_cycles(instr, (order, indices), (*window, *d.batch_dims), costs)


def _keeps_rows(instr: Instr) -> bool:
    return instr.opcode == "pad" or instr.opcode in _KEEP_ROWS


def _result_orders(root: Instr) -> Iterator[tuple[int, Dims]]:
    """The orders of results that are not descending, by leaf; a tuple in a tuple stays."""
    shape = root.shape
    elements = shape.elements if isinstance(shape, TupleShape) else (shape,)
    if not all(isinstance(element, ArrayShape) for element in elements):
        return
    for number, element in enumerate(elements):
        assert isinstance(element, ArrayShape)
        if not _is_descending(_order(element)):
            yield number, _order(element)


def _agree(module: HloModule, inputs: dict[int, Dims], outputs: dict[int, Dims]) -> None:
    """A result that replaces a parameter lies as that does."""
    for alias in donations(module):
        number = alias.parameter_number
        leaf = alias.output_index[0] if alias.output_index else 0
        if number in inputs and leaf in outputs:
            outputs[leaf] = inputs[number]
        else:
            inputs.pop(number, None)
            outputs.pop(leaf, None)


def _noted(known: str, shape: ArrayShape, order: Dims) -> str:
    """The text of what the host sees, in the order that the device array lies in."""
    host = parse_shape(known) if known else shape
    assert isinstance(host, ArrayShape)
    return print_shape(host.with_layout(Layout(tuple(reversed(order)))))


def _turn_parameter(parameter: Instr, order: Dims) -> None:
    users = list(parameter.users)
    shape = parameter.array
    parameter.shape = shape.with_dims(tuple(shape.dims[d] for d in order))
    back = make.transpose(parameter, tuple(order.index(d) for d in range(len(order))))
    for user in users:
        user.set_operands([back if o is parameter else o for o in user.operands])
    if parameter.home.root is parameter:
        parameter.home.root = back


def _turn_results(module: HloModule, orders: dict[int, Dims]) -> None:
    root = module.entry.root_instruction
    if not orders:
        return
    if isinstance(root.shape, ArrayShape):
        module.entry.root = make.transpose(root, orders[0])
        return
    values = list(_elements(root))
    for number, order in orders.items():
        values[number] = make.transpose(values[number], order)
    shape = TupleShape(tuple(v.shape for v in values))
    module.entry.root = emit(root, "tuple", shape, values)
    remove_dead(root)


def _elements(root: Instr) -> list[Instr]:
    if root.opcode == "tuple":
        return list(root.operands)
    assert isinstance(root.shape, TupleShape)
    return [
        emit(root, "get-tuple-element", shape, (root,), {"index": number})
        for number, shape in enumerate(root.shape.elements)
    ]
