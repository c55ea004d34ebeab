"""Chakra traces: their bytes as Chakra's tools read them, and what they say of a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuc
from runtime.slice_executable import SliceExecutable

pytest.importorskip("google.protobuf")

MODEL = """HloModule m, replica_count=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[64,128] parameter(0)
  w = f32[128,128] constant({...})
  y = f32[64,128] dot(x, x2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[128,128] all-gather(y), replica_groups={{0,1},{2,3}}, dimensions={0}
  p = f32[128,128] collective-permute(g), source_target_pairs={{0,1},{1,2}}
  ROOT r = f32[32,128] reduce-scatter(p), replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=add
}
""".replace("  w = f32[128,128] constant({...})\n", "  x2 = f32[128,128] parameter(1)\n")


def messages(path: Path) -> list[Any]:
    """Read as Chakra's protolib does: a varint of the length, then the message."""
    from runtime.chakra import chakra_schema

    schema, data, found, at = chakra_schema(), path.read_bytes(), [], 0
    while at < len(data):
        size = shift = 0
        while True:
            size |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if not data[at - 1] & 128:
                break
        kind = schema.Node if found else schema.GlobalMetadata
        found.append(kind.FromString(data[at : at + size]))
        at += size
    return found


def attributes(node: Any) -> dict[str, Any]:
    return {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}


def test_every_call_of_every_device(tmp_path: Path) -> None:
    exe = tpuc.compile(MODEL, target="v5e:2x2")
    assert isinstance(exe, SliceExecutable)
    exe(np.ones((4, 64, 128), np.float32), np.ones((4, 128, 128), np.float32))
    assert exe.report is not None
    exe.write_chakra(tmp_path, exe.report)
    groups = json.loads((tmp_path / "comm_groups.json").read_text())
    assert sorted(groups.values()) == [[0, 1], [0, 1, 2, 3], [2, 3]]
    kinds = {0: [4, 7, 5, 7], 1: [4, 7, 5, 6, 7], 2: [4, 7, 6, 7], 3: [4, 7, 7]}
    for device, wanted in kinds.items():
        about, *nodes = messages(tmp_path / f"trace.{device}.et")
        assert about.version
        assert sorted(n.type for n in nodes) == sorted(wanted)
        for node, before in zip(nodes[1:], nodes, strict=False):
            assert before.id in node.data_deps or before.data_deps == node.data_deps
        gather, scatter = (n for n in nodes if n.type == 7)
        told = attributes(gather)
        assert (told["comm_type"], told["comm_size"]) == (2, 64 * 128 * 4)
        assert groups[told["pg_name"]] == ([0, 1] if device < 2 else [2, 3])
        assert attributes(scatter)["comm_type"] == 7
        total = sum(attributes(node)["duration_ns"] for node in nodes if node.type != 6)
        assert total <= exe.cores[device].seconds(exe.device.chip.clock_hz) * 1e9 + len(nodes)
        dot = next(node for node in nodes if node.type == 4)
        assert attributes(dot)["num_ops"] == 2 * 64 * 128 * 128
