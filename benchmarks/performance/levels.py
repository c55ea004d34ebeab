"""Levels of host features: both sides are held to the same instructions, and what is wanted there.

XLA:CPU has an option for the code that it generates, but calls libraries that look at the CPU
themselves. oneDNN has an environment variable; YNNPACK has no such thing and multiplies with AVX-512
wherever it finds it, so with AVX2 XLA:CPU goes without it (and uses oneDNN).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tpu_sim.jit.host import FEATURES_VARIABLE, NATIVE, detect_host


@dataclass(frozen=True)
class Level:
    """`flags` hold XLA:CPU to the level, `onednn` its library."""

    flags: tuple[str, ...] = ()
    onednn: str = ""


LEVELS = {
    NATIVE: Level(),
    "avx512": Level(("--xla_cpu_max_isa=AVX512",), "AVX512_CORE"),
    "avx2": Level(
        ("--xla_cpu_max_isa=AVX2", "--xla_cpu_experimental_ynn_fusion_type=invalid"), "AVX2"
    ),
}
LARGEST_RATIO = 1.3


def environment(level: str, before: Mapping[str, str]) -> dict[str, str]:
    """`before`, for a process of either side held to `level`."""
    after = dict(before)
    chosen = LEVELS[level]
    if level != NATIVE:
        after[FEATURES_VARIABLE] = level
        after["XLA_FLAGS"] = " ".join((*before.get("XLA_FLAGS", "").split(), *chosen.flags))
        after["ONEDNN_MAX_CPU_ISA"] = chosen.onednn
    return after


def wanted_mean(level: str) -> float:
    """What the geometric mean of execution times over XLA:CPU's is to be at most."""
    if level != NATIVE or os.environ.get(FEATURES_VARIABLE):
        return 0.9
    host = detect_host()
    if host.has_matrix_unit:
        return 0.45
    return 0.65 if host.has("avx512bf16") else 0.9
