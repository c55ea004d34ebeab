"""Which arrays of a kernel that chooses its windows itself may stay in VMEM, and what they cost in HBM.

    gather      the operand where it comes to VMEM whole anyway, the result, of elements the indices,
                too; nothing where rows are copied from HBM to HBM
    scatter     what one block holds whole: the operand, the result, the updates; nothing where
                tiles come and go
    update      what is updated, what it is updated with
    network-sort    its operands and results
    pair-fft    the parts of its operand and of its result
    running-total   its operand and result

Index vectors of rows go from HBM to the scalar unit. `scope_bytes` is the least part of VMEM in which the
kernel is cut as it would be in all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from compiler.analysis import vmem_shares
from compiler.analysis.fourier_grid import fourier_grid
from compiler.analysis.fusion_body import fusion_body
from compiler.analysis.gather_dims import (
    GatherDims,
    gather_dims,
    has_rows,
    is_flat,
    is_large,
    is_wide,
)
from compiler.analysis.kernel_vmem import held_rows, stream_rows
from compiler.analysis.network_sort_grid import fits, network_grid
from compiler.analysis.running_grid import running_grid
from compiler.analysis.scatter_dims import (
    ScatterDims,
    has_numbers_last,
    is_canonical,
    scatter_dims,
)
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.vmem_shares import ABOUT_THE_SAME, SCOPE_PARTS
from compiler.analysis.window_cost import window_moves
from compiler.analysis.window_search import plan_update
from compiler.analysis.windows import WindowPlan
from compiler.backend.custom_gather import element_plan, takes_elements
from compiler.backend.custom_gather_resident import gathers_in_vmem, shape_in_memory
from compiler.backend.element_cut import element_cut
from compiler.backend.scatter_cut import ScatterCut, ScatterCutter
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import leaves
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES

_SENT_SHARE = 0.5  # of VMEM, for index vectors and what is packed of rows
_SMEM_SHARE = 0.5  # that scalars of the program leave, at least


@dataclass(frozen=True)
class CustomPlaces:
    """Bytes that a kernel moves of its arrays, by node of its body; others must lie in HBM.

    Those of its root are moved of each result. `scope_bytes` of VMEM are its own, whatever stays in the
    rest. `updates`: a result may lie on an operand in VMEM.
    """

    scope_bytes: int
    moves: Mapping[HloInstruction, int]
    updates: bool = True


def custom_places(fusion: HloInstruction, chip: Chip) -> CustomPlaces | None:
    """What may stay in VMEM of a kCustom fusion's arrays; None: nothing."""
    root = fusion.calls.root_instruction
    find = _FINDERS.get(root.opcode)
    if find is None:
        return None
    found = find(fusion, root, chip)
    if found is None:
        return None
    # An array that is also what the kernel takes its indices from must lie where those are read.
    moves = {n: b for n, b in found.moves.items() if root.operands.count(n) <= 1}
    return replace(found, moves=moves)


