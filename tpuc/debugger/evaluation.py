"""Values within a kernel, by evaluating its HLO on the arrays that it reads; and who made a NaN.

A fusion's inner values never exist as arrays on the chip. The evaluator computes them from the operands
that lie in memory. It rounds as HLO says, the kernel may keep more bits in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.hlo.evaluator.context import EvaluationOptions, Operands, Value
from compiler.hlo.evaluator.interpreter import HANDLERS, Interpreter, flatten
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import Shape, TupleShape
from tpuc.debugger.values import is_bad

HostArray = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Blame:
    """The instruction that made a bad value of good ones; in a loop, in which of its iterations."""

    instr: HloInstruction
    iteration: int | None = None
    loop: HloInstruction | None = None


def shaped(shape: Shape, arrays: list[HostArray]) -> Value:
    """The value of a shape, of its arrays; they are taken from the front."""
    if isinstance(shape, TupleShape):
        return tuple(shaped(element, arrays) for element in shape.elements)
    return arrays.pop(0)


def evaluate_inner(
    instr: HloInstruction,
    operands: Sequence[Value],
    wanted: str,
    precision: str,
    iteration: int | None = None,
) -> list[HostArray] | None:
    """The arrays of the instruction `wanted` within what `instr` runs, of the last time it runs.

    Of a loop, up to an iteration of it.
    """
    found: list[Value] = []
    root = instr.body.root_instruction if instr.opcode == "while" else None
    done = 0

    def watch(inner: HloInstruction, _: Operands, result: Value) -> None:
        nonlocal done
        if inner.name == wanted and (iteration is None or done <= iteration):
            found[:] = [result]
        done += inner is root

    _run(instr, operands, precision, watch)
    return flatten(found[0]) if found else None


def blame(
    instr: HloInstruction, operands: Sequence[Value], kind: str, precision: str
) -> Blame | None:
    """Who makes the first bad value that reaches the result of `instr`, whose operands are all good.

    None if evaluating it gives none.
    """
    trace = _Trace(kind)
    _run(instr, operands, precision, trace.watch)
    return trace.walk_back(instr)


def _run(
    instr: HloInstruction,
    operands: Sequence[Value],
    precision: str,
    watch: Callable[[HloInstruction, Operands, Value], None],
) -> None:
    interpreter = Interpreter(EvaluationOptions(precision))
    interpreter.watch = watch
    with np.errstate(all="ignore"):
        result = HANDLERS[instr.opcode](interpreter, instr, list(operands))
    watch(instr, list(operands), result)


class _Trace:
    """What each instruction made and of what, whether it was bad; of loops, who spoilt the state."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._bad: dict[HloInstruction, bool] = {}
        self._bad_operands: dict[HloInstruction, bool] = {}
        self._loop_of_root: dict[HloInstruction, HloInstruction] = {}
        self._iterations: dict[HloInstruction, int] = {}
        self._spoilt: dict[HloInstruction, Blame] = {}

    def watch(self, instr: HloInstruction, operands: Operands, result: Value) -> None:
        self._bad[instr] = self._is_bad(result)
        self._bad_operands[instr] = any(self._is_bad(o) for o in operands)
        body = instr.computation
        caller = self._body_of(instr)
        if body is None or caller is None:
            return
        self._iterations[caller] = number = self._iterations.get(caller, -1) + 1
        if self._bad[instr] and caller not in self._spoilt:
            found = self.walk_back(instr)
            if found is not None:
                inner = found.loop or caller
                at = found.iteration if found.loop is not None else number
                self._spoilt[caller] = Blame(found.instr, at, inner)

    def walk_back(self, instr: HloInstruction) -> Blame | None:
        """From a bad result to the instruction that made it of good operands; None: it came from outside."""
        callers: list[HloInstruction] = []
        while self._bad.get(instr, False):
            if instr in self._spoilt:
                return self._spoilt[instr]
            inner = [c.root_instruction for c in instr.called_computations()]
            if instr.opcode in ("fusion", "call") and self._bad.get(inner[0], False):
                callers.append(instr)
                instr = inner[0]
                continue
            bad = next((o for o in instr.operands if self._bad.get(o, False)), None)
            while bad is None and self._bad_operands.get(instr, False) and callers:
                caller = callers.pop()  # a parameter is bad: what the caller gave for it
                bad = next((o for o in caller.operands if self._bad.get(o, False)), None)
                instr = caller
            if bad is None:
                return None if self._bad_operands.get(instr, False) else Blame(instr)
            instr = bad
        return None

    def _body_of(self, instr: HloInstruction) -> HloInstruction | None:
        """The loop whose body's root this is."""
        computation = instr.computation
        if computation is None or computation.root is not instr:
            return None
        if instr not in self._loop_of_root and computation.module is not None:
            for caller in (i for c in computation.module.computations.values() for i in c):
                if caller.opcode == "while":
                    self._loop_of_root[caller.body.root_instruction] = caller
        return self._loop_of_root.get(instr)

    def _is_bad(self, value: Value) -> bool:
        return any(bool(is_bad(np.asarray(leaf), self._kind).any()) for leaf in flatten(value))
