"""Run HLO text before and after some passes on the evaluator, and compiled on a machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

import tpuc
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from tpu_sim.isa.chips import load_chip

Array = npt.NDArray[np.generic]


def reference(text: str, inputs: Sequence[Array]) -> list[Array]:
    """What the module as it stands means."""
    return evaluate(parse_module(text, "test.hlo"), list(inputs), "highest")


def expanded(
    text: str,
    inputs: Sequence[Array],
    passes: Sequence[str],
    gone: Sequence[str] = (),
    target: str = "v5e",
) -> list[Array]:
    """What it means after the passes, which must leave none of the opcodes `gone`."""
    module = parse_module(text, "test.hlo")
    run_pipeline(module, load_chip(target), passes=passes)
    left = {i.opcode for c in module.computations.values() for i in c}
    assert not left & set(gone), f"still there: {left & set(gone)}"
    return evaluate(module, list(inputs), "highest")


def on_machine(text: str, inputs: Sequence[Array], target: str = "v5e") -> list[Array]:
    """What the compiled program gives."""
    outputs = tpuc.compile(text, target=target, precision="highest")(*inputs)
    return [outputs] if isinstance(outputs, np.ndarray) else list(outputs)


def assert_close(want: Sequence[Array], got: Sequence[Array], tolerance: float) -> None:
    """Integers equal; floats within `tolerance` of the largest magnitude of each array."""
    assert len(want) == len(got)
    for a, b in zip(want, got, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        wide = np.complex128
        np.testing.assert_array_equal(np.isfinite(a.astype(wide)), np.isfinite(b.astype(wide)))
        here = np.isfinite(a.astype(wide))
        x, y = a.astype(wide)[here], b.astype(wide)[here]
        scale = np.max(np.abs(x), initial=1e-30)
        assert np.max(np.abs(x - y), initial=0.0) <= tolerance * scale