def _scoped(chip: Chip) -> Iterator[Chip]:
    """The chip with ever larger parts of its VMEM."""
    for part in SCOPE_PARTS:
        yield replace(chip, vmem_bytes=chip.vmem_bytes // part)


def _gather(fusion: HloInstruction, root: HloInstruction, chip: Chip) -> CustomPlaces | None:
    dims = gather_dims(root)
    if any(node.opcode != "parameter" for node in (dims.operand, dims.indices)):
        return None
    if takes_elements(dims, chip):
        return _elements(fusion, dims, chip)
    moves = {
        dims.operand: byte_size(shape_in_memory(fusion, dims.operand)),
        root: byte_size(fusion.array),
    }
    for part in _scoped(chip):
        if gathers_in_vmem(fusion, dims, part):
            return CustomPlaces(part.vmem_bytes, moves)
    return next(
        (CustomPlaces(p.vmem_bytes, {}) for p in _scoped(chip) if _sends(fusion, dims, p)), None
    )


def gather_fits(fusion: HloInstruction, chip: Chip) -> bool:
    """Whether VMEM holds what the kernel of a gather does; one in flat form takes what there is."""
    dims = gather_dims(fusion.calls.root_instruction)
    if is_flat(dims):
        return True
    if not takes_elements(dims, chip):
        return not is_large(dims, chip)
    try:
        element_plan(fusion, fusion_body(fusion), dims, chip)
    except UnsupportedError:
        return False
    return True


def _elements(fusion: HloInstruction, dims: GatherDims, chip: Chip) -> CustomPlaces | None:
    """Of a gather of elements of an operand in VMEM: all its arrays, the vector unit reads indices."""
    body = fusion_body(fusion)
    least: WindowPlan | None = None
    scope = 0
    for part in reversed(list(_scoped(chip))):
        if not takes_elements(dims, part):
            break
        try:
            plan = element_plan(fusion, body, dims, part)
        except UnsupportedError:
            break
        if least is not None and plan.estimated_cycles > ABOUT_THE_SAME * least.estimated_cycles:
            break
        least, scope = least or plan, part.vmem_bytes
    if least is None:
        return None
    return CustomPlaces(
        scope, {w.node: window_moves(least, w) for w in (*least.inputs, *least.outputs)}
    )


def _sends(fusion: HloInstruction, dims: GatherDims, chip: Chip) -> bool:
    """Whether so much VMEM is enough for a gather of rows that copies each from HBM to HBM."""
    if not has_rows(dims) or is_wide(dims, chip.vmem_bytes):
        return False
    shape = shape_in_memory(fusion, dims.indices)
    words = 0 if is_large(dims, chip) else 2 * held_rows(shape, shape.dims)
    return words <= _SENT_SHARE * chip.vmem_rows


def _scatter(fusion: HloInstruction, root: HloInstruction, chip: Chip) -> CustomPlaces | None:
    dims = scatter_dims(root)
    if len(dims.operands) != 1 or not (is_canonical(dims) or has_numbers_last(dims)):
        return None
    scope = _element_scope(dims, chip)
    if scope is None and (has_numbers_last(dims) or element_cut(dims, chip) is not None):
        return None
    if scope is None:
        best, cut = _cut(dims, chip)
        if cut.blocks is None:
            return CustomPlaces(_streamed_scope(dims, chip, best), {})
        if not _is_whole(dims, cut):
            return None
        scope = next(c.vmem_bytes for c in _scoped(chip) if _is_as_good(dims, c, best))
    moves = {root: byte_size(fusion.array)}
    for node in (dims.operand, dims.updates):
        if node.opcode == "parameter":
            moves[node] = byte_size(shape_in_memory(fusion, node))
    return CustomPlaces(scope, moves)


def _element_scope(dims: ScatterDims, chip: Chip) -> int | None:
    """The VMEM of a scatter of elements that goes through them a register at a time."""
    whole = dims.operand.array.dims[0]
    cuts = [(part.vmem_bytes, element_cut(dims, part)) for part in _scoped(chip)]
    cuts = [(size, cut) for size, cut in cuts if cut and cut.part == whole]
    cycles = min((cut.cycles for _, cut in cuts if cut), default=0.0)
    return next((size for size, cut in cuts if cut and cut.cycles <= ABOUT_THE_SAME * cycles), None)


def _cut(dims: ScatterDims, chip: Chip) -> tuple[float, ScatterCut]:
    words = int(_SMEM_SHARE * chip.smem_words)
    return ScatterCutter(dims, chip, in_place=True, smem_words=words).best()


def _streamed_scope(dims: ScatterDims, chip: Chip, cycles: float) -> int:
    """The least VMEM in which updates whose tiles come and go cost about the same."""
    cuts = ((part.vmem_bytes, *_cut(dims, part)) for part in _scoped(chip))
    return next(
        size for size, found, cut in cuts if cut.blocks is None and found <= ABOUT_THE_SAME * cycles
    )


def _is_whole(dims: ScatterDims, cut: ScatterCut) -> bool:
    """Whether one block holds the operand, or what a batch has of it."""
    skipped = 1 if dims.operand_batch else 0
    return cut.blocks is not None and cut.blocks[skipped:] == dims.operand.array.dims[skipped:]


def _is_as_good(dims: ScatterDims, chip: Chip, cycles: float) -> bool:
    found, cut = _cut(dims, chip)
    return _is_whole(dims, cut) and found <= ABOUT_THE_SAME * cycles


def _update(fusion: HloInstruction, root: HloInstruction, chip: Chip) -> CustomPlaces | None:
    body = fusion_body(fusion)
    if root.operands[0].opcode != "parameter":
        return None
    try:
        plan = plan_update(fusion, body, chip)
    except UnsupportedError:
        return None
    windows = (*plan.inputs, *plan.outputs)
    needed = sum(stream_rows(plan, w) for w in windows) * GRANULE_BYTES
    scope = next(
        (c.vmem_bytes for c in _scoped(chip) if needed <= vmem_shares.WINDOWS * c.vmem_bytes), None
    )
    if scope is None or body.materialised:
        return None
    return CustomPlaces(scope, {w.node: window_moves(plan, w) for w in windows})


def _transform(fusion: HloInstruction, root: HloInstruction, chip: Chip) -> CustomPlaces | None:
    cut = fourier_grid(root, chip)
    scope = next(part.vmem_bytes for part in _scoped(chip) if fourier_grid(root, part) == cut)
    parts = (*root.operands[1:], root)
    moves = {node: byte_size(leaves(node.shape)[0].with_layout(None)) for node in parts}
    return CustomPlaces(scope, moves, cut.is_disjoint)


def _sort(fusion: HloInstruction, root: HloInstruction, chip: Chip) -> CustomPlaces | None:
    cut = network_grid(root, chip)
    scopes = (part for part in _scoped(chip) if network_grid(root, part) == cut)
    scope = next((part.vmem_bytes for part in scopes if fits(root, cut, part)), chip.vmem_bytes)
    moves = {node: byte_size(root.operands[0].array) for node in (*root.operands, root)}
    return CustomPlaces(scope, moves, cut.is_disjoint)


def _running(fusion: HloInstruction, root: HloInstruction, chip: Chip) -> CustomPlaces | None:
    cut = running_grid(root, chip)
    scope = next(part.vmem_bytes for part in _scoped(chip) if running_grid(root, part) == cut)
    moves = {node: byte_size(root.array) for node in (*root.operands, root)}
    return CustomPlaces(scope, moves, cut.is_disjoint)


_FINDERS: dict[str, Callable[[HloInstruction, HloInstruction, Chip], CustomPlaces | None]] = {
    "dynamic-update-slice": _update,
    "gather": _gather,
    "network-sort": _sort,
    "pair-fft": _transform,
    "running-total": _running,
    "scatter": _scatter,
}
