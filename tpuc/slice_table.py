"""What a slice is, for people: its network, what its links carry, and where each number is from."""

from __future__ import annotations

from rich.table import Table

from runtime.topology import Topology

_AXES = "xyz"
Row = tuple[str, str, str]


def slice_facts(topology: Topology) -> list[Row]:
    """Name, value and provenance of each fact of a slice."""
    chip, torus = topology.chip, topology.torus
    links, clock = torus.links, chip.clock_hz
    peak = chip.ici_peak_bytes_per_cycle * clock / 1e9
    rate = chip.ici_bytes_per_cycle * clock / 1e9
    wrap = chip.spec["ici_wrap_whole"]
    rows = [
        ("chips", " x ".join(str(n) for n in topology.dims if n > 1) or "1", "asked for"),
        ("devices", str(len(topology.cores.chips)), f"{topology.devices_per_chip} a chip"),
    ]
    for axis, size, wraps in zip(_AXES, topology.dims, torus.wraps, strict=True):
        if size > 1:
            rows.append((f"axis {axis}", f"{size}, {'a ring' if wraps else 'a line'}", wrap))
    rows += [
        ("hosts", str(-(-topology.chip_count // chip.host_chips)), chip.spec["host_chips"]),
        ("links", f"{len(links) // 2} (a chip has {chip.ici_links})", chip.spec["ici_links"]),
        ("a link, one way", f"{peak:.1f} GB/s", chip.spec["ici_peak_bytes_per_cycle"]),
        ("as transfers get it", f"{rate:.1f} GB/s", chip.spec["ici_bytes_per_cycle"]),
        ("a hop", _time(chip.ici_hop_cycles / clock), chip.spec["ici_hop_cycles"]),
        (
            "a flag to a neighbour",
            _time(chip.ici_sync_cycles / clock),
            chip.spec["ici_sync_cycles"],
        ),
        ("bisection, one way", f"{torus.bisection_links * peak:,.0f} GB/s", "links times the rate"),
        (
            "HBM",
            f"{chip.hbm_bytes * len(topology.cores.chips) / 1e9:,.0f} GB",
            chip.spec["hbm_bytes"],
        ),
        ("bf16 peak", _peak(topology), "cores times their peak"),
    ]
    return rows


def slice_as_json(topology: Topology) -> dict[str, object]:
    """The facts as a JSON object."""
    return {
        name: {"value": value, "provenance": provenance}
        for name, value, provenance in slice_facts(topology)
    }


def slice_table(topology: Topology, name: str) -> Table:
    """The facts as a table."""
    table = Table(title=name, title_justify="left")
    for heading in ("slice", "value", "provenance"):
        table.add_column(heading)
    for row in slice_facts(topology):
        table.add_row(*row)
    return table


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"


def _peak(topology: Topology) -> str:
    chip = topology.chip
    flops = chip.device_peak_flops * len(topology.cores.chips)
    return f"{flops / 1e15:,.2f} PFLOP/s"
