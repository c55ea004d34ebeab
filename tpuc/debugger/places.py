"""What people write for a place to stop at, or for bytes to watch.

fusion.2                 before an HLO instruction: its kernel, or within a kernel its first bundle
after fusion.2           when its kernel is over
fusion.2 step 3          when that step of its kernel's outermost loop begins
fusion.2:41              before a bundle of its kernel, numbered as on the page of tpuc view
net.py:12                before the first bundle of a source line, in each kernel
cycle 1000               at the first bundle at or behind a cycle
nan, inf                 where the first one in a kernel's result is made
"""

from __future__ import annotations

import re

from compiler.hlo.dtypes import U32
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, SMEM, VMEM
from tpuc.debugger.breakpoints import Breakpoint, BreakpointKind, DebuggerError
from tpuc.debugger.program_map import Spot
from tpuc.debugger.target import Target, near
from tpuc.debugger.values import ArrayBuffer

_SPACES = {"hbm": HBM, "vmem": VMEM, "smem": SMEM}
_UNITS = {HBM: 1, VMEM: GRANULE_BYTES, SMEM: 4}
_RANGE = re.compile(r"(hbm|vmem|smem)\s+(\S+)(?:\s+(\S+))?", re.IGNORECASE)


def parse_place(target: Target, text: str) -> Breakpoint:
    """The breakpoint of a place, without number and condition; raises `DebuggerError`."""
    words = text.split()
    match words:
        case ["nan" | "inf" as kind]:
            if target.values is None:
                raise DebuggerError("a saved program holds no HLO: debug the model it came from")
            return Breakpoint(0, BreakpointKind.NAN if kind == "nan" else BreakpointKind.INF, kind)
        case ["cycle", number]:
            return Breakpoint(0, BreakpointKind.CYCLE, text, cycle=_from_zero(number))
        case ["after", name]:
            return Breakpoint(0, BreakpointKind.END, text, _sites(target, name))
        case [name, "step"]:
            return Breakpoint(0, BreakpointKind.STEP, text, _sites(target, name))
        case [name, "step", number]:
            return Breakpoint(
                0, BreakpointKind.STEP, text, _sites(target, name), step=_from_zero(number)
            )
        case [name]:
            return _named(target, name)
    raise DebuggerError(f"no place {text!r}; try help break")


def parse_watch(target: Target, text: str) -> Breakpoint:
    """The breakpoint of a range of memory or of an HLO instruction's array."""
    if not text.strip():
        raise DebuggerError("want an HLO instruction or a range of memory; try help watch")
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        instr = target.instruction(text.strip())
        buffers = [] if target.values is None else target.values.buffers(instr)
        if not buffers:
            raise DebuggerError(f"%{instr.name} has no place of its own in memory")
        return Breakpoint(0, BreakpointKind.WATCH, f"watch {instr.name}", watched=buffers[0])
    return Breakpoint(
        0,
        BreakpointKind.WATCH,
        f"watch {text.strip()}",
        watched=memory_range(target, *found.groups()),
    )


def memory_range(target: Target, space: str, address: str, count: str | None) -> ArrayBuffer:
    """Bytes from an address on; `address` and `count` are in HBM bytes, VMEM rows, or SMEM words."""
    where = _SPACES[space.lower()]
    unit = _UNITS[where]
    offset, size = integer(address) * unit, integer(count or ("64" if where == HBM else "1")) * unit
    chip = target.chip
    limits = {HBM: target.hbms[0].size_bytes, VMEM: chip.vmem_bytes, SMEM: 4 * chip.smem_words}
    if not 0 <= offset < offset + size <= limits[where]:
        raise DebuggerError(f"{space} {address}: beyond the {limits[where] // unit} there are")
    return ArrayBuffer(where, offset, size, ArrayShape(U32, (size // 4,)))


def integer(text: str) -> int:
    """A number, decimal or ``0x..``; raises `DebuggerError`."""
    try:
        return int(text, 0)
    except ValueError:
        raise DebuggerError(f"{text!r} is no whole number") from None


def _from_zero(text: str) -> int:
    """A number of a cycle or a step, which are counted from 0: one below would never come."""
    number = integer(text)
    if number < 0:
        raise DebuggerError(f"{text}: cycles and steps are counted from 0")
    return number


def _sites(target: Target, name: str) -> frozenset[str]:
    """The call sites of a name: a site, or a kernel."""
    plain = name.removeprefix("%")
    if plain in target.map.sites:
        return frozenset({plain})
    bodies = [
        number for number, body in enumerate(target.map.bodies) if number and body.name == plain
    ]
    if bodies:
        return frozenset(target.map.sites_of(bodies[0]))
    raise DebuggerError(f"%{plain} is no kernel{_hint(target, plain)}")


def _named(target: Target, name: str) -> Breakpoint:
    plain = name.removeprefix("%")
    known = {*target.map.sites, *(body.name for body in target.map.bodies[1:])}
    if plain in known:
        return Breakpoint(0, BreakpointKind.BEGIN, plain, _sites(target, plain))
    before, colon, number = plain.rpartition(":")
    if colon and before in known:
        return _bundle(target, before, integer(number))
    if colon:
        spots = target.map.spots_of_line(plain)
        if not spots:
            raise DebuggerError(f"no code of {plain}{near(plain, target.map.lines())}")
        return Breakpoint(0, BreakpointKind.BUNDLE, plain, spots=tuple(spots))
    instr = target.map.instructions.get(plain)
    spots = target.map.spots_of(plain)
    if spots:
        return Breakpoint(0, BreakpointKind.BUNDLE, plain, spots=tuple(spots))
    if instr is None:
        raise DebuggerError(f"no kernel or HLO instruction {name!r}{_hint(target, plain)}")
    if instr.opcode in ("while", "conditional", "call"):
        raise DebuggerError(f"%{plain} is control flow: stop at an instruction of its body")
    raise DebuggerError(
        f"%{plain} ({instr.opcode}) has no code: nothing happens there when it runs"
    )


def _bundle(target: Target, name: str, number: int) -> Breakpoint:
    sites = sorted(_sites(target, name))
    body = target.map.body_of_site(sites[0])
    count = target.map.bodies[body].count
    if not 0 <= number < count:
        raise DebuggerError(f"{name} has bundles 0 to {count - 1}")
    spots = tuple(Spot(site, body, number) for site in sites)
    return Breakpoint(0, BreakpointKind.BUNDLE, f"{name}:{number}", spots=spots)


def _hint(target: Target, name: str) -> str:
    return near(name, [*target.map.sites, *target.map.instructions])
