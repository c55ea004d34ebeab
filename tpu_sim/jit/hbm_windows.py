"""Windows that are read in place: a large transfer into a dense part of VMEM need not be copied.

Up to two ranges of rows of such a window (its double buffer) are kept as references to HBM in the
context; a load asks where its rows lie (`RESOLVE`). In HBM they lie in one piece or in equal ones,
each `Pieces.gap_bytes` further behind the one before than in VMEM; then an access whose address is
not counted from the start of a piece ends the reference. What would make the reference and the copy differ
ends it: the copy is made then (`SETTLE`). That happens when HBM below a reference is about to be
written, when a store or a transfer touches part of its rows, and when a load reaches over its end.
Values are those of copies made at once, whatever a program does. Two threads may settle a window
at the same time; both ways to read it give the same data meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tpu_sim.isa import resources
from tpu_sim.isa.program import HBM, VMEM, Block, DmaDescriptor, If, Kernel, Loop, Node, While
from tpu_sim.jit.context import ROW_BYTES, Word
from tpu_sim.jit.dma_shapes import Spread, source_of_dense
from tpu_sim.jit.emitter import Emitter

MAX_WINDOWS = 16
ENTRY_BYTES = 128
"""Per window two slots of four words: first row, rows (0: none), bytes from VMEM to HBM, and in the
first slot the window's pointer, in the second whether references do not pay. Behind them rows and
gap of `Pieces`."""
RESOLVE, SETTLE, REFER, PROTECT = (
    "tpuc_kernel_v1_window_resolve",
    "tpuc_kernel_v1_window_settle",
    "tpuc_kernel_v1_window_refer",
    "tpuc_kernel_v1_window_protect",
)
WINDOW_DECLARATIONS = f"""
declare i64 @{RESOLVE}(ptr, ptr, i64, i64)
declare void @{SETTLE}(ptr, ptr)
declare i1 @{REFER}(ptr, ptr, i64, i64, i64)
declare void @{PROTECT}(ptr, i64, i64, i64, i64)
"""
_MIN_BYTES = 1 << 14
_VREG_ROWS = 8
_SLOT_BYTES = 32
_ROWS, _DELTA, _LAST = 8, 16, 24
POINTER_OFFSET = _LAST
REFUSED_OFFSET = _SLOT_BYTES + _LAST
PIECE_ROWS_OFFSET, GAP_OFFSET = 2 * _SLOT_BYTES, 2 * _SLOT_BYTES + 8


@dataclass(frozen=True)
class Pieces:
    """How the data of a window lie in HBM: `rows` rows, then a gap that VMEM does not have."""

    rows: int
    gap_bytes: int

    def number(self, row: int) -> int:
        """The piece in which a row lies, counted from one where a piece starts."""
        return row // self.rows


_ONE_PIECE = Pieces(1 << 40, 0)


@dataclass(frozen=True)
class InPlace:
    """A window that is read in place: its entry in the table, and how its data lie."""

    entry: int
    pieces: Pieces


@dataclass
class _Uses:
    """What a kernel does to its windows."""

    referable: dict[int, dict[Pieces, int]] = field(default_factory=dict)
    excluded: set[int] = field(default_factory=set)


def _source(descriptor: DmaDescriptor) -> Spread | None:
    """The source of a transfer that may be kept as a reference, else None."""
    if descriptor.src_space != HBM or descriptor.dst_space != VMEM:
        return None
    source = source_of_dense(descriptor)
    if source is None or source.size * source.count < _MIN_BYTES:
        return None
    return source if source.count == 1 or source.size >= _VREG_ROWS * ROW_BYTES else None


def pieces_of(descriptor: DmaDescriptor) -> Pieces | None:
    """How the data of a transfer lie in HBM, None if it may not be kept as a reference."""
    source = _source(descriptor)
    if source is None or source.stride <= source.size:
        return None if source is None else _ONE_PIECE
    return Pieces(source.size // ROW_BYTES, source.stride - source.size)


def referred_rows(descriptor: DmaDescriptor) -> int:
    """Rows of a transfer that may be kept as a reference."""
    source = _source(descriptor)
    return 0 if source is None else source.size * source.count // ROW_BYTES


def windows_in_place(kernel: Kernel) -> dict[int, InPlace]:
    """The windows of a kernel that are read in place, by number."""
    uses = _Uses()
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
    for instr in (instr for bundle in block.bundles for instr in bundle):
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


def entry_offset(entry: int) -> int:
    """Bytes from the context to an entry."""
    return int(Word.WINDOWS) * 8 + entry * ENTRY_BYTES


def hbm_windows_text() -> str:
    """The functions that keep the table."""
    return "\n".join((_settle(), _resolve(), _refer(), _protect()))


@dataclass(frozen=True)
class _Slot:
    """A slot's words, loaded."""

    pointer: str
    first: str
    rows: str
    delta: str


