"""Windows that are read in place: a large transfer into a dense part of VMEM need not be copied.

Up to two ranges of rows of such a window (its double buffer) are kept as references to HBM in the
context; a load asks where its rows lie (`RESOLVE`). In HBM they lie in one piece or in equal ones,
each `WindowPieces.gap_bytes` further behind the one before than in VMEM; then an access whose address is
not counted from the start of a piece ends the reference. What would make the reference and the copy differ
ends it: the copy is made then (`SETTLE`). That happens when HBM below a reference is about to be
written, when a store or a transfer touches part of its rows, and when a load reaches over its end.
Values are those of copies made at once, whatever a program does. Two threads may settle a window
at the same time; both ways to read it give the same data meanwhile.

References end with the kernel, so what it leaves to later ones in a kept window is copied at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tpu_sim.isa import resources
from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.isa.program import HBM, VMEM, Block, DmaDescriptor, Kernel, Node, rows_of
from tpu_sim.jit.dma_shapes import EvenPieces, source_of_dense
from tpu_sim.jit.window_kernels import MAX_WINDOWS

_MIN_BYTES = 1 << 14
"""Of a transfer: below, a copy takes less than asking at each load where its rows lie (assumed)."""
_VREG_ROWS = 8


@dataclass(frozen=True)
class WindowPieces:
    """How the data of a window lie in HBM: `rows` rows, then a gap that VMEM does not have."""

    rows: int
    gap_bytes: int

    def number(self, row: int) -> int:
        """The piece in which a row lies, counted from one where a piece starts."""
        return row // self.rows


_ONE_PIECE = WindowPieces(1 << 40, 0)


@dataclass(frozen=True)
class InPlace:
    """A window that is read in place: its entry in the table, and how its data lie."""

    entry: int
    pieces: WindowPieces


@dataclass
class _Uses:
    """What a kernel does to its windows."""

    referable: dict[int, dict[WindowPieces, int]] = field(default_factory=dict)
    excluded: set[int] = field(default_factory=set)


def _source(descriptor: DmaDescriptor) -> EvenPieces | None:
    """The source of a transfer that may be kept as a reference, else None."""
    if descriptor.src_space != HBM or descriptor.dst_space != VMEM:
        return None
    source = source_of_dense(descriptor)
    if source is None or source.size * source.count < _MIN_BYTES:
        return None
    return source if source.count == 1 or source.size >= _VREG_ROWS * ROW_BYTES else None


def pieces_of(descriptor: DmaDescriptor) -> WindowPieces | None:
    """How the data of a transfer lie in HBM, None if it may not be kept as a reference."""
    source = _source(descriptor)
    if source is None or source.stride <= source.size:
        return None if source is None else _ONE_PIECE
    return WindowPieces(source.size // ROW_BYTES, source.stride - source.size)


def referred_rows(descriptor: DmaDescriptor) -> int:
    """Rows of a transfer that may be kept as a reference."""
    source = _source(descriptor)
    return 0 if source is None else source.size * source.count // ROW_BYTES


def windows_in_place(kernel: Kernel) -> dict[int, InPlace]:
    """The windows of a kernel that are read in place, by number."""
    uses = _Uses(excluded={number for number, w in enumerate(kernel.windows) if w.kept})
    _follow(kernel, kernel.body, False, uses)
    chosen = sorted(uses.referable.keys() - uses.excluded)[:MAX_WINDOWS]
    found = {}
    for entry, window in enumerate(chosen):
        rows = uses.referable[window]
        found[window] = InPlace(entry, max(rows, key=lambda pieces: (rows[pieces], pieces.rows)))
    return found


def _follow(kernel: Kernel, nodes: list[Node], in_loop: bool, uses: _Uses) -> None:
    for node in nodes:
        match node:
            case Block():
                _follow_block(kernel, node, in_loop, uses)
            case Loop():
                _follow(kernel, node.body, True, uses)
            case While():
                _follow(kernel, node.test + node.body, True, uses)
            case If():
                _follow(kernel, node.then + node.orelse, in_loop, uses)


def _follow_block(kernel: Kernel, block: Block, in_loop: bool, uses: _Uses) -> None:
    """A block must not both read a window and change what lies under it."""
    filled: set[int] = set()
    loaded: set[int] = set()
    writes_hbm = False
    accesses = {row for row in rows_of(block) if row.is_transfer or row.window_index >= 0}
    if not accesses:
        return
    for instr in [i for bundle in block.bundles for i in bundle if i.row in accesses]:
        row = instr.row
        if row.is_transfer:
            descriptor = kernel.descriptors[instr.operands[row.descriptor_index]]
            writes_hbm |= descriptor.dst_space == HBM
            if descriptor.src_space == VMEM:
                uses.excluded.add(descriptor.window)
            if descriptor.dst_space == VMEM:
                filled.add(descriptor.window)
                _note_pieces(descriptor, uses)
        elif row.window_index >= 0:
            window = instr.operands[row.window_index]
            if resources.VMEM in row.uses:
                loaded.add(window)
                is_apt = not row.is_indexed and instr.operands[row.stride_index] >= 0
            else:
                is_apt = not (row.is_indexed or in_loop or window in filled)
            if not is_apt:
                uses.excluded.add(window)
    uses.excluded |= loaded if writes_hbm else loaded & filled


def _note_pieces(descriptor: DmaDescriptor, uses: _Uses) -> None:
    pieces = pieces_of(descriptor)
    if pieces is not None:
        rows = uses.referable.setdefault(descriptor.window, {})
        rows[pieces] = max(rows.get(pieces, 0), referred_rows(descriptor))
