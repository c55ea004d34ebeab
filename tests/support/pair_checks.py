"""Run a module as it is and rewritten into pairs, both in the evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.rule_fuzz import pairs
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import leaves
from compiler.hlo.verifier import verify
from compiler.passes.context import PassContext
from compiler.passes.pair_types.pair_rewriter import rewrite_pairs
from tpu_sim.isa.chips import load_chip

Array = npt.NDArray[np.generic]
_WIDE = ("s64", "u64", "c64")


def rewritten(text: str) -> HloModule:
    """The module after the pass, verified; nothing in it is wide."""
    module = parse_module(text, "test.hlo")
    assert rewrite_pairs(module, PassContext(load_chip("v5e")))
    verify(module)
    shapes = [s for c in module.computations.values() for i in c for s in leaves(i.shape)]
    assert not any(shape.dtype.name in _WIDE for shape in shapes)
    return module


def before_and_after(text: str, inputs: Sequence[Array]) -> list[tuple[Array, Array]]:
    """Each result of the module and of the rewritten one, put together again."""
    with np.errstate(all="ignore"):
        wanted = evaluate(parse_module(text, "test.hlo"), list(inputs), "highest")
        parts = [part for value in inputs for part in split(value)]
        found = list(evaluate(rewritten(text), parts, "highest"))
    wholes = [np.asarray(want) for want in wanted]
    return list(zip(wholes, pairs.joined(found, wholes), strict=True))


def split(value: Array) -> list[Array]:
    """The parts of an array: two when its type is wide."""
    return list(pairs.split([value]))


def same(want: Array, got: Array) -> bool:
    """Equal, NaN being equal to NaN."""
    is_nan = (want != want) & (got != got)
    return want.shape == got.shape and bool(np.all((want == got) | is_nan))
