"""``tpuc eval``: the NumPy evaluator alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compiler.hlo.ir import HloModule
from compiler.hlo.shape import leaves
from runtime.api import DEFAULT_TARGET
from tpu_sim.isa.chips import load_chip
from tpuc import tables
from tpuc.arrays import compare, save_arrays
from tpuc.commands.judging import Given, check_tolerance, judge, print_json, tolerance_of
from tpuc.commands.models import made_up, parsed
from tpuc.commands.terminal import readable, warn_of_f32, warn_of_made_up, working, writable

Array = npt.NDArray[np.generic]


def evaluate(
    model: str,
    inputs: str | None,
    expect: str | None,
    tol: float | None,
    outputs: str | None,
    seed: int,
    precision: str | None,
    f64_as_f32: bool,
    as_json: bool,
) -> None:
    """``tpuc eval``: the NumPy evaluator alone."""
    check_tolerance(tol, is_compared=expect is not None, how="--expect")
    writable(outputs)
    readable(inputs)
    readable(expect)
    precision = precision or "default"
    module = parsed(model)
    warn_of_made_up(made_up(module), is_run=True)
    shapes = [leaf for p in module.entry.parameters for leaf in leaves(p.shape)]
    root = leaves(module.entry.root_instruction.shape)
    given = Given(model, inputs, expect, seed)
    arguments = list(given.arguments(shapes))
    expected = given.expected(root)
    with working("evaluating"):
        results = _evaluated(module, arguments, precision, f64_as_f32=f64_as_f32)
    if outputs:
        save_arrays(outputs, results)
    differences = compare(results, expected) if expected is not None else None
    tolerance = tolerance_of(tol, precision)
    if as_json:
        record: dict[str, object] = {"model": model, "random_inputs": given.is_random}
        record["outputs"] = [{"dtype": str(r.dtype), "shape": list(r.shape)} for r in results]
        print_json(record, differences, tolerance)
    else:
        tables.print_outputs(results, random_seed=seed if given.is_random else None)
    judge(differences, tolerance, quiet=as_json)


def _evaluated(
    module: HloModule, arguments: list[Array], precision: str, *, f64_as_f32: bool
) -> list[Array]:
    """The evaluator's results in the module's types; with `f64_as_f32` computed in f32."""
    from compiler.driver import run_passes
    from compiler.hlo.evaluator import evaluate as evaluate_module

    if not f64_as_f32:
        return list(evaluate_module(module, arguments, precision))
    warn_of_f32(f64_as_f32)
    types = [leaf.dtype.numpy for leaf in leaves(module.entry.root_instruction.shape)]
    run_passes(module, load_chip(DEFAULT_TARGET), ["double-precision-narrower"])
    inputs = [leaf for p in module.entry.parameters for leaf in leaves(p.shape)]
    narrow = [a.astype(s.dtype.numpy) for a, s in zip(arguments, inputs, strict=True)]
    results = evaluate_module(module, narrow, precision)
    return [np.asarray(r).astype(t) for r, t in zip(results, types, strict=True)]