def _slot(e: Emitter, pointer: str) -> _Slot:
    """Load a slot. Its number of rows goes to 0 once its data is in VMEM, so it is loaded in order."""
    rows_at = e.offset(pointer, _ROWS)
    rows = e.value(f"load atomic i64, ptr {rows_at} acquire, align 8")
    return _Slot(
        pointer, e.load("i64", pointer, 8), rows, e.load("i64", e.offset(pointer, _DELTA), 8)
    )


def _slots(e: Emitter) -> list[_Slot]:
    return [_slot(e, e.offset("%slots", k * _SLOT_BYTES)) for k in range(2)]


def _forget(e: Emitter, slot: _Slot) -> None:
    e.do(f"store atomic i64 0, ptr {e.offset(slot.pointer, _ROWS)} release, align 8")


def _define(header: str, e: Emitter, end: str = "ret void") -> str:
    return f"define {header} noinline #0 {{\nentry:\n{e.text()}\n {end}\n}}\n"


def _pieces(e: Emitter, slot: _Slot) -> tuple[str, str]:
    """The number of pieces of a slot in use, and their size in bytes."""
    piece_rows = e.load("i64", e.offset("%slots", PIECE_ROWS_OFFSET), 8)
    is_one = e.value(f"icmp ult i64 {slot.rows}, {piece_rows}")
    rows = e.value(f"select i1 {is_one}, i64 {slot.rows}, i64 {piece_rows}")
    count = e.value(f"udiv i64 {slot.rows}, {piece_rows}")
    return (
        e.value(f"select i1 {is_one}, i64 1, i64 {count}"),
        e.value(f"mul i64 {rows}, {ROW_BYTES}"),
    )


def _settle() -> str:
    """Copy what a window refers to into VMEM; one thread at a time."""
    e = Emitter("w")
    lock = e.offset("%ctx", int(Word.WINDOWS_LOCK) * 8)
    again, held = e.new_label(), e.new_label()
    e.jump(again)
    e.place(again)
    swap = e.value(f"cmpxchg ptr {lock}, i64 0, i64 1 acquire monotonic, align 8")
    e.branch(e.value(f"extractvalue {{ i64, i1 }} {swap}, 1"), held, again)
    e.place(held)
    window = e.load("ptr", e.offset("%slots", _LAST), 8)
    gap = e.load("i64", e.offset("%slots", GAP_OFFSET), 8)
    for slot in _slots(e):
        with e.when(e.value(f"icmp ne i64 {slot.rows}, 0")):
            target = e.offset(window, e.value(f"mul i64 {slot.first}, {ROW_BYTES}"))
            source = e.offset(target, slot.delta)
            count, size = _pieces(e, slot)
            stride = e.value(f"add i64 {size}, {gap}")
            with e.loop(count) as number:
                to = e.offset(target, e.value(f"mul i64 {number}, {size}"))
                of = e.offset(source, e.value(f"mul i64 {number}, {stride}"))
                e.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 {size}, i1 false)")
            _forget(e, slot)
    e.do(f"store atomic i64 0, ptr {lock} release, align 8")
    return _define(f"void @{SETTLE}(ptr %ctx, ptr %slots)", e)


