"""The native side of the clock: functions of the kernel library that translated blocks call.

They count the cycles of `tpu_sim.isa.timing`; what depends on the chip stands in the context. The
waits and passes of a block are a list of steps (`step_word`), which `RUN_STEPS` goes through: that
is far less code than a call for each.
"""

from __future__ import annotations

from enum import IntEnum

from tpu_sim.isa.causes import LOWERED, Cause
from tpu_sim.isa.timing import FRACTION_BITS, PASS_BITS
from tpu_sim.jit.context import COST_WORDS, ROUTE_WORDS, RouteWord, Word
from tpu_sim.jit.emitter import Emitter
from tpu_sim.machine.schema import MAX_FLAGS, READY_RING

_PREFIX = "tpuc_kernel_v1_clock_"
RUN_STEPS = _PREFIX + "steps"
WAIT = _PREFIX + "wait"
TRANSFER = _PREFIX + "transfer"
EXCHANGE = _PREFIX + "exchange"
FINISH = _PREFIX + "finish"
COUNT_RANGE = _PREFIX + "count_range"
IS_PENDING = _PREFIX + "is_pending"
CLOCK_FUNCTIONS = (RUN_STEPS, WAIT, TRANSFER, EXCHANGE, FINISH, COUNT_RANGE, IS_PENDING)
TALLY_WORDS = 1 + len(Cause)
"""`Word.NOW` and the cycles by cause behind it: what a range of iterations counts for itself."""
CLOCK_DECLARATIONS = f"""
declare i64 @{RUN_STEPS}(ptr, ptr, i64)
declare i64 @{WAIT}(ptr, i64, i64, i64)
declare void @{TRANSFER}(ptr, i64, i64, i64, i64, i64, i64)
declare void @{EXCHANGE}(ptr, i64, i64, i64, i64)
declare void @{FINISH}(ptr, ptr, i64)
declare void @{COUNT_RANGE}(ptr, ptr)
declare i1 @{IS_PENDING}(ptr, i64)
"""


class Step(IntEnum):
    """What happens at a step: a pop's wait, a pass' wait for its unit, a pass, nothing."""

    END = 0
    POP = 1
    UNIT = 2
    MATMUL = 3
    IDLE = 4


STEP_BYTES = 4
MAX_ELAPSED = (1 << 16) - 1
"""Most cycles between a step and the one before."""


def step_word(step: Step, unit: int, elapsed: int) -> int:
    """A step of `unit`, `elapsed` cycles after the one before."""
    return elapsed << 16 | unit << 8 | step


