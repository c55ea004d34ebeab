"""Collectives of more devices than a kernel can serve: in two levels, with the same values."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.passes.collectives import expander
from runtime.machines import MachineOptions
from runtime.slice_executable import SliceExecutable

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
EIGHT = "{{0,1,2,3,4,5,6,7}}"
TWICE_SIX = "{{0,3,4,8,9,11},{1,2,5,6,7,10}}"  # two levels of 3 and 2, ranks anywhere


def compiled(body: str, target: str, devices: int) -> SliceExecutable:
    text = f"HloModule m, replica_count={devices}\n{ADD}ENTRY main {{\n{body}\n}}\n"
    exe = tpuc.compile(text, target=target, machine=MachineOptions(cache=False))
    assert isinstance(exe, SliceExecutable)
    return exe


@pytest.mark.parametrize(
    ("target", "groups"), [("v5e:4x2", EIGHT), ("v5e:4x3", TWICE_SIX), ("v4:2x2x2", EIGHT)]
)
def test_two_levels_give_the_values_of_one(
    target: str, groups: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expander, "_MOST_RING", 4)
    members = [[int(n) for n in part.split(",")] for part in groups[2:-2].split("},{")]
    size, devices = len(members[0]), sum(map(len, members))
    exe = compiled(
        f"""x = f32[{size * 3},200] parameter(0)
a = f32[{size * 3},200] all-to-all(x), replica_groups={groups}, dimensions={{0}}
s = f32[3,200] reduce-scatter(x), replica_groups={groups}, dimensions={{0}}, to_apply=add
r = f32[{size * 3},200] all-reduce(x), replica_groups={groups}, to_apply=add
ROOT t = (f32[{size * 3},200], f32[3,200], f32[{size * 3},200]) tuple(a, s, r)""",
        target,
        devices,
    )
    kernels = [row for row in exe.text("hlo").splitlines() if " all-to-all" in row]
    assert kernels and not any(groups in row for row in kernels)
    x = np.random.default_rng(0).integers(-9, 9, (devices, size * 3, 200)).astype(np.float32)
    dealt, scattered, reduced = exe(x)
    for group in members:
        for rank, device in enumerate(group):
            own = slice(rank * 3, rank * 3 + 3)
            np.testing.assert_array_equal(dealt[device], np.concatenate(x[group, own]))
            np.testing.assert_array_equal(scattered[device], x[group, own].sum(0))
            np.testing.assert_array_equal(reduced[device], x[group].sum(0))


def test_groups_beyond_what_a_kernel_can_list_are_estimated() -> None:
    devices = 20 * 28
    exe = compiled(
        f"""x = f32[{devices},256] parameter(0)
a = f32[{devices},256] all-to-all(x), replica_groups={{}}, dimensions={{0}}
ROOT s = f32[1,256] reduce-scatter(a), replica_groups={{}}, dimensions={{0}}, to_apply=add""",
        "v5p:1x20x28",
        devices,
    )
    assert exe.estimate().cycles > 0