def _resolve() -> str:
    """Bytes from VMEM to where row ``first`` of a window lies, or 0 if it lies in VMEM.

    Up to row ``first + span`` everything lies likewise; in pieces of which one starts at ``first``.
    """
    e = Emitter("w")
    piece_rows = e.load("i64", e.offset("%slots", PIECE_ROWS_OFFSET), 8)
    gap = e.load("i64", e.offset("%slots", GAP_OFFSET), 8)
    is_whole = e.value(f"icmp eq i64 {gap}, 0")
    for slot in _slots(e):
        from_first = e.value(f"sub i64 %first, {slot.first}")
        last = e.value(f"add i64 {from_first}, %span")
        not_before = e.value(f"icmp sge i64 {from_first}, 0")
        not_after = e.value(f"icmp slt i64 {last}, {slot.rows}")
        number = e.value(f"udiv i64 {from_first}, {piece_rows}")
        start = e.value(f"mul i64 {number}, {piece_rows}")
        starts = e.value(f"icmp eq i64 {start}, {from_first}")
        is_apt = e.value(f"or i1 {is_whole}, {starts}")
        is_inside = e.value(f"and i1 {not_before}, {not_after}")
        with e.when(e.value(f"and i1 {is_inside}, {is_apt}")):
            moved = e.value(f"add i64 {slot.delta}, {e.value(f'mul i64 {number}, {gap}')}")
            e.do(f"ret i64 {moved}")
            e.place(e.new_label())
        reaches = e.value(f"icmp sge i64 {last}, 0")
        starts = e.value(f"icmp slt i64 {from_first}, {slot.rows}")
        with e.when(e.value(f"and i1 {reaches}, {starts}")):
            e.do(f"call void @{SETTLE}(ptr %ctx, ptr %slots)")
            e.store("i64", "1", e.offset("%slots", REFUSED_OFFSET), 8)
            e.do("ret i64 0")
            e.place(e.new_label())
    return _define(f"i64 @{RESOLVE}(ptr %ctx, ptr %slots, i64 %first, i64 %span)", e, "ret i64 0")


def _refer() -> str:
    """Keep a transfer as a reference: false if it must be copied."""
    e = Emitter("w")
    refused = e.load("i64", e.offset("%slots", REFUSED_OFFSET), 8)
    with e.when(e.value(f"icmp ne i64 {refused}, 0")):
        e.do(f"call void @{SETTLE}(ptr %ctx, ptr %slots)")
        e.do("ret i1 false")
        e.place(e.new_label())
    end = e.value("add i64 %first, %rows")
    for slot in _slots(e):
        slot_end = e.value(f"add i64 {slot.first}, {slot.rows}")
        starts_before = e.value(f"icmp slt i64 {slot.first}, {end}")
        ends_behind = e.value(f"icmp sgt i64 {slot_end}, %first")
        with e.when(e.value(f"and i1 {starts_before}, {ends_behind}")):
            starts_inside = e.value(f"icmp sge i64 {slot.first}, %first")
            ends_inside = e.value(f"icmp sle i64 {slot_end}, {end}")
            kept = e.value(f"xor i1 {e.value(f'and i1 {starts_inside}, {ends_inside}')}, true")
            with e.when(kept):
                e.do(f"call void @{SETTLE}(ptr %ctx, ptr %slots)")
            _forget(e, slot)
    first, second = _slots(e)
    is_full = e.value(
        f"and i1 {e.value(f'icmp ne i64 {first.rows}, 0')}, "
        f"{e.value(f'icmp ne i64 {second.rows}, 0')}"
    )
    with e.when(is_full):
        e.do(f"call void @{SETTLE}(ptr %ctx, ptr %slots)")
    first_rows = e.load("i64", e.offset(first.pointer, _ROWS), 8)
    is_free = e.value(f"icmp eq i64 {first_rows}, 0")
    slot_at = e.value(f"select i1 {is_free}, ptr {first.pointer}, ptr {second.pointer}")
    e.store("i64", "%first", slot_at, 8)
    e.store("i64", "%delta", e.offset(slot_at, _DELTA), 8)
    e.do(f"store atomic i64 %rows, ptr {e.offset(slot_at, _ROWS)} release, align 8")
    header = f"i1 @{REFER}(ptr %ctx, ptr %slots, i64 %first, i64 %rows, i64 %delta)"
    return _define(header, e, "ret i1 true")


