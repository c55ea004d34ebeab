"""The shape of a register, of a row, of a granule and of a host's chunk is written once each."""

from __future__ import annotations

from tests.architecture.sources import modules, source

HOMES = {
    "LANES": "tpu_sim.isa.geometry",
    "SUBLANES": "tpu_sim.isa.geometry",
    "UNIT_DIM": "tpu_sim.isa.geometry",
    "WORD_BYTES": "tpu_sim.isa.geometry",
    "ROW_BYTES": "tpu_sim.isa.geometry",
    "VREG_BYTES": "tpu_sim.isa.geometry",
    "GRANULE_BYTES": "tpu_sim.isa.geometry",
    "CHUNK_BYTES": "tpu_sim.jit.lanes",
}


def test_sizes_are_written_once() -> None:
    """A module that wants one imports it from its home."""
    again = [
        f"{name}:{assigned.line}"
        for name in modules()
        for assigned in source(name).constants
        for found in assigned.names
        if HOMES.get(found.lstrip("_"), name) != name
    ]
    assert not again, "\n".join(again)
