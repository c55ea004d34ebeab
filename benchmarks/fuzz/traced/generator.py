"""A random JAX program by its seed, as HLO and as JAX's own StableHLO."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax

from benchmarks.fuzz.traced import arguments, catalogue, structured, transforms
from benchmarks.fuzz.traced.program import NotAddedError, Program

MOST_ELEMENTS = 2000
_TRIES = 12
_NESTED = 0.22


class NothingDrawnError(Exception):
    """No call of a seed was accepted."""


@dataclass(frozen=True)
class Texts:
    """A program in both forms, with the calls that it is made of."""

    hlo: str
    stablehlo: str
    labels: tuple[str, ...]


def generate(seed: int, real: bool = False) -> Texts:
    """The program of a seed. Raises `NothingDrawnError`."""
    rng = random.Random(f"traced {seed}")
    most = rng.choice((300, MOST_ELEMENTS, MOST_ELEMENTS))
    if real:
        most = int(2.0 ** rng.uniform(18, 28))
    program = Program(rng, most, real)
    with jax.enable_x64(rng.random() < 0.08):
        fill(program, rng.choice((1, 1, 2, 3, 5)) if not real else rng.choice((1, 2, 3)))
        if not program.steps:
            raise NothingDrawnError
        return lowered(program, "tpu" if rng.random() < 0.3 else "cpu")


def fill(program: Program, count: int, depth: int = 0) -> None:
    """Add `count` calls, fewer where JAX refuses all that is drawn."""
    for _ in range(count):
        for _ in range(_TRIES):
            before = (len(program.specs), dict(program.given))
            try:
                program.add(*_drawn(program, depth))
                break
            except NotAddedError:
                pass
            except (TypeError, ValueError, IndexError, AssertionError, OverflowError):
                pass  # arguments that were drawn and do not go together
            del program.specs[before[0] :]
            program.given = before[1]


def _drawn(program: Program, depth: int) -> tuple[str, object, list[int]]:
    rng = program.rng
    draw = rng.random()
    if draw < _NESTED / (1 + depth) and depth < 3:
        return transforms.drawn(program, lambda inner, n: fill(inner, n, depth + 1))
    if draw < 0.5:
        return structured.drawn(program)
    names, weights = zip(*catalogue.NAMESPACES, strict=True)
    name, function = rng.choice(catalogue.functions()[rng.choices(names, weights)[0]])
    run, numbers = arguments.drawn_call(program, name, function)
    return name, run, numbers


_PARAMETER = re.compile(r"(%?)([\w.\-]+)( = [^\n]*? parameter\((\d+)\))")


def lowered(program: Program, platform: str) -> Texts:
    """Both texts of a program."""
    specs = [program.specs[n] for n in program.given]
    labels = [step.label for step in program.steps]
    function = program.function(program.results())
    return lowered_call(function, specs, list(program.given.values()), labels, platform)


def lowered_call(
    function: Callable[..., object],
    arguments: Sequence[object],
    kinds: Sequence[str],
    labels: Sequence[str],
    platform: str = "cpu",
) -> Texts:
    """Both texts of a function of trees of shapes, as JAX lowers it for a platform.

    Parameters of the HLO say the kind of their values: `kinds` are those of the leaves. Raises
    `NothingDrawnError` for what JAX cannot lower.
    """
    made = jax.jit(function, keep_unused=True).trace(*arguments)
    try:
        low = made.lower(lowering_platforms=(platform,))
    except Exception as error:  # JAX has no rule for a type, or says so in some other way
        raise NothingDrawnError from error
    hlo = low.compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    if re.search(r"\b(f64|c128)\[", hlo):  # that JAX's own rules compute in
        raise NothingDrawnError
    return Texts(_named(hlo, kinds), low.as_text(), tuple(labels))


def _named(hlo: str, kinds: Sequence[str]) -> str:
    """The entry's parameters named after the kinds of their values."""
    head, _, entry = hlo.rpartition("\nENTRY ")
    for _, name, _, number in _PARAMETER.findall(entry):
        new = f"in{number}_{kinds[int(number)]}"
        entry = re.sub(rf"(?<![\w.\-]){re.escape(name)}(?![\w.\-])", new, entry)
    return f"{head}\nENTRY {entry}"
