"""The ranges of a chip's parameters: what a machine can be built for and a program be made for.

How much of what instructions name a chip may have follows from the width of the field that names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tpu_sim.isa.encoding import MOST_IN_BUNDLE, operand_range
from tpu_sim.isa.geometry import GRANULE_BYTES, UNIT_DIM
from tpu_sim.isa.instruction import Kind

MOST_UNITS = operand_range(Kind.UNIT).stop
"""128x128 units of the MXUs."""
MOST_SREGS = operand_range(Kind.SS).stop
MOST_RESULTS = 1 << 12
"""Results in a unit's queue: the machines keep of each when it may be popped."""
_LEAST_RESULTS = 4
"""Two passes: one's results are popped while the next one is under way."""
_MXU_DIMS = (128, 256)
_MULTIPLES = {"hbm_bytes": GRANULE_BYTES, "vmem_bytes": 4096}
_CYCLES = (0, 1 << 20)
_HELD = (1, 1 << 16)
_RATE = (1e-3, 1e9)
_ENERGY = (0, 1e6)
_RANGES: dict[str, tuple[float, float]] = {
    "clock_hz": (1e6, 1e12),
    "cores_per_device": (1, 2),
    "devices_per_chip": (1, 2),
    "mxu_count": (1, MOST_UNITS),
    "matmul_cycles": _HELD,
    "int8_rate": (0, 1 << 10),
    "vregs": (8, operand_range(Kind.VS).stop),
    "vmasks": (4, operand_range(Kind.MS).stop),
    "sregs": (16, MOST_SREGS),
    "mrf_entries": (_LEAST_RESULTS, MOST_RESULTS),
    "eup_entries": (1, 1 << 20),
    "xlu_entries": (1, 1 << 20),
    "hbm_bytes": (1 << 20, GRANULE_BYTES * operand_range(Kind.I32).stop),
    "hbm_peak_bytes_per_cycle": _RATE,
    "hbm_bytes_per_cycle": _RATE,
    "hbm_copy_efficiency": (1e-3, 1),
    "mxu_sustained": (1e-3, 1),
    "dma_setup_cycles": _CYCLES,
    "dma_latency_cycles": _CYCLES,
    "dma_issue_cycles": _CYCLES,
    "dma_wait_cycles": _CYCLES,
    "vmem_bytes": (1 << 16, 1 << 32),
    "smem_words": (1 << 10, 1 << 26),
    "load_indexed_cycles": _HELD,
    "store_indexed_cycles": _HELD,
    "loop_overhead_cycles": _HELD,
    "call_overhead_cycles": _CYCLES,
    "core_sync_cycles": _CYCLES,
    "ici_dimensions": (1, 3),
    "ici_links": (0, 6),
    "ici_peak_bytes_per_cycle": _RATE,
    "ici_bytes_per_cycle": _RATE,
    "ici_hop_cycles": _CYCLES,
    "ici_sync_cycles": _CYCLES,
    "ici_setup_cycles": _CYCLES,
    "ici_wrap_size": (1, 1 << 10),
    "ici_wrap_whole": (0, 1),
    "host_chips": (1, 1 << 10),
    "cloud_units": (0, 64),
    "most_chips": (1, 1 << 15),
    "mac_picojoules": _ENERGY,
    "vector_picojoules": _ENERGY,
    "hbm_picojoules_per_byte": _ENERGY,
    "ici_picojoules_per_byte": _ENERGY,
    "idle_watts": (0, 1e5),
}
_SLOTS = (1, 32)
_MOST_XLU_SLOTS = 4
"""One more than chip files have (assumed)."""
_LATENCIES = (1, 1 << 14)
_WHOLE_TYPE = "int"


def complaints(
    scalars: Mapping[str, tuple[float, str]], tables: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    """What is wrong with numbers that are out of their ranges: ``parameter KEY: VALUE, want ..``.

    `scalars` are value and type by name.
    """
    for key, (value, kind) in scalars.items():
        if key in _RANGES:
            yield from _complaint(key, value, _RANGES[key], kind == _WHOLE_TYPE)
    for key, value in tables["slots"].items():
        most = _MOST_XLU_SLOTS if key == "xlu" else _SLOTS[1]
        yield from _complaint(f"slots.{key}", value, (_SLOTS[0], most), True)
    for key, value in tables["latencies"].items():
        yield from _complaint(f"latencies.{key}", value, _LATENCIES, True)
    values = {key: value for key, (value, _) in scalars.items()}
    if values["mxu_dim"] not in _MXU_DIMS:
        yield f"parameter mxu_dim: {values['mxu_dim']:.15g}, want {' or '.join(map(str, _MXU_DIMS))}"
    for key, unit in _MULTIPLES.items():
        if values[key] % unit:
            below = values[key] // unit * unit
            near = " or ".join(f"{n:.15g}" for n in (below, below + unit) if n > 0)
            yield f"parameter {key}: {values[key]:.15g}, want a multiple of {unit}: {near}"
    for link in ("hbm", "ici"):
        rate, peak = f"{link}_bytes_per_cycle", f"{link}_peak_bytes_per_cycle"
        if values[rate] > values[peak]:
            yield f"parameter {rate}: {values[rate]:.15g}, want at most {peak}"
    mxus, slots = values["mxu_count"], tables["slots"].get("mxu", 0)
    if slots < mxus:
        yield f"parameter slots.mxu: {slots:.15g}, want {mxus:.15g} or more: one for each MXU"
    most = MOST_UNITS // units_of_mxu(values["mxu_dim"])
    if mxus > most:
        yield (
            f"parameter mxu_count: {mxus:.15g}, want 1 to {most} of this mxu_dim: instructions name "
            f"{MOST_UNITS} units of {UNIT_DIM}x{UNIT_DIM}"
        )
    total = sum(tables["slots"].values())
    if total > MOST_IN_BUNDLE:
        yield f"table slots: {total:.15g} in all, want at most {MOST_IN_BUNDLE}: a bundle holds no more"


_UNITS = {"clock_hz": (" Hz", ", such as 940MHz or 1.5GHz")}
"""What a number without a unit counts, and how people would write it."""


def units_of_mxu(mxu_dim: float) -> int:
    """128x128 units of an MXU of so many rows and columns."""
    return int(mxu_dim // UNIT_DIM) ** 2


def _complaint(
    key: str, value: float, limits: tuple[float, float], is_whole: bool
) -> Iterator[str]:
    low, high = limits
    if is_whole and value != int(value):
        yield f"parameter {key}: {value:.15g}, want a whole number"
    elif not low <= value <= high:
        unit, example = _UNITS.get(key, ("", ""))
        yield f"parameter {key}: {value:.15g}{unit}, want {low:.15g} to {high:.15g}{unit}{example}"
