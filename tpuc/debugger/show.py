"""What a debugger shows, as plain text: values, registers, queues, transfers, code, the way to here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.printer import PrintOptions, print_instruction
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.program import Kernel, blocks_of
from tpu_sim.isa.text import format_bundle
from tpu_sim.machine.node_table import MAIN
from tpuc.debugger.breakpoints import DebuggerError
from tpuc.debugger.debugger import Debugger
from tpuc.debugger.places import memory_range
from tpuc.debugger.target import count_of
from tpuc.debugger.values import HostArray

_HLO = PrintOptions(metadata=False, large_constant_elements=16)
_AROUND = 5
"""Lines before and after the one that is asked for."""
_FORMATS = {"f": np.float32, "d": np.int32, "u": np.uint32, "x": np.uint32, "h": np.uint16}
_WIDTH = 96


def array_text(values: HostArray) -> str:
    """An array: type and dimensions, its range, and its elements, few of many."""
    dims = ",".join(map(str, values.shape))
    head = f"{values.dtype.name}[{dims}]"
    wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    if values.size > 1 and values.dtype.kind != "c":
        good = wide[np.isfinite(wide)]
        if good.size:
            head += f"  min {good.min():.6g}  max {good.max():.6g}  mean {good.mean():.6g}"
        for what, count in (("NaN", np.isnan(wide).sum()), ("inf", np.isinf(wide).sum())):
            head += f"  {what} {count}" if count else ""
    if values.dtype.name == "bfloat16" or "float8" in values.dtype.name:
        values = values.astype(np.float32)
    text = np.array2string(values, threshold=64, edgeitems=3, max_line_width=_WIDTH, precision=6)
    return f"{head}\n{text}"


def memory_text(debugger: Debugger, count: int, letter: str, space: str, address: str) -> str:
    """``x/8f hbm 0x200``: words of a memory; `letter` is one of f (f32), h (bf16), d, u, x."""
    if letter not in _FORMATS:
        raise DebuggerError(f"no format {letter!r}; there are {', '.join(_FORMATS)}")
    unit = {"hbm": 1, "vmem": 512, "smem": 4}.get(space.lower())
    if unit is None:
        raise DebuggerError(f"no memory {space!r}; there are hbm, vmem, smem")
    each = 2 if letter == "h" else 4
    buffer = memory_range(debugger.target, space, address, str(-(-count * each // unit)))
    data = debugger.held(buffer)
    values = np.frombuffer(data, _FORMATS[letter])[:count]
    if letter == "h":
        values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    texts = [
        f"{v:#010x}" if letter == "x" else f"{v:.6g}" if letter in "fh" else str(v) for v in values
    ]
    rows = [texts[at : at + 8] for at in range(0, len(texts), 8)]
    start = buffer.offset
    return "\n".join(
        f"{space.lower()} {(start + 8 * each * n) // unit:#x}: {'  '.join(row)}"
        for n, row in enumerate(rows)
    )


def register_text(debugger: Debugger, name: str) -> str:
    """``s4``, ``v12``, ``m3``: what a register holds."""
    state, number, chip = debugger.state, int(name[1:]), debugger.target.chip
    count = {"s": chip.sregs, "v": chip.vregs, "m": chip.vmasks}[name[0]]
    if number >= count:
        raise DebuggerError(f"no register {name}: there are {name[0]}0 to {name[0]}{count - 1}")
    if name[0] == "s":
        value = state.sreg(number)
        return f"{name} = {value} ({value & 0xFFFFFFFF:#x})"
    held = (state.vregs if name[0] == "v" else state.vmasks).get(number)
    if held is None:
        return f"{name} holds nothing: vector registers live within a block"
    if name[0] == "m":
        return f"{name}: {int(held.sum())} of {held.size} lanes set\n{_mask_text(held)}"
    words = held.view(np.float32)
    return f"{name} as f32\n{array_text(words)}"


def _mask_text(mask: npt.NDArray[np.generic]) -> str:
    rows = np.asarray(mask, np.bool_)
    return "\n".join("".join("1" if lane else "." for lane in row) for row in rows)


def registers_text(debugger: Debugger) -> str:
    """The sregs that hold something, and which vector registers and masks do."""
    state = debugger.state
    sregs = [f"s{n} = {state.sreg(n)}" for n in range(debugger.target.chip.sregs) if state.sregs[n]]
    lines = [", ".join(sregs) or "all scalar registers are 0"]
    lines.append(
        "vregs: " + (" ".join(f"v{n}" for n in sorted(state.vregs)) or "none hold anything")
    )
    lines.append(
        "masks: " + (" ".join(f"m{n}" for n in sorted(state.vmasks)) or "none hold anything")
    )
    for name, queue in (("EUP", state.eup), ("XLU", state.xlu)):
        lines.append(f"{name} queue: {len(queue)} waiting")
    return "\n".join(lines)


def windows_text(debugger: Debugger) -> str:
    """The windows of the kernel under way."""
    rows = [
        f"w{n:<3} {w.name:<28} rows {w.base_row} + {w.rows}{'  kept' if w.kept else ''}"
        for n, w in enumerate(_kernel(debugger).windows)
    ]
    return "\n".join(rows) or "the kernel has no windows"


def window_text(debugger: Debugger, name: str) -> str:
    """What lies in a window, as f32 rows of 128."""
    for number, window in enumerate(_kernel(debugger).windows):
        if name in (window.name, f"w{number}"):
            rows = debugger.state.vmem[window.base_row : window.base_row + window.rows]
            return f"window w{number} {window.name}, as f32\n{array_text(rows.view(np.float32))}"
    raise DebuggerError(f"no window {name!r} here; see info windows")


def mxu_text(debugger: Debugger) -> str:
    """The matrix units: what waits in their queues, when they are free."""
    state, now = debugger.state, debugger.where().cycle
    lines = []
    for unit in range(debugger.target.chip.mxu_units):
        waiting = int(state.mrf_pushed[unit] - state.mrf_popped[unit])
        used = int(np.count_nonzero(state.weights[unit, 1]))
        oldest = int(state.mrf_ready[unit, int(state.mrf_popped[unit]) % state.mrf_ready.shape[1]])
        ready = f", the oldest ready at cycle {oldest}" if waiting else ""
        lines.append(
            f"unit {unit}: {waiting} results wait{ready}; {used} weights not 0; passes {state.mxu_passes}"
        )
    return "\n".join([f"cycle {now}", *lines])


def dma_text(debugger: Debugger) -> str:
    """Transfers that are not over: by sync flag, until when, and which windows they may be of."""
    state, now = debugger.state, debugger.where().cycle
    rows = []
    for flag in np.flatnonzero(state.flag_done > now).tolist():
        cause = (
            Cause(int(state.flag_cause[flag])).label if state.flag_cause[flag] < len(Cause) else ""
        )
        done = int(state.flag_done[flag])
        rows.append(
            f"f{flag}: {cause} until cycle {done} ({done - now} to go){_moved(debugger, flag)}"
        )
    busy = int(state.dma_free)
    rows.append(f"the DMA engine is {'busy until cycle ' + str(busy) if busy > now else 'free'}")
    return "\n".join(rows)


def _moved(debugger: Debugger, flag: int) -> str:
    """The windows whose transfers count on a flag, by the code of the kernel under way."""
    if debugger.where().site is None:
        return ""
    kernel = _kernel(debugger)
    bases: dict[int, dict[str, None]] = {}
    for block in blocks_of(kernel.body):
        for instr in (i for bundle in block.bundles for i in bundle if i.row.is_transfer):
            base = instr.operands[instr.row.flag_index]
            window = kernel.descriptors[instr.operands[instr.row.descriptor_index]].window
            name = kernel.windows[window].name if window >= 0 else instr.source
            bases.setdefault(base, {})[name] = None
    mine = max((base for base in bases if base <= flag), default=None)
    return "" if mine is None else f"  {', '.join(bases[mine])}"


def flags_text(debugger: Debugger) -> str:
    """The sync flags that count something, or that another chip is to raise."""
    state = debugger.state
    used = np.flatnonzero((state.flag_done != 0) | (state.flag_pending != 0)).tolist()
    rows = [
        f"f{flag}: done at cycle {int(state.flag_done[flag])}"
        + (f", {int(state.flag_pending[flag])} raises pending" if state.flag_pending[flag] else "")
        for flag in used
    ]
    return "\n".join(rows) or "no sync flag was used yet"


def backtrace_text(debugger: Debugger) -> str:
    """The way to here: bundle, loops of the kernel, the kernel, loops of the program, the entry."""
    return "\n".join(f"#{n} {frame}" for n, frame in enumerate(_frames(debugger)))


def _frames(debugger: Debugger) -> Iterator[str]:
    target, core, where = debugger.target, debugger.core, debugger.where()
    state = target.stepper.words(core)
    if where.bundle is None:
        yield f"end of the program, cycle {where.cycle}"
        return
    yield f"bundle {where.bundle} of {where.body}, cycle {where.cycle}"
    if where.site is not None:
        for loop in reversed(target.loops(core)):
            total = f" of {int(state.trips[loop.counter])}" if not loop.is_while else ""
            yield f'iteration {count_of(state, loop)}{total} of loop "{loop.name}"'
        origins = target.map.origins.of(where.site)
        places = ", ".join(dict.fromkeys(o.place or o.op_name for o in origins[:3]))
        note = target.program.kernels[where.body].note
        yield f"kernel {where.site}: {note}" + (f"  from {places}" if places else "")
    loops = list(reversed([loop for loop in target.main_loops(core) if loop.is_while]))
    instr = target.map.controlled.get(where.site or "")
    around = list(_callers(instr.computation if instr is not None else None))
    for number, loop in enumerate(loops):
        name = f"%{around[number].name}" if number < len(around) else loop.name or "a loop"
        yield f"iteration {count_of(state, loop)} of {name}"
    module = target.map.module
    yield f"ENTRY %{module.entry.name}" if module is not None else "main"


def _callers(computation: HloComputation | None) -> Iterator[HloInstruction]:
    """The loops whose bodies a computation is in, innermost first."""
    while computation is not None and computation.module is not None:
        callers = (i for c in computation.module.computations.values() for i in c)
        caller = next((i for i in callers if computation in i.called_computations()), None)
        if caller is None:
            return
        if caller.opcode == "while":
            yield caller
        computation = caller.computation


def bundles_text(debugger: Debugger) -> str:
    """The bundles around the next one."""
    where = debugger.where()
    body = debugger.target.map.bodies[debugger.target.stepper.words(debugger.core).body]
    if where.bundle is None:
        return "end of the program"
    numbers = range(max(0, where.bundle - _AROUND), min(body.count, where.bundle + _AROUND + 1))
    return "\n".join(
        f"{'=>' if n == where.bundle else '  '} {n:>5} {format_bundle(body.bundle(n))}"
        for n in numbers
    )


def hlo_text(debugger: Debugger, name: str | None = None, around: int = _AROUND) -> str:
    """The HLO around the instruction whose kernel runs, or around a named one; within a fusion all of it."""
    target = debugger.target
    instr = target.instruction(name) if name else target.site_instr(debugger.core)
    if instr is None or instr.computation is None:
        raise DebuggerError("no HLO instruction runs here")
    lines = list(instr.computation)
    at = lines.index(instr)
    shown = lines[max(0, at - around) : at + around + 1]
    text = [f"{'=>' if i is instr else '  '} {_cut(print_instruction(i, _HLO))}" for i in shown]
    for called in instr.called_computations() if instr.opcode == "fusion" else ():
        text += [
            f"   %{called.name}:",
            *(f"     {_cut(print_instruction(i, _HLO))}" for i in called),
        ]
    return "\n".join(text)


def source_text(debugger: Debugger) -> str:
    """The source lines of the next bundle, or else of its kernel."""
    target, where = debugger.target, debugger.where()
    if where.site is None or where.bundle is None:
        raise DebuggerError("in main: no source line runs here")
    body = target.map.bodies[target.stepper.words(debugger.core).body]
    sources = dict.fromkeys(i.source for i in body.bundle(where.bundle))
    origins = [o for s in sources for o in target.map.origins.of(where.site, s)]
    places = dict.fromkeys(o.place for o in origins if o.place)
    if not places:
        raise DebuggerError("the model names no source lines: print it with debug information")
    return "\n".join(text for place in list(places)[:3] for text in _source(place))


def _source(place: str) -> Iterator[str]:
    yield place
    file, _, number = place.rpartition(":")
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    at = int(number)
    for n in range(max(1, at - _AROUND), min(len(lines), at + _AROUND) + 1):
        yield f"{'=>' if n == at else '  '} {n:>5} {lines[n - 1]}"


def _cut(text: str) -> str:
    return text if len(text) <= 2 * _WIDTH else text[: 2 * _WIDTH] + " ..."


def _kernel(debugger: Debugger) -> Kernel:
    where = debugger.where()
    body = debugger.target.stepper.words(debugger.core).body
    if where.site is None or body == MAIN:
        raise DebuggerError("in main: no kernel runs here")
    return debugger.target.map.bodies[body].kernel
