"""The page: models beside the reference, kinds of kernels by cycles lost, the worst kernels."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.distance.models import KernelDistance, Model

SMALL_BYTES = 50_000_000
"""Models that move less than this in the reference are not judged by bytes."""


def geomean(ratios: Iterable[float]) -> float:
    """The geometric mean of those that are known."""
    logs = [math.log(ratio) for ratio in ratios if ratio > 0]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0


def page(models: Sequence[Model], target: str, worst: int) -> str:
    """The page as Markdown."""
    kernels = [kernel for model in models for kernel in model.kernels]
    parts = [
        "# Distance from the roofline\n\nWritten by `python -m benchmarks.distance FOLDER "
        f"--reference FILE` for {target}. "
        "A kernel's roofline is the time for its least bytes at HBM's published rate, its products "
        "at the MXUs' peak or its elementwise operations in all vector slots, whichever is longest "
        "([timing-model.md](timing-model.md)); *lost* is what it takes beyond. A ratio marked * "
        "stands beside a reference that has no estimate for some kernels of the model.",
        "## Models",
        _models(models),
        _summary(models, kernels),
        "## Kinds of kernels by cycles lost, as shares of their models' cycles",
        _kinds(models),
        f"## The {worst} kernels that lose the largest share of their model",
        _worst(models, worst),
    ]
    return "\n\n".join(parts) + "\n"


def _models(models: Sequence[Model]) -> str:
    lines = [
        "| model | cycles | of the reference | HBM MB | of the reference | at the rooflines |",
        "|---|---|---|---|---|---|",
    ]
    for model in sorted(models, key=lambda m: -m.cycles_ratio):
        if model.error:
            lines.append(f"| {model.name} | {model.error.replace('|', '/')} | | | | |")
            continue
        roof = sum(kernel.roofline_cycles for kernel in model.kernels) / max(1, model.cycles)
        star = "*" if model.unestimated else ""
        lines.append(
            f"| {model.name} | {model.cycles:,} | {_ratio(model.cycles_ratio)}{star} "
            f"| {model.hbm_bytes / 1e6:,.1f} | {_ratio(model.bytes_ratio)} | {roof:.0%} |"
        )
    return "\n".join(lines)


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio else ""


def _summary(models: Sequence[Model], kernels: Sequence[KernelDistance]) -> str:
    cycles = sum(kernel.cycles for kernel in kernels)
    near = sum(kernel.cycles for kernel in kernels if kernel.times <= 2)
    far = sum(kernel.times > 10 for kernel in kernels)
    large = [model for model in models if model.reference_bytes >= SMALL_BYTES]
    return (
        f"Geometric means over the reference: cycles {geomean(m.cycles_ratio for m in models):.2f}, "
        f"HBM bytes {geomean(m.bytes_ratio for m in models):.2f} "
        f"({geomean(m.bytes_ratio for m in large):.2f} for the {len(large)} models that move "
        f"{SMALL_BYTES // 10**6} MB or more there). Of all cycles {near / max(1, cycles):.0%} are in "
        f"kernels within twice their roofline; {far} of {len(kernels)} kernels are beyond ten times."
    )


def _kinds(models: Sequence[Model]) -> str:
    """Shares, not sums: else the largest model would decide."""
    shares: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    within: dict[str, set[str]] = defaultdict(set)
    for model in models:
        for kernel in model.kernels:
            shares[kernel.kind] += kernel.lost / max(1, model.cycles)
            counts[kernel.kind] += 1
            within[kernel.kind].add(model.name)
    lines = ["| kind | lost | kernels | models |", "|---|---|---|---|"]
    for kind in sorted(shares, key=lambda kind: -shares[kind])[:24]:
        share = shares[kind] / max(1, len(models))
        lines.append(f"| {kind} | {share:.1%} | {counts[kind]} | {len(within[kind])} |")
    return "\n".join(lines)


def _worst(models: Sequence[Model], count: int) -> str:
    lines = [
        "| model | kernel | calls | cycles | lost of the model | over the roof | roof | bytes over the "
        "least | bound by | what |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    totals = {model.name: max(1, model.cycles) for model in models}
    kernels = [kernel for model in models for kernel in model.kernels]
    for kernel in sorted(kernels, key=lambda k: -k.lost / totals[k.model])[:count]:
        what = kernel.note.removeprefix(f"{kernel.name} ")
        lines.append(
            f"| {kernel.model} | {kernel.name} | {kernel.calls:,} | {kernel.cycles:,} "
            f"| {kernel.lost / totals[kernel.model]:.1%} | {kernel.times:.1f} | {kernel.roofline} "
            f"| {kernel.amplification:.1f} | {kernel.bound_by} | {what} |"
        )
    return "\n".join(lines)
