"""JAX compiles for slices that no client has; it runs on the CPU meanwhile."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.support.jax_programs.harness import raises, run_checks


def compiled(name: str) -> Any:
    """A product with its sum over the rows, which all devices of the slice share."""
    topology = topologies.get_topology_desc(name, "tpuc")
    mesh = topologies.make_mesh(topology, (len(topology.devices),), ("x",))
    rows = jax.ShapeDtypeStruct((512, 256), jnp.bfloat16, sharding=NamedSharding(mesh, P("x")))
    return jax.jit(lambda x: (x @ x.T).sum(0)).lower(rows).compile()


def check_devices_are_those_of_the_slice() -> None:
    devices = topologies.get_topology_desc("v5p:2x2x2", "tpuc").devices
    assert [tuple(d.coords) for d in devices[:3]] == [(0, 0, 0), (1, 0, 0), (0, 1, 0)]
    assert {d.device_kind for d in devices} == {"TPU v5"}
    assert {d.platform for d in devices} == {"tpu"}
    assert jax.default_backend() == "cpu"


def check_without_a_name_it_is_the_target() -> None:
    (device,) = topologies.get_topology_desc("", "tpuc").devices
    assert device.device_kind == "TPU v6 lite"


def check_programs_are_partitioned_and_costed() -> None:
    one, many = compiled("v5e:1x1"), compiled("v5e:4x4")
    assert many.cost_analysis()["flops"] < one.cost_analysis()["flops"] / 15
    assert many.memory_analysis().argument_size_in_bytes == 32 * 256 * 2
    assert one.memory_analysis().argument_size_in_bytes == 512 * 256 * 2
    assert "num_partitions=16" in many.as_text()


def check_options_of_hosts_are_taken_and_others_refused() -> None:
    bounds = {"chips_per_host_bounds": (2, 2, 1), "num_slices": 1}
    assert len(topologies.get_topology_desc("v5e:4x4", "tpuc", **bounds).devices) == 16
    refused("num_slices=2", "v5e:4x4", num_slices=2)
    refused("no option 'wrap'", "v5e:4x4", wrap="true")
    refused("unknown chip 'v9'", "v9:4x4")


def refused(words: str, name: str, **options: object) -> None:
    raises(
        jax.errors.JaxRuntimeError,
        words,
        lambda: topologies.get_topology_desc(name, "tpuc", **options),
    )


if __name__ == "__main__":
    run_checks(dict(globals()))
