"""How many lanes and sublanes a register has is written once."""

from __future__ import annotations

from tests.architecture.sources import modules, source

SIZES = ("LANES", "SUBLANES", "UNIT_DIM")


def test_lanes_and_sublanes_are_written_once() -> None:
    """A module that wants them imports them from `tpu_sim.isa.geometry`."""
    again = [
        f"{name}:{assigned.line}"
        for name in modules()
        if name != "tpu_sim.isa.geometry"
        for assigned in source(name).constants
        if any(found.lstrip("_") in SIZES for found in assigned.names)
    ]
    assert not again, "\n".join(again)
