"""Batching of reductions, windows, sorts, transforms and factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.autodiff.values import Instr, Mask, Value
from compiler.batching.loop import one_by_one
from compiler.batching.step import BatchedStep, Rule, Scope, local, shifted
from compiler.hlo.attributes import Window, WindowDim
from compiler.hlo.cloning import clone
from compiler.passes.expanders.scan_expander import scan_expansion
from compiler.passes.expanders.simple_expansions import COMPOSED


def _with_fixed_starts(rule: Rule) -> Rule:
    """For reductions from one value for all; others go one by one."""

    def chosen(
        scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
    ) -> tuple[Value, Mask]:
        half = (len(flags) + 1) // 2
        way = one_by_one if any(flags[half:]) else rule
        return way(scope, instr, operands, flags)

    return chosen


def _arrays(step: BatchedStep) -> list[Instr]:
    """The arrays batched, the scalars behind them as they are."""
    half = (len(step.xs) + 1) // 2
    return [*(step.batched(i) for i in range(half)), *step.xs[half:]]


def _reduce(step: BatchedStep) -> Value:
    return step.again(_arrays(step), {"dimensions": shifted(step.instr.dimensions)})


def _windowed(step: BatchedStep) -> Value:
    window = Window((WindowDim(1), *step.instr.window.dims))
    return step.again(_arrays(step), {"window": window})


def _sort(step: BatchedStep) -> Value:
    dims = {"dimensions": shifted(step.instr.dimensions)}
    return step.again(step.all_batched(), dims)


def expanded(expand: Callable[[Instr], Instr | None]) -> Rule:
    """Batches what an operation expands to."""

    def rule(
        scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
    ) -> tuple[Value, Mask]:
        _, e = scope.within(instr, f"{instr.opcode}_expansion")
        parameters = [e.parameter(old.shape) for old in instr.operands]
        found = expand(clone(instr, e.computation, parameters))
        assert found is not None, f"%{instr.name}: no expansion of {instr.opcode}"
        e.computation.root = found
        return scope.run(e.computation, operands, flags)

    return rule


REDUCTION_RULES: dict[str, Rule] = {
    **{name: expanded(expansion) for name, expansion in COMPOSED.items()},
    "cholesky": local(lambda s: s.again(s.xs)),
    "fft": local(lambda s: s.again(s.xs)),
    "reduce": _with_fixed_starts(local(_reduce)),
    "reduce-window": _with_fixed_starts(local(_windowed)),
    "scan": expanded(scan_expansion),
    "select-and-scatter": _with_fixed_starts(local(_windowed)),
    "sort": local(_sort),
    "topk": local(lambda s: s.again(s.xs)),
    "triangular-solve": local(lambda s: s.again(s.all_batched())),
}
