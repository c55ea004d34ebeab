"""The comparison as a page of Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.xla_tpu_comparison.matching import CONVOLUTION, FUSED, PLAIN, Match
from benchmarks.xla_tpu_comparison.ours import Ours
from benchmarks.xla_tpu_comparison.records import Record, XlaKernel
from tpu_sim.isa.chips import load_chip

LONG_DOT_SECONDS = 10e-6
DOT_BOUNDS = (0.7, 1.3)
FUSED_BOUNDS = (0.5, 1.5)
HEAD = """# Beside XLA's TPU compiler

Written by `python -m benchmarks.xla_tpu_comparison FOLDER --out docs/xla-comparison.md`. FOLDER holds
records of what XLA's TPU compiler (libtpu, ahead of time, {chip}) made of {count} workloads for one
device, and their HLO. The same HLO is compiled by tpuc for {chip} and estimated (`tpuc estimate`). Both
sides are compilers' predictions; neither is a measurement.

How to read it:

- A *ratio* is our cycles over XLA's estimate: above 1 we are slower, below 1 faster.
- Kernels are compared where both sides do the same matrix product: equal multiply-adds and results
  (`matching.py`). Kernels with equal products in one workload count as one row, weighted by their number.
- XLA does not charge a dot for operands and results it keeps in VMEM, and it loads the largest parameter
  before the program begins. Our kernels read HBM and write HBM, and are charged for it.
- XLA charges elementwise and reduction kernels for HBM traffic even where the data is in VMEM, one DMA
  latency per 128 tiles where they are not fused, and more for bf16 than for f32. Ratios below 1 are
  expected there, and are no claim.
- A dot is *fused* when XLA's kernel does more than the product and conversions; every product of a model
  with convolutions counts as a convolution, also one of a single tap.
- Gathers, scatters, sorts, top-k and bare reduce-windows have no estimate: their workloads' ratios, in
  the last table, mean nothing and are left out.
"""
CAUSES_NOTE = (
    "The dearest kernels outside 0.5 to 1.5 (dots above 10 us: 0.7 to 1.3). *Cycles went to* is our own "
    "attribution.\n\n"
    "What they come to, as our attribution and the records' rooflines suggest:\n\n"
    "- **Ratios far below 1** (batched dots with a small K, convolutions of one tap with many outputs, thin "
    "K): XLA's estimates lie far\n  above the HBM and MXU roofs of the same product there, our kernels near "
    "them. They were not made slower to agree.\n"
    "- **Operands in VMEM**: where XLA's record has operands in VMEM before the kernel starts (small "
    "kernels of `mlp`, `mlp_train`,\n  `lstm`), its estimate holds no traffic for them; ours reads them "
    "from HBM: `dma_in`, `dma_out`, `launch`.\n"
    "- **Left sides that lie transposed** (gradients of weights and kernels, where both sides lie across "
    "K): the side goes through the\n  transpose units, 256x128 halves at a time; `latency` is their "
    "turn-round (`xpose_swap`, an assumed parameter). XLA's estimate\n  has no such cost.\n"
    "- **Epilogues with exponentials** (attention's first product): `vector`, about ten operations each "
    "for an exponential and a\n  division, and passes for maximum and sum; XLA's estimate of epilogues is "
    "almost nothing.\n"
    "- **Convolutions of very few features** are folded into fewer, larger products ([convolutions]"
    "(convolutions.md)):\n  what gathers and unfolds them counts in the workload, not in the product."
)


@dataclass(frozen=True)
class Line:
    """A workload: XLA's record, ours, and how their kernels pair."""

    record: Record
    ours: Ours
    matches: tuple[Match, ...]
    missing: tuple[XlaKernel, ...]

    @property
    def ratio(self) -> float | None:
        """Cycles of the whole workload over XLA's, None where XLA estimates only a part."""
        if self.ours.error or self.record.unestimated or not self.record.cycles:
            return None
        return self.ours.cycles / self.record.cycles


def page(lines: Sequence[Line], chip: str, worst: int) -> str:
    """The whole page."""
    clock = load_chip(chip).clock_hz
    matches = [m for line in lines for m in line.matches]
    parts = [
        HEAD.format(chip=chip, count=len(lines)),
        "## Summary\n",
        _summary(lines, matches, clock),
        _totals(lines, matches),
        "## By family\n",
        _families(lines),
        "## Outliers\n\n" + CAUSES_NOTE + "\n",
        _slower(matches, clock),
        _outliers(matches, clock, worst),
        "## All workloads\n\n" + _workload_note(),
        _workloads(lines),
    ]
    return "\n".join(parts)