class _ClockFunction:
    """One helper function under construction."""

    def __init__(self, header: str) -> None:
        self.emitter = Emitter("k")
        self._header = header

    def word(self, word: int, index: str = "") -> str:
        """Pointer to a context word, or to entry `index` of a table of words."""
        pointer = self.emitter.offset("%ctx", int(word) * 8)
        if not index:
            return pointer
        return self.emitter.value(f"getelementptr i64, ptr {pointer}, i64 {index}")

    def load(self, pointer: str) -> str:
        """A word's value."""
        return self.emitter.load("i64", pointer, 8)

    def add(self, pointer: str, amount: str | int) -> str:
        """Add to a word; returns its value before."""
        old = self.load(pointer)
        total = self.emitter.value(f"add i64 {old}, {amount}")
        self.emitter.store("i64", total, pointer, 8)
        return old

    def stall(self, cause: str, until: str) -> str:
        """Wait from ``%now`` until a time, for a cause given by number; returns the later time."""
        later = self.later("%now", until)
        waited = self.emitter.value(f"sub i64 {later}, %now")
        self.add(self.word(Word.CAUSES, cause), waited)
        return later

    def later(self, a: str, b: str) -> str:
        """The maximum of two times."""
        return self.emitter.value(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def ready(self, position: str) -> str:
        """Pointer to the ready time of result number `position` of ``%unit``."""
        e = self.emitter
        slot = e.value(f"and i64 {position}, {READY_RING - 1}")
        ring = e.value(f"mul i64 %unit, {READY_RING}")
        return self.word(Word.READY, e.value(f"add i64 {ring}, {slot}"))

    def define(self, result: str = "void") -> str:
        """The function's text."""
        body = f"entry:\n{self.emitter.text()}\n ret {result}"
        return f"define {self._header} #0 {{\n{body}\n}}\n"


def clock_text() -> str:
    """The functions of this module."""
    functions = [_pop_function(), _unit_function(), _matmul_function(), _steps_function()]
    functions += [_wait_function(), _transfer_function(), _finish_function(), _range_function()]
    functions += [_pending_function(), _exchange_function()]
    return "\n".join(functions)


def _finish_function() -> str:
    """Set the time, and add to cycles by cause: pairs of cause and cycles behind their number."""
    f = _ClockFunction(f"void @{FINISH}(ptr %ctx, ptr %counts, i64 %now)")
    e = f.emitter
    e.store("i64", "%now", f.word(Word.NOW), 8)
    with e.loop(f.load("%counts")) as number:
        pair = e.offset("%counts", e.value(f"shl i64 {number}, 4"))
        cause, cycles = (f.load(e.offset(pair, offset)) for offset in (8, 16))
        f.add(f.word(Word.CAUSES, cause), cycles)
    return f.define()


def _pending_function() -> str:
    """Whether another core has yet to raise a flag; false for a number that no flag has."""
    f = _ClockFunction(f"i1 @{IS_PENDING}(ptr %ctx, i64 %flag)")
    e = f.emitter
    with e.when(e.value(f"icmp uge i64 %flag, {MAX_FLAGS}")):
        e.do("ret i1 false")
        e.place(e.new_label())
    pending = f.load(f.word(Word.FLAG_PENDING, "%flag"))
    return f.define(f"i1 {e.value(f'icmp sgt i64 {pending}, 0')}")


def _range_function() -> str:
    """Add the words that a range of iterations counted to those of the core."""
    f = _ClockFunction(f"void @{COUNT_RANGE}(ptr %ctx, ptr %tally)")
    for word in range(TALLY_WORDS):
        f.add(f.word(word), f.load(f.emitter.offset("%tally", 8 * word)))
    return f.define()


def _steps_function() -> str:
    """The time after a list of steps that begins at ``%start``."""
    e = Emitter("k")
    head, following, over = e.new_label(), e.new_label(), e.new_label()
    labels = {step: e.new_label() for step in (Step.POP, Step.UNIT, Step.MATMUL)}
    e.jump(head)
    e.place(head)
    e.do("%at = phi ptr [%steps, %entry], [%next, %" + following + "]")
    e.do("%before = phi i64 [%start, %entry], [%after, %" + following + "]")
    word = e.load("i32", "%at", STEP_BYTES)
    elapsed = e.value(f"zext i32 {e.value(f'lshr i32 {word}, 16')} to i64")
    now = e.value(f"add i64 %before, {elapsed}")
    unit = e.value(f"lshr i32 {word}, 8")
    unit = e.value(f"zext i32 {e.value(f'and i32 {unit}, 255')} to i64")
    cases = " ".join(f"i32 {int(step)}, label %{label}" for step, label in labels.items())
    kind = e.value(f"and i32 {word}, 255")
    e.do(f"switch i32 {kind}, label %{following} [ i32 {int(Step.END)}, label %{over} {cases} ]")
    arguments = f"(ptr %ctx, i64 {unit}, i64 {now})"
    edges = [f"[{now}, %{head}]"]
    for step, function in ((Step.POP, "clock_pop"), (Step.UNIT, "clock_unit")):
        e.place(labels[step])
        edges.append(f"[{e.value(f'call i64 @{function}{arguments}')}, %{labels[step]}]")
        e.jump(following)
    e.place(labels[Step.MATMUL])
    e.do(f"call void @clock_matmul{arguments}")
    e.jump(following)
    edges.append(f"[{now}, %{labels[Step.MATMUL]}]")
    e.place(following)
    e.do(f"%after = phi i64 {', '.join(edges)}")
    e.do(f"%next = getelementptr i8, ptr %at, i64 {STEP_BYTES}")
    e.jump(head)
    e.place(over)
    header = f"i64 @{RUN_STEPS}(ptr %ctx, ptr %steps, i64 %start)"
    return f"define {header} #0 {{\nentry:\n{e.text()}\n ret i64 {now}\n}}\n"


def _pop_function() -> str:
    f = _ClockFunction("internal i64 @clock_pop(ptr %ctx, i64 %unit, i64 %now)")
    oldest = f.add(f.word(Word.CLOCK_HEAD, "%unit"), 1)
    return f.define(f"i64 {f.stall(str(int(Cause.MXU_RESULT)), f.load(f.ready(oldest)))}")


def _unit_function() -> str:
    f = _ClockFunction("internal i64 @clock_unit(ptr %ctx, i64 %unit, i64 %now)")
    free = f.emitter.value(f"lshr i64 {f.load(f.word(Word.UNIT_FREE, '%unit'))}, {PASS_BITS}")
    return f.define(f"i64 {f.stall(str(int(Cause.MXU)), free)}")


def _matmul_function() -> str:
    f = _ClockFunction("internal void @clock_matmul(ptr %ctx, i64 %unit, i64 %now)")
    tail = f.word(Word.CLOCK_TAIL, "%unit")
    for number in range(2):
        ready = f.emitter.value(f"add i64 %now, {f.load(f.word(Word.RESULT_READY + number))}")
        f.emitter.store("i64", ready, f.ready(f.add(tail, 1)), 8)
    unit = f.word(Word.UNIT_FREE, "%unit")
    start = f.later(f.load(unit), f.emitter.value(f"shl i64 %now, {PASS_BITS}"))
    free = f.emitter.value(f"add i64 {start}, {f.load(f.word(Word.PASS_OCCUPANCY))}")
    f.emitter.store("i64", free, unit, 8)
    f.add(f.word(Word.MXU_PASSES), 1)
    return f.define()


def _wait_function() -> str:
    """The wait counts from `arrival`, when the bundle could issue but for its waits."""
    f = _ClockFunction(f"i64 @{WAIT}(ptr %ctx, i64 %flag, i64 %arrival, i64 %now)")
    done = f.later("%now", f.load(f.word(Word.FLAG_DONE, "%flag")))
    done = f.emitter.value(f"add i64 {done}, {f.load(f.word(Word.WAIT_CYCLES))}")
    waited = f.emitter.value(f"sub i64 {done}, %arrival")
    f.add(f.word(Word.DMA_WAIT), waited)
    cause_at = f.word(Word.FLAG_CAUSE, "%flag")
    cause = f.load(cause_at)
    f.emitter.store("i64", str(int(LOWERED)), cause_at, 8)
    return f.define(f"i64 {f.stall(cause, done)}")


def _exchange_function() -> str:
    """A transfer over a route: it raises the flag at the core it goes to, whose words another thread
    may be using; at its own, the flag waits for what comes by the route."""
    f = _ClockFunction(f"void @{EXCHANGE}(ptr %ctx, i64 %flag, i64 %size, i64 %route, i64 %now)")
    e = f.emitter
    table = e.load("ptr", f.word(Word.LINKS), 8)
    row = e.value(f"getelementptr [{ROUTE_WORDS} x i64], ptr {table}, i64 %route")
    peer, expects, port, factor, setup, latency, quick = (
        f.load(e.offset(row, 8 * word)) for word in RouteWord
    )
    e.store("i64", str(int(Cause.ICI)), f.word(Word.FLAG_CAUSE, "%flag"), 8)
    pending = f.word(Word.FLAG_PENDING, "%flag")
    e.do(f"atomicrmw add ptr {pending}, i64 {expects} seq_cst")
    with e.when(e.value(f"icmp eq i64 {peer}, 0")):
        e.do("ret void")
        e.place(e.new_label())
    scaled = e.value(f"mul i64 %size, {factor}")
    scaled = e.value(f"add i64 {scaled}, {(1 << FRACTION_BITS) - 1}")
    cycles = e.value(f"lshr i64 {scaled}, {FRACTION_BITS}")
    cycles = e.value(f"add i64 {cycles}, {setup}")
    engine = f.word(Word.PORT_FREE, port)
    free = e.value(f"add i64 {f.later('%now', f.load(engine))}, {cycles}")
    e.store("i64", free, engine, 8)
    is_flag = e.value("icmp eq i64 %size, 0")
    way = e.value(f"select i1 {is_flag}, i64 {quick}, i64 {latency}")
    done = e.value(f"add i64 {free}, {way}")
    f.add(f.word(Word.HBM_BYTES), e.value("mul i64 %size, 2"))
    e.do(f"atomicrmw max ptr {f.word(Word.FLAG_DONE, '%flag')}, i64 {free} seq_cst")
    e.do(f"%peer = inttoptr i64 {peer} to ptr")
    for word, operation in (
        (Word.FLAG_DONE, f"max ptr %at0, i64 {done}"),
        (Word.FLAG_PENDING, "add ptr %at1, i64 -1"),
    ):
        name = "%at0" if word is Word.FLAG_DONE else "%at1"
        e.do(f"{name} = getelementptr i64, ptr {e.offset('%peer', int(word) * 8)}, i64 %flag")
        e.do(f"atomicrmw {operation} seq_cst")
    return f.define()


def _transfer_function() -> str:
    """`dma_times`, for a transfer on a route whose cost the fabric gave (`Word.DMA_COSTS`)."""
    parameters = "i64 %flag, i64 %size, i64 %sides, i64 %route, i64 %cause, i64 %now"
    f = _ClockFunction(f"void @{TRANSFER}(ptr %ctx, {parameters})")
    e = f.emitter
    row = f.word(Word.DMA_COSTS, e.value(f"mul i64 %route, {COST_WORDS}"))
    factor, setup, latency = (f.load(e.offset(row, 8 * word)) for word in range(COST_WORDS))
    scaled = e.value(f"mul i64 %size, {factor}")
    scaled = e.value(f"add i64 {scaled}, {(1 << FRACTION_BITS) - 1}")
    cycles = e.value(f"lshr i64 {scaled}, {FRACTION_BITS}")
    cycles = e.value(f"add i64 {cycles}, {setup}")
    engine = f.word(Word.DMA_FREE)
    free = e.value(f"add i64 {f.later('%now', f.load(engine))}, {cycles}")
    e.store("i64", free, engine, 8)
    done = e.value(f"add i64 {free}, {latency}")
    flag = f.word(Word.FLAG_DONE, "%flag")
    e.store("i64", f.later(done, f.load(flag)), flag, 8)
    e.store("i64", "%cause", f.word(Word.FLAG_CAUSE, "%flag"), 8)
    f.add(f.word(Word.HBM_BYTES), e.value("mul i64 %size, %sides"))
    return f.define()
