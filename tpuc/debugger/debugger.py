"""`Debugger`: a run that is stopped, looked at, and gone on with, forwards and backwards.

    d = tpuc.debug(exe, *arrays)           # stands before the first bundle
    d.break_at("fusion.2", "step == 3")
    stop = d.cont()                        # Stop: why, and where
    d.value("fusion.1"), d.sreg(4), d.vreg(12), d.backtrace()
    d.step("bundle"), d.reverse_step("kernel"), d.cont()

The prompt of ``tpuc debug`` calls these methods and prints what they return.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError
from compiler.frontends.recognition import is_model_text
from compiler.hlo.ir import HloInstruction
from compiler.hlo.origins import inside
from compiler.options import CompileOptions
from runtime.api import compile
from runtime.executable import Executable
from tpu_sim.isa.text import format_bundle
from tpu_sim.machine.faults import MachineFault
from tpu_sim.machine.node_table import MAIN
from tpu_sim.machine.state import CoreState
from tpuc.debugger.breakpoints import Breakpoint, BreakpointCondition, BreakpointKind, DebuggerError
from tpuc.debugger.evaluation import evaluate_inner, shaped
from tpuc.debugger.places import parse_place, parse_watch
from tpuc.debugger.scan import Hit, Scanner
from tpuc.debugger.target import Target
from tpuc.debugger.values import ArrayBuffer, HostArray, NoValueError

Unit = Literal["bundle", "block", "grid", "kernel"]
UNITS: tuple[str, ...] = get_args(Unit)


@dataclass(frozen=True)
class Where:
    """Where a core stands: before `bundle`, which it has not executed."""

    core: int
    cycle: int
    body: str
    bundle: int | None
    site: str | None = None
    call: int | None = None
    step: int | None = None
    iteration: int | None = None
    text: str = ""

    def line(self, *, has_cores: bool = False) -> str:
        """One line."""
        chip = f"chip {self.core}  " if has_cores else ""
        if self.bundle is None:
            return f"{chip}cycle {self.cycle}  end of the program"
        at = (
            "main"
            if self.site is None
            else self.site + (f" ({self.body})" if self.body != self.site else "")
        )
        step = "" if self.step is None else f" step {self.step}"
        loop = "" if self.iteration is None else f" iteration {self.iteration}"
        return f"{chip}cycle {self.cycle}  {at}{loop}{step} bundle {self.bundle}"


@dataclass(frozen=True)
class StopReport:
    """Why a run stopped, and where; `reason` may have several lines."""

    reason: str
    where: Where
    breakpoint: int | None = None


class Debugger:
    """See above. `core` is the chip that is looked at, of several."""

    def __init__(
        self, executable: Executable, arguments: Sequence[npt.ArrayLike], machine: str = "llvm"
    ) -> None:
        self.target = Target(executable, arguments, machine)
        self.breakpoints: list[Breakpoint] = []
        self.core = 0
        self._stepper = self.target.stepper
        self._scanner = Scanner(self.target, self._is_true)
        self._next_number = 1
        for core in range(self._stepper.count):
            self._stepper.reach_bundle(core)

    def __repr__(self) -> str:
        return f"<tpuc.Debugger {self.where().line()}, breakpoints: {len(self.breakpoints)}>"

    # breakpoints

    def break_at(self, place: str, condition: str = "", *, temporary: bool = False) -> Breakpoint:
        """Stop there; see `docs/debugging.md` for what a place is. Raises `DebuggerError`."""
        return self._add(parse_place(self.target, place), condition, temporary)

    def watch(self, what: str, condition: str = "") -> Breakpoint:
        """Stop behind what changes an address (``hbm 0x200 64``) or the array of an HLO instruction."""
        return self._add(parse_watch(self.target, what), condition, temporary=False)

    def _add(self, made: Breakpoint, condition: str, temporary: bool) -> Breakpoint:
        made.number, made.is_temporary = self._next_number, temporary
        made.condition = BreakpointCondition.parse(condition) if condition else None
        self._next_number += 1
        self.breakpoints.append(made)
        return made

    def enable(self, numbers: Sequence[int] = (), *, is_enabled: bool = True) -> None:
        """Let breakpoints of these numbers, or all, count again, or count no more."""
        for number in numbers:
            self._check_number(number)
        for one in self.breakpoints:
            if not numbers or one.number in numbers:
                one.is_enabled = is_enabled

    def _check_number(self, number: int) -> None:
        if all(one.number != number for one in self.breakpoints):
            raise DebuggerError(f"no breakpoint {number}")

    def delete(self, number: int | None = None) -> None:
        """Forget a breakpoint, or all."""
        if number is not None:
            self._check_number(number)
        self.breakpoints = [
            b for b in self.breakpoints if number is not None and b.number != number
        ]

    # going on

    def cont(self) -> StopReport:
        """Go on to the next breakpoint, or the end."""
        return self._go(self._enabled())

    def run(self) -> StopReport:
        """Start again, and go on to the first breakpoint."""
        self.restart()
        return self.cont()

    def restart(self) -> StopReport:
        """Start again, and stand before the first bundle."""
        self._stepper.restart()
        for core in range(self._stepper.count):
            self._stepper.reach_bundle(core)
        return self._stop("start of the program")

    def step(self, unit: str = "bundle", count: int = 1) -> StopReport:
        """Go on by so many bundles, blocks, grid steps or kernel calls; a breakpoint may come before."""
        stop = self._stop("nothing to step")
        for _ in range(count):
            before = self._stepper.now(self.core)
            stop = self._step(_unit(unit))
            if stop.breakpoint is not None or self._stepper.now(self.core) == before:
                break
        return stop

    def finish(self) -> StopReport:
        """Go on until the kernel call under way is over."""
        site = self.target.site(self.core)
        if site is None:
            raise DebuggerError("in main: there is no kernel call to finish")
        over = Breakpoint(0, BreakpointKind.END, f"after {site}", frozenset({site}))
        return self._go([over, *self._enabled()], only=self.core)

    def _step(self, unit: Unit) -> StopReport:
        stepper, core = self._stepper, self.core
        if unit in ("grid", "kernel"):
            return self._go([*self._unit_points(unit), *self._enabled()], only=core)
        try:
            if unit == "bundle":
                stepper.step_bundle(core)
            else:
                stepper.advance(core, until=stepper.now(core) + 1)
                stepper.reach_bundle(core)
        except MachineFault as fault:
            return self._at_fault(fault, core)
        return self._stop("" if not stepper.is_done(core) else "end of the program")

    def _unit_points(self, unit: Unit) -> list[Breakpoint]:
        """Stops at the begin of every call, and of every step."""
        sites = frozenset(self.target.map.sites)
        points = [Breakpoint(0, BreakpointKind.BEGIN, "", sites)]
        if unit == "grid":
            points.append(Breakpoint(0, BreakpointKind.STEP, "", sites))
        return points

    def _go(self, breakpoints: Sequence[Breakpoint], only: int | None = None) -> StopReport:
        """Run units, of the core that is behind the others first, until something is hit."""
        stepper = self._stepper
        while True:
            cores = range(stepper.count) if only is None else [only]
            running = [core for core in cores if not stepper.is_done(core)]
            if not running:
                return self._stop("end of the program")
            core = min(running, key=lambda c: (stepper.now(c), c))
            try:
                hit = self._scanner.unit(core, breakpoints)
            except MachineFault as fault:
                return self._at_fault(fault, core)
            if hit is not None:
                return self._hit(hit, core)

    def _hit(self, hit: Hit, core: int) -> StopReport:
        self.core = core
        self._stepper.reach_bundle(core)
        one = hit.breakpoint
        one.hits += 1
        if one.is_temporary:
            self.breakpoints = [b for b in self.breakpoints if b is not one]
        if one.number == 0:
            return self._stop(hit.note)
        reason = f"breakpoint {one.number}, {one.text}"
        return self._stop("\n".join(filter(None, [reason, hit.note])), one.number)

    def _at_fault(self, fault: MachineFault, core: int) -> StopReport:
        """Stand before the bundle that faults: run there again, from bundle to bundle."""
        stepper = self._stepper
        self.core = core
        last = stepper.find_fault(core)
        stepper.go_to(last, core)
        return self._stop(f"fault: {fault}")

    # going back

    def reverse_step(self, unit: str = "bundle", count: int = 1) -> StopReport:
        """Go back by so many bundles, blocks, grid steps or kernel calls."""
        for _ in range(count):
            if not self._reverse_one(_unit(unit)):
                return self._stop("start of the program")
        return self._stop("")

    def reverse_cont(self) -> StopReport:
        """Go back to where a breakpoint was hit last, or to the start."""
        enabled = self._enabled()
        hit = self._last_hit(enabled)
        if hit is None:
            return self.restart()
        reason = f"breakpoint {hit.breakpoint.number}, {hit.breakpoint.text}"
        return self._stop("\n".join(filter(None, [reason, hit.note])), hit.breakpoint.number)

    def _reverse_one(self, unit: Unit) -> bool:
        stepper, core = self._stepper, self.core
        if unit == "bundle":
            return stepper.place_before(stepper.now(core), core) is not None
        if unit == "block":
            while stepper.place_before(stepper.now(core), core) is not None:
                if stepper.place(core)[2] == 0:
                    return True
            return False
        if self._last_hit(self._unit_points(unit)) is not None:
            return True
        self.restart()
        return False

    def _last_hit(self, breakpoints: Sequence[Breakpoint]) -> Hit | None:
        """Go to the last hit before here, of the core that is looked at; None: there is none."""
        stepper, core = self._stepper, self.core
        here = limit = stepper.now(core)
        for start in reversed(stepper.kept_before(here, core)):
            stepper.go_to(start, core)
            last: tuple[int, Hit] | None = None
            while stepper.now(core) < limit and not stepper.is_done(core):
                hit = self._scanner.unit(core, breakpoints)
                stepper.reach_bundle(core)
                if hit is not None and stepper.now(core) < here:
                    last = stepper.now(core), hit
            if last is not None:
                stepper.go_to(last[0], core)
                return last[1]
            limit = start + 1
        return None

    # looking

    def chip(self, core: int) -> Where:
        """Look at another chip of a slice."""
        if not 0 <= core < self._stepper.count:
            raise DebuggerError(f"no chip {core}: there are {self._stepper.count}")
        self.core = core
        self._stepper.reach_bundle(core)
        return self.where()

    def where(self, core: int | None = None) -> Where:
        """Where a core stands."""
        core = self.core if core is None else core
        stepper, target = self._stepper, self.target
        body, node, offset = stepper.place(core)
        one = target.map.bodies[body]
        number = one.number(node, offset)
        state = stepper.words(core)
        if stepper.is_done(core) or number is None:
            return Where(core, stepper.now(core), one.name, None)
        return Where(
            core,
            stepper.now(core),
            one.name,
            number,
            target.site(core),
            state.record_count if body != MAIN else None,
            None if any(loop.is_while for loop in target.loops(core)[:1]) else target.step(core),
            target.iteration(core),
            format_bundle(one.bundle(number)),
        )

    def value(self, name: str, *, evaluate: bool = False) -> HostArray:
        """The array of an HLO instruction, from its buffer; within a kernel it must be evaluated.

        Raises `NoValueError` if it is not there, with what to do.
        """
        return self.values(name, evaluate=evaluate)[0]

    def values(self, name: str, *, evaluate: bool = False) -> list[HostArray]:
        """All arrays of an HLO instruction's result; see `value`."""
        target, instr = self.target, self.target.instruction(name)
        if instr.name not in target.map.controlled:
            if not evaluate:
                site = self._site_of(instr)
                raise NoValueError(
                    f"%{instr.name} is inside of %{site.name} and never an array on the chip: "
                    f"evaluate {instr.name}"
                )
            return self._evaluated(instr)
        assert target.values is not None
        if instr.opcode == "constant" and not target.values.buffers(instr):
            return [np.asarray(instr.literal)]
        at_end = self._stepper.is_done(self.core)
        following = None if at_end else target.site_instr(self.core)
        target.values.expect_there(instr, following)
        state, hbm = self._stepper.state(self.core), target.hbms[self.core]
        return [target.values.read(b, state, hbm) for b in target.values.buffers(instr)]

    def _site_of(self, inner: HloInstruction) -> HloInstruction:
        for site in dict.fromkeys(self.target.map.sites):
            instr = self.target.map.controlled.get(site)
            if instr is not None and any(i is inner for i in inside(instr)):
                return instr
        raise DebuggerError(f"%{inner.name} is part of no kernel")

    def _evaluated(self, inner: HloInstruction) -> list[HostArray]:
        """A value within a kernel, of the operands that the call under way, or the next one, has."""
        stepper, core = self._stepper, self.core
        site = self._site_of(inner)
        here, current = stepper.now(core), self.target.site(core)
        iteration = None
        if current == site.name:
            iteration = self.target.iteration(core) if site.opcode == "while" else None
            # it may have overwritten its operands meanwhile
            self._scanner.first_place(core, stepper.words(core).call_start)
        try:
            values = [shaped(o.shape, list(self.values(o.name))) for o in site.operands]
            found = evaluate_inner(site, values, inner.name, self.target.precision, iteration)
        except CompileError as error:
            raise DebuggerError(f"%{inner.name}: {error.message}") from error
        finally:
            stepper.go_to(here, core)
        if found is None:
            raise DebuggerError(f"%{inner.name} does not run in this call of %{site.name}")
        return found

    def outputs(self) -> list[HostArray]:
        """What lies in the output buffers of the chip that is looked at."""
        return self.target.outputs(self.core)

    @property
    def state(self) -> CoreState:
        """All there is of the chip that is looked at, its HBM apart."""
        return self._stepper.state(self.core)

    def held(self, buffer: ArrayBuffer) -> bytes:
        """The bytes in a range of its memories."""
        return self._scanner.held(self.core, buffer)

    @property
    def is_done(self) -> bool:
        """Whether the chip that is looked at has come to the end."""
        return self._stepper.is_done(self.core)

    @property
    def chips(self) -> int:
        """How many chips run the program."""
        return self._stepper.count

    # parts

    def _enabled(self) -> list[Breakpoint]:
        return [b for b in self.breakpoints if b.is_enabled]

    def _stop(self, reason: str, number: int | None = None) -> StopReport:
        return StopReport(reason, self.where(), number)

    def _is_true(self, one: Breakpoint, core: int) -> bool:
        condition = one.condition
        if condition is None:
            return True
        target, state = self.target, self._stepper.words(core)
        names: dict[str, float] = {
            "cycle": self._stepper.now(core),
            "call": state.record_count,
            "step": _or_none(target.step(core)),
            "iteration": _or_none(target.iteration(core)),
        }
        for name in condition.names - names.keys():
            if name[1:].isdecimal():
                number = int(name[1:])
                if number >= self.target.chip.sregs:
                    raise DebuggerError(f"no register s{number}")
                names[name] = state.sreg(number)
        was, self.core = self.core, core
        try:
            return condition.holds(names, self._measure)
        except ArithmeticError as error:
            raise DebuggerError(f"condition {condition.text!r}: {error}") from error
        finally:
            self.core = was

    def _measure(self, function: str, name: str) -> float:
        values = self.value(name, evaluate=True)
        wide = values.astype(np.float64)
        if function in ("nans", "infs"):
            return int((np.isnan(wide) if function == "nans" else np.isinf(wide)).sum())
        match function:
            case "min":
                return float(wide.min())
            case "max":
                return float(wide.max())
            case "mean":
                return float(wide.mean())
        return float(wide.sum())


def debug(
    model: Executable | str, *arguments: npt.ArrayLike, target: str = "v5e", machine: str = "llvm"
) -> Debugger:
    """A debugger of a compiled program, or of a model (a path or text) compiled for `target`.

    `arguments` are those of a call; `machine` is "llvm" or "numpy".
    """
    if isinstance(model, str):
        file = None if is_model_text(model) else model
        model = compile(model, target, options=CompileOptions(text_file=file))
    return Debugger(model, arguments, machine)


def _unit(text: str) -> Unit:
    for unit in get_args(Unit):
        if text == unit:
            found: Unit = unit
            return found
    raise DebuggerError(f"no unit {text!r}: there are {', '.join(UNITS)}")


def _or_none(number: int | None) -> float:
    """A number that equals none where there is none."""
    return float("nan") if number is None else number