def summary(lines: Sequence[Line], chip: str) -> str:
    """The section for a page on accuracy."""
    matches = [m for line in lines for m in line.matches]
    return (
        "## Against XLA's TPU compiler\n\n"
        "Written by `python -m benchmarks.xla_tpu_comparison FOLDER --into docs/accuracy.md`; "
        "families, outliers\nwith their causes and every workload are in "
        "[xla-comparison.md](xla-comparison.md). Our cycles over its\nestimates, kernel by kernel "
        f"where both sides do the same matrix product, on {chip} ({len(lines)} workloads).\nBoth sides "
        "are predictions. *Or faster* counts ratios below the bounds as well.\n\n"
        + _summary(lines, matches, load_chip(chip).clock_hz)
    )


def _summary(lines: Sequence[Line], matches: Sequence[Match], clock: float) -> str:
    long_dots = [m for m in matches if m.kind == PLAIN and m.each > LONG_DOT_SECONDS * clock]
    rest = [m for m in matches if m.kind == PLAIN and m not in long_dots]
    fused = [m for m in matches if m.kind == FUSED]
    convolutions = [m for m in matches if m.kind == CONVOLUTION]
    no_product = [
        line.ratio
        for line in lines
        if line.ratio is not None and not any(k.products for k in line.record.parts)
    ]
    rows = [
        _spread("dots above 10 us", _ratios(long_dots), DOT_BOUNDS, "median 0.85-1.1, 90 %"),
        _spread("dots up to 10 us", _ratios(rest), DOT_BOUNDS, ""),
        _spread("convolutions", _ratios(convolutions), FUSED_BOUNDS, "90 %"),
        _spread("fused dots", _ratios(fused), FUSED_BOUNDS, "90 %"),
        _spread("both", _ratios(convolutions + fused), FUSED_BOUNDS, "90 %"),
        _spread("elementwise, reductions, data movement", no_product, FUSED_BOUNDS, "caveats"),
    ]
    titles = ("", "n", "median", "5 %", "95 %", "bounds", "within", "or faster", "wanted")
    return _table(titles, rows) + "\n"


def _ratios(matches: Sequence[Match]) -> list[float]:
    """One ratio per XLA kernel."""
    return [m.ratio for m in matches for _ in m.names]


def _spread(
    name: str, ratios: Sequence[float], bounds: tuple[float, float], wanted: str
) -> tuple[str, ...]:
    if not ratios:
        return (name, "0", *[""] * 6, wanted)
    low, high = bounds
    ordered = sorted(ratios)
    within = sum(low <= r <= high for r in ordered) / len(ordered)
    faster = sum(r <= high for r in ordered) / len(ordered)
    marks = (ordered[int(share * (len(ordered) - 1))] for share in (0.05, 0.95))
    return (
        name,
        str(len(ordered)),
        f"{statistics.median(ordered):.2f}",
        *(f"{r:.2f}" for r in marks),
        f"{low}-{high}",
        f"{within:.0%}",
        f"{faster:.0%}",
        wanted,
    )


def _totals(lines: Sequence[Line], matches: Sequence[Match]) -> str:
    compiled = [line for line in lines if not line.ours.error]
    kernels = sum(len(m.names) for m in matches)
    missing = sum(len(line.missing) for line in compiled)
    failed = [line for line in lines if line.ours.error]
    ours = sum(line.ours.kernels for line in compiled)
    theirs = sum(line.record.kernels for line in compiled)
    hbm = [
        line.ours.hbm_bytes / line.record.hbm_bytes for line in compiled if line.record.hbm_bytes
    ]
    text = [
        f"{kernels} kernels with matrix products pair with ours; {missing} do not (the other side fuses "
        "or factors them differently) and count only in their workload's total.",
        f"Kernels: {ours:,} of ours, {theirs:,} of XLA's. HBM bytes, ours over XLA's: median "
        f"{statistics.median(hbm) if hbm else 0:.2f}. Our estimates took "
        f"{sum(line.ours.seconds for line in compiled):.0f} s of processor time in all, "
        f"{max((line.ours.seconds for line in compiled), default=0):.1f} s for the longest.",
    ]
    text += [f"Does not compile: {line.record.name}: {line.ours.error}" for line in failed]
    return "\n".join(f"- {t}" for t in text) + "\n"


