"""Where modules come from: our own generator, or random JAX programs."""

from __future__ import annotations

from benchmarks.fuzz.generator import generate, generate_real

NOTHING = "nothing drawn"
"""A seed without a program: JAX refused all calls that were drawn."""


class Series:
    """The modules of `benchmarks.fuzz.generator`."""

    def small(self, seed: int) -> tuple[str, str]:
        """A module to execute, and as StableHLO where its author wrote that too (else "")."""
        return generate(seed), ""

    def real(self, seed: int) -> str:
        """A module of real size."""
        return generate_real(seed)


class JaxSeries(Series):
    """Random JAX programs, as JAX lowers them; "" for a seed that has none."""

    def small(self, seed: int) -> tuple[str, str]:
        """A module to execute, and JAX's own StableHLO of it."""
        from benchmarks.fuzz.traced import generator

        try:
            made = generator.generate(seed)
        except generator.NothingDrawnError:
            return "", ""
        return made.hlo, made.stablehlo

    def real(self, seed: int) -> str:
        """A program of arrays that do real work."""
        from benchmarks.fuzz.traced import generator

        try:
            return generator.generate(seed, real=True).hlo
        except generator.NothingDrawnError:
            return ""
