"""A program: kernels of bundles under structured control flow, and the data they need.

    Program
      kernels   name -> Kernel: windows, DMA descriptors, grid, body
      main      control flow around kernel calls, on the scalar unit
      buffers   what lies in HBM (inputs, outputs, constants, temporaries)

    Node = ControlFlow[Block] = Block | Loop | If | While | Call    (`control_flow`)

Registers: sregs live across the blocks of one kernel (or of main); vregs and vmasks live within one
block only; nothing lives in registers across a `Call`. EUP and XLU queues are empty at block ends;
the MXU result queues and latched weights may span blocks. A kernel finds its arguments in SMEM
words 0..`arg_count`-1 (`Program.smem_args`), written by main before the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from tpu_sim.isa.control_flow import ControlFlow, walk
from tpu_sim.isa.instruction import Instr, Row

Bundle = tuple[Instr, ...]
"""Instructions issued together: all read before any writes."""


@dataclass
class Block:
    """Straight-line bundles; an empty bundle is a one-cycle bubble."""

    bundles: list[Bundle]
    name: str = ""


Node = ControlFlow[Block]


def blocks_of(nodes: Iterable[Node]) -> Iterator[Block]:
    """The blocks of `nodes`, in the order of the text."""
    return (node for node in walk(nodes) if isinstance(node, Block))


_ROW = attrgetter("row")


def rows_of(block: Block) -> set[Row]:
    """Which instructions a block has: most questions about it end here."""
    return set(map(_ROW, chain.from_iterable(block.bundles)))


HBM, VMEM, SMEM = 0, 1, 6
"""Memory spaces, numbered as in XLA's layouts."""
MAX_FLAGS = 1024
"""Sync flags of a core: its state has a word of each kind for each of them."""
MAX_CHUNKS = 1 << 26
"""Of one transfer: 32 GiB of granules; a damaged program's counts end at once (assumed)."""
MAX_ARGUMENTS = 1024
"""Words of SMEM that a kernel can be called with."""


@dataclass(frozen=True)
class Window:
    """A range of VMEM rows (512 bytes each) that a kernel uses: [base_row, base_row + rows).

    A `kept` one holds what an earlier kernel left there, and leaves it to later ones.
    """

    name: str
    base_row: int
    rows: int
    kept: bool = False


@dataclass(frozen=True)
class DmaDim:
    """One level of a transfer: `count` steps of the given strides.

    Units are those of each side's addresses: HBM 512-byte granules, VMEM rows, SMEM words.
    `count` -1 / -2 takes the instruction's dynamic count c0 / c1.
    """

    count: int
    src_stride: int
    dst_stride: int


NO_ROUTE = -1
"""In a descriptor: the target belongs to the core that runs the kernel."""


@dataclass(frozen=True)
class Route:
    """A pattern of transfers between the cores of a slice, which all of them start together.

    ``targets[core]`` is the core whose memory a transfer of `core` writes, -1 where it has none; no two
    cores share a target. `hops` are the links of the longest way, and `load` is how many of the pattern's
    transfers (and of those that run beside it) share the busiest link of a way: what a chip gets of a
    link's rate is one part of so many. Transfers of a core on one `port` follow each other.
    """

    targets: tuple[int, ...]
    hops: int
    load: float
    port: int

    def source(self, core: int) -> int:
        """The core whose transfers come to `core`, or -1."""
        return self.targets.index(core) if core in self.targets else -1


@dataclass(frozen=True)
class DmaDescriptor:
    """A strided copy, outermost dimension first, of chunks of `chunk` contiguous units.

    A unit is 512 bytes, except when one side is SMEM: then it is one 4-byte word (the HBM address
    is still in granules). `window` is the kernel's window a VMEM side lies in, -1 if none.

    With a `route` (a number in `Program.routes`) it is an exchange: the bytes go to the core that the
    route leads to, at the target's address there, and the flag is done when this core's own have left
    and those that come to it by the same route have arrived. A core that nothing comes to waits for
    nothing, and one that the route leads nowhere from sends nothing.
    """

    src_space: int
    dst_space: int
    chunk: int
    dims: tuple[DmaDim, ...] = ()
    window: int = -1
    route: int = NO_ROUTE


@dataclass
class Kernel:
    """One fusion's code. `flops` etc. are facts for reports, never used for timing."""

    name: str
    arg_count: int
    windows: list[Window]
    descriptors: list[DmaDescriptor]
    body: list[Node]
    spill_slots: int = 0
    spill_base_row: int = 0
    flags: int = 8
    cores: int = 1  # of a device that share its grid: see `tpu_sim.machine.node_table`
    flops: int = 0  # of its dots, two per multiply-add, padding not counted
    element_ops: int = 0  # elementwise operations on one element each, dear ones weighted
    least_bytes: int = 0  # what it must move: what it reads and makes, once, without padding
    note: str = ""  # what it computes, e.g. "fusion.12 kOutput dot"

    @property
    def core_flags(self) -> int:
        """Flags that each of its cores finds done; in an exchange none, as each core uses others, which
        other chips may have raised before it begins."""
        is_exchange = any(descriptor.route != NO_ROUTE for descriptor in self.descriptors)
        return 0 if is_exchange else self.flags


def core_word(smem_words: int) -> int:
    """The word of SMEM, its last one, in which a program finds the number of its core in the slice."""
    return smem_words - 1


SPILL_ROWS = 8
"""VMEM rows of a spill slot. A mask lies there as words of 0 and 1, and any other word is read as 1."""


def spill_rows(kernel: Kernel) -> slice:
    """The VMEM rows of a kernel's spill slots; they hold zeros when it starts."""
    first = kernel.spill_base_row
    return slice(first, first + kernel.spill_slots * SPILL_ROWS)


@dataclass(frozen=True)
class HbmBuffer:
    """A range of HBM: `kind` is input, output, constant, temp; `shape` its HLO text with layout.

    `host_shape` is the HLO text of what the host hands over when that has another element type;
    a type of two planes (s64, u64, c64) takes two buffers one after the other.
    """

    name: str
    kind: str
    offset_bytes: int
    size_bytes: int
    shape: str = ""
    index: int = -1  # parameter or output leaf number
    host_shape: str = ""


@dataclass
class Program:
    """Everything a machine needs; `target` is the chip's name."""

    target: str
    kernels: dict[str, Kernel]
    main: list[Node]
    buffers: list[HbmBuffer]
    constants: list[tuple[int, bytes]]  # (HBM byte offset, bytes in device layout)
    hbm_bytes: int  # peak HBM the program owns, padding included
    smem_words: int
    smem_args: int = 0  # SMEM word where kernel arguments start
    routes: list[Route] = field(default_factory=list)  # between the cores of a slice
    metadata: dict[str, str] = field(default_factory=dict)