def _protect() -> str:
    """HBM from ``low`` to ``high`` is about to be written: settle what refers to it.

    Of that range only pieces of ``size`` bytes every ``stride`` are written; 0 stands for one piece,
    a negative stride for anywhere in it.
    """
    e = Emitter("w")
    count = e.load("i64", e.offset("%ctx", int(Word.WINDOW_COUNT) * 8), 8)
    with e.when(e.value(f"icmp ne i64 {count}, 0")), e.loop(count) as number:
        table = e.offset("%ctx", entry_offset(0))
        e.do(f"%slots = getelementptr i8, ptr {table}, "
             f"i64 {e.value(f'mul i64 {number}, {ENTRY_BYTES}')}")  # fmt: skip
        window = e.load("i64", e.offset("%slots", _LAST), 8)
        gap = e.load("i64", e.offset("%slots", GAP_OFFSET), 8)
        for slot in _slots(e):
            from_window = e.value(f"mul i64 {slot.first}, {ROW_BYTES}")
            start = e.value(f"add i64 {e.value(f'add i64 {window}, {from_window}')}, {slot.delta}")
            pieces, size = _pieces(e, slot)
            last = e.value(f"sub i64 {pieces}, 1")
            gaps = e.value(f"mul i64 {last}, {gap}")
            data = e.value(f"mul i64 {slot.rows}, {ROW_BYTES}")
            end = e.value(f"add i64 {start}, {e.value(f'add i64 {gaps}, {data}')}")
            is_used = e.value(f"icmp ne i64 {slot.rows}, 0")
            starts_before = e.value(f"icmp ult i64 {start}, %high")
            ends_behind = e.value(f"icmp ugt i64 {end}, %low")
            overlaps = e.value(f"and i1 {starts_before}, {ends_behind}")
            with e.when(e.value(f"and i1 {is_used}, {overlaps}")):
                is_whole = e.value(f"icmp eq i64 {gap}, 0")
                stride = e.value(f"add i64 {size}, {gap}")
                apart = _is_interleaved(e, start, size, e.value(
                    f"select i1 {is_whole}, i64 0, i64 {stride}"))  # fmt: skip
                with e.when(e.value(f"xor i1 {apart}, true")):
                    e.do(f"call void @{SETTLE}(ptr %ctx, ptr %slots)")
                    e.store("i64", "1", e.offset("%slots", REFUSED_OFFSET), 8)
    header = f"void @{PROTECT}(ptr %ctx, i64 %low, i64 %high, i64 %size, i64 %stride)"
    return _define(header, e)


def _is_interleaved(e: Emitter, start: str, size: str, stride: str) -> str:
    """Whether pieces from ``start`` lie between those that are written: a stride is common to both,
    or one side is a single piece, and modulo that stride they do not meet.
    """
    is_single = e.value(f"icmp eq i64 {stride}, 0")
    common = e.value(f"select i1 {is_single}, i64 %stride, i64 {stride}")
    agrees = e.value(f"icmp eq i64 %stride, {common}")
    is_possible = e.value(f"or i1 {agrees}, {e.value('icmp eq i64 %stride, 0')}")
    is_strided = e.value(f"icmp sgt i64 {common}, 0")
    divisor = e.value(f"select i1 {is_strided}, i64 {common}, i64 1")
    offset = e.value(f"srem i64 {e.value(f'sub i64 %low, {start}')}, {divisor}")
    is_negative = e.value(f"icmp slt i64 {offset}, 0")
    wrapped = e.value(f"add i64 {offset}, {divisor}")
    distance = e.value(f"select i1 {is_negative}, i64 {wrapped}, i64 {offset}")
    behind = e.value(f"icmp sge i64 {distance}, {size}")
    before = e.value(f"icmp sge i64 {e.value(f'sub i64 {divisor}, {distance}')}, %size")
    fits = e.value(f"and i1 {behind}, {before}")
    return e.value(f"and i1 {e.value(f'and i1 {is_possible}, {is_strided}')}, {fits}")
