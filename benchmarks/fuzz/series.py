"""Where modules come from: our own generator, random JAX programs, or random networks."""

from __future__ import annotations

import random

from benchmarks.fuzz.generator import generate, generate_real

NOTHING = "nothing drawn"
"""A seed without a program: JAX refused all calls that were drawn."""


_TARGETS = (
    *["v5e"] * 6, "v2", "v3", "v4", "v5p", "v6e", "7x", "v5e{vmem=1MiB}", "v5e{vmem=4MiB}", "v6e{vmem=2MiB}",
)  # fmt: skip
"""Chips that programs run on: little VMEM cuts small arrays into the blocks that large ones have."""


def target_of(seed: int, wanted: str = "") -> str:
    """The chip for a seed's program: the one that is wanted, or one of chance."""
    return wanted or random.Random(f"target {seed}").choice(_TARGETS)


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


class NetworkSeries(Series):
    """Random networks, forward or trained, as JAX lowers them."""

    def small(self, seed: int) -> tuple[str, str]:
        """A network of few features, and JAX's own StableHLO of it."""
        from benchmarks.fuzz.networks.generator import generate

        made = generate(seed)
        return made.hlo, made.stablehlo

    def real(self, seed: int) -> str:
        """A network of the size of practice."""
        from benchmarks.fuzz.networks.generator import generate

        return generate(seed, real=True).hlo


SERIES: dict[str, type[Series]] = {"random": Series, "jax": JaxSeries, "networks": NetworkSeries}
"""The series by what they are called on command lines."""