def _families(lines: Sequence[Line]) -> str:
    names = list(dict.fromkeys(line.record.family for line in lines))
    rows = []
    for name in names:
        family = [line for line in lines if line.record.family == name and not line.ours.error]
        products = _ratios([m for line in family for m in line.matches])
        whole = [line.ratio for line in family if line.ratio is not None]
        rows.append(
            (
                name,
                str(len(family)),
                _median(products),
                _median(whole),
                f"{min(whole):.2f}-{max(whole):.2f}" if whole else "",
                f"{sum(x.ours.kernels for x in family)} / {sum(x.record.kernels for x in family)}",
                _median([x.ours.hbm_bytes / max(1, x.record.hbm_bytes) for x in family]),
            )
        )
    titles = ("family", "workloads", "products", "workload", "range", "kernels", "HBM bytes")
    return "Medians of ratios; kernels are ours / XLA's.\n\n" + _table(titles, rows) + "\n"


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else ""


def _is_outlier(match: Match, clock: float) -> bool:
    low, high = _bounds(match, clock)
    return not low <= match.ratio <= high


def _bounds(match: Match, clock: float) -> tuple[float, float]:
    is_long = match.kind == PLAIN and match.each > LONG_DOT_SECONDS * clock
    return DOT_BOUNDS if is_long else FUSED_BOUNDS


def _slower(matches: Sequence[Match], clock: float) -> str:
    """How many kernels above their bounds would be within them without some causes."""
    counts: dict[str, list[int]] = {kind: [0, 0, 0] for kind in (PLAIN, FUSED, CONVOLUTION)}
    for match in matches:
        most = _bounds(match, clock)[1] * match.xla_cycles
        waits = match.causes.get("dma_in", 0) + match.causes.get("dma_out", 0)
        without_waits = match.cycles - waits
        without_launch = without_waits - match.causes.get("launch", 0)
        if match.cycles > most:
            count, kernels = counts[match.kind], len(match.names)
            count[0] += kernels
            count[1] += kernels if without_waits <= most else 0
            count[2] += kernels if without_waits > most >= without_launch else 0
    rows = [(kind, *map(str, (a, b, c, a - b - c))) for kind, (a, b, c) in counts.items()]
    titles = ("kernels above their bounds", "all", "without waits for DMA", "and launch", "other")
    return (
        "Kernels above their bounds that would be within them with operands and results in VMEM "
        "(*without waits for DMA*), and\nif launching took nothing as well:\n\n"
        + _table(titles, rows)
        + "\n"
    )


def _outliers(matches: Sequence[Match], clock: float, worst: int) -> str:
    size: Callable[[Match], float] = lambda m: abs(m.cycles - m.xla_cycles)  # noqa: E731
    found = sorted((m for m in matches if _is_outlier(m, clock)), key=size, reverse=True)
    rows = [
        (
            m.record,
            m.kind,
            str(m.count),
            f"{m.xla_cycles // m.count:,}",
            f"{m.cycles // m.count:,}",
            f"{m.ratio:.2f}",
            _causes(m),
            m.note,
        )
        for m in found[:worst]
    ]
    titles = ("workload", "kind", "n", "XLA", "ours", "ratio", "cycles went to", "our kernel")
    text = _table(titles, rows)
    return text + f"\n\n{max(0, len(found) - worst)} smaller ones are not shown.\n"


def _causes(match: Match) -> str:
    total = max(1, match.cycles)
    large = sorted(match.causes.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {cycles / total:.0%}" for name, cycles in large[:3])


def _workload_note() -> str:
    return (
        "Ours / XLA's. VMEM is the most that a kernel of ours holds, of XLA the results it keeps there "
        "and the largest kernel's scope.\n"
    )


def _workloads(lines: Sequence[Line]) -> str:
    rows = []
    for line in lines:
        ours, record = line.ours, line.record
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        rows.append(
            (
                record.name,
                ours.error.replace("|", "\\|") or f"{ours.cycles:,}",
                f"{record.cycles:,}" + ("*" if record.unestimated else ""),
                ratio,
                " ".join(f"{m.ratio:.2f}" for m in line.matches),
                f"{ours.kernels} / {record.kernels}",
                f"{ours.hbm_bytes / 1e6:.1f} / {record.hbm_bytes / 1e6:.1f}",
                f"{ours.vmem_bytes / 2**20:.1f} / {record.vmem_bytes / 2**20:.1f}",
            )
        )
    titles = (
        "workload", "cycles", "XLA (* in part)", "ratio", "of products", "kernels", "HBM MB", "VMEM MiB",
    )  # fmt: skip
    return _table(titles, rows) + "\n"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    right = ["---", *["---:"] * (len(titles) - 2), "---"]
    return "\n".join(f"| {' | '.join(line)} |" for line in (titles, right, *rows))
