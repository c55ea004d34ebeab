"""The sync flags of an exchange in halves, in the backend_config of its start, updates and done.

    {"exchange_flag": 4, "phase": 1, "phases": 4}

It uses the flags from `exchange_flag` on. A gather or reduction of several phases has updates between
start and done: `phase` says which part of the work a half begins.
"""

from __future__ import annotations

from compiler.analysis.window_config import read_config, write_config
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction

MOST_FLAGS_UNDER_WAY = 192
"""Flags of exchanges whose start ran and whose done did not."""
GATHER_FLAGS, REDUCE_FLAGS = 24, 48
"""Of one all-gather, of one reduction; a permute has one, an all-to-all another for its own slot."""
_MOST_DEVICES = 20
"""Of a group whose gather or reduction has flags enough."""
_FLAGS = {"all-gather": GATHER_FLAGS, "reduce-scatter": REDUCE_FLAGS, "all-to-all": 2}
_LEAST_PIECE = 1 << 17
"""Bytes of both ways that are worth a turn of their own."""
_KEY = "exchange_flag"


def start_of(half: HloInstruction) -> HloInstruction:
    """The start of the exchange that an update or a done goes on with; a start itself."""
    while not half.opcode.endswith("-start"):
        half = half.operands[0]
    return half


def flag_count(half: HloInstruction) -> int:
    """How many flags an exchange in halves uses."""
    start = start_of(half)
    if start.opcode != "async-start":
        return 1
    exchange = start.calls.root_instruction
    return _FLAGS[exchange.opcode]


def has_flags(exchange: HloInstruction) -> bool:
    """Whether there are flags for an exchange of groups: a gather or reduction has some for each step."""
    return exchange.opcode == "all-to-all" or group_size(exchange) <= _MOST_DEVICES


def ring_steps(exchange: HloInstruction) -> int:
    """In how many steps a gather or reduction goes round a ring, both ways at once; an all-to-all has one."""
    if exchange.opcode == "all-to-all":
        return 1
    devices = group_size(exchange)
    return max(1, devices // 2 if exchange.opcode == "all-gather" else devices - 1)


def reduction_pieces(devices: int, slot_bytes: int) -> int:
    """In how many pieces each step of a reduction goes: one is on the link while another is added to."""
    return max(1, min(4, REDUCE_FLAGS // (2 * max(1, devices - 1)), slot_bytes // _LEAST_PIECE))


def adds_up(instr: HloInstruction) -> bool:
    """Whether it is part of a reduction in phases, whose kernels use VMEM."""
    if not instr.opcode.startswith("async-"):
        return False
    start = start_of(instr)
    return start.opcode == "async-start" and start.calls.root_instruction.opcode == "reduce-scatter"


def exchange_flag(half: HloInstruction) -> int:
    """The first of the flags that a start and its done use, from 0 on."""
    flag = read_config(half).get(_KEY)
    if not isinstance(flag, int) or not 0 <= flag <= MOST_FLAGS_UNDER_WAY - flag_count(half):
        most = MOST_FLAGS_UNDER_WAY - flag_count(half)
        raise CompileError(f"%{half.name}: {_KEY} is {flag}, want 0 to {most}", half.span)
    return flag


def set_exchange_flag(half: HloInstruction, flag: int) -> None:
    """Give a half its flag."""
    write_config(half, {**read_config(half), _KEY: flag})


def phases(half: HloInstruction) -> tuple[int, int]:
    """Which phase a half begins, and of how many; a done begins the one behind the last."""
    config = read_config(half)
    phase, count = config.get("phase", 0), config.get("phases", 1)
    if not (isinstance(phase, int) and isinstance(count, int) and 0 <= phase <= count):
        raise CompileError(f"%{half.name}: phase {phase} of {count}, want 0 to {count}", half.span)
    return phase, count


def set_phase(half: HloInstruction, phase: int, count: int) -> None:
    """Say which phase a half begins."""
    write_config(half, {**read_config(half), "phase": phase, "phases": count})


def group_size(exchange: HloInstruction) -> int:
    """The devices in a group of a collective whose groups are listed; 0 where none is, and all are one."""
    groups = exchange.attrs["replica_groups"]
    assert isinstance(groups, tuple)
    return len(groups[0]) if groups else 0
