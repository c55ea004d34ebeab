"""Random JAX programs: a few are judged; any number is run by ``python -m benchmarks.fuzz --jax``."""

from __future__ import annotations

import random
from typing import Any

import pytest

jax = pytest.importorskip("jax")

from benchmarks.fuzz import check as fuzz  # noqa: E402
from benchmarks.fuzz.inputs import KINDS  # noqa: E402
from benchmarks.fuzz.minimise import reduced  # noqa: E402
from benchmarks.fuzz.module_text import plain, read  # noqa: E402
from benchmarks.fuzz.series import JaxSeries  # noqa: E402
from benchmarks.fuzz.traced import catalogue, generator  # noqa: E402
from benchmarks.fuzz.traced.program import NotAddedError, Program  # noqa: E402
from compiler.hlo.parser import parse_module  # noqa: E402


def test_a_seed_gives_one_program_in_both_forms() -> None:
    made, again = generator.generate(3), generator.generate(3)
    assert (made.hlo, made.stablehlo) == (again.hlo, again.stablehlo)
    names = [p.name for p in parse_module(made.hlo).entry.parameters]
    assert all(name.rpartition("_")[2] in KINDS for name in names)


def test_programs_are_of_many_functions() -> None:
    labels = {label for seed in range(20) for label in _labels(seed)}
    assert len(labels) > 20
    assert sum(len(found) for found in catalogue.functions().values()) > 600


def _labels(seed: int) -> tuple[str, ...]:
    try:
        return generator.generate(seed).labels
    except generator.NothingDrawnError:
        return ()


def test_what_jax_refuses_or_is_too_large_is_not_added() -> None:
    program = Program(random.Random(0), 100)
    x = program.give("float32", (3, 4))
    y = program.give("float32", (5,))

    def outer(a: Any, b: Any) -> Any:
        return (a.reshape(-1, 1, 1) * b[:, None] * b).sum()

    with pytest.raises(NotAddedError):
        program.add("sum", lambda a, b: a + b, [x, y])
    with pytest.raises(NotAddedError):
        program.add("large", lambda a: jax.numpy.outer(a, a), [x])
    assert program.add("outer", outer, [x, y]) == (2,)


@pytest.mark.parametrize("seed", range(8))
def test_chip_evaluator_and_frontends_agree(seed: int) -> None:
    text, other = JaxSeries().small(seed)
    outcome = fuzz.check(text, fuzz.Ways(other=other), seed) if text else fuzz.Outcome(fuzz.OK)
    assert outcome.kind == fuzz.OK, f"{outcome.kind}: {outcome.detail}"


def test_what_jax_prints_is_made_small() -> None:
    program = Program(random.Random(0), 100)
    x = program.give("float32", (3, 4), "tame")
    program.add("sin", jax.numpy.sin, [x])
    program.add("cos", jax.numpy.cos, [x])
    text = generator.lowered(program, "cpu").hlo
    small = reduced(text, lambda t: " cosine(" in t, 10.0)
    assert " sine(" in text and " sine(" not in small
    assert plain(text) != text and read(small).header == "HloModule m"
