"""Kernels that the two cores of a v5p share: values and cycles on both machines, and which are shared."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.hlo.dtypes import F32
from runtime.machines import MachineOptions
from tests.support.against_evaluator import check, random_values
from tpu_sim.machine.kernel_profile import profile_kernel

SMALL = "v5p{vmem=256KiB}"
ONE_CORE = "v5p{vmem=256KiB,cores_per_device=1}"
SUM = "s {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = f32[] add(x, y)\n}\n"
DOT = "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BODIES = {
    "elements and their places": """
  a = f32[301,300] parameter(0)
  i = f32[301,300] iota(), iota_dimension=0
  ROOT r = f32[301,300] multiply(a, i)""",
    "rows are reduced": """
  a = f32[300,150] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[300] reduce(a, z), dimensions={1}, to_apply=s""",
    "columns are reduced": """
  a = f32[150,600] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[600] reduce(a, z), dimensions={0}, to_apply=s""",
    "a transpose": """
  a = f32[260,310] parameter(0)
  ROOT r = f32[310,260] transpose(a), dimensions={1,0}""",
    "a pad": """
  a = f32[300,150] parameter(0)
  z = f32[] constant(7)
  ROOT r = f32[305,170] pad(a, z), padding=3_2x10_10""",
    "two results": """
  a = f32[256,300] parameter(0)
  n = f32[256,300] negate(a)
  t = f32[300,256] transpose(a), dimensions={1,0}
  ROOT r = (f32[256,300], f32[300,256]) tuple(n, t)""",
    "an update of whole tiles": """
  a = f32[5,256,384] parameter(0)
  u = f32[1,256,384] parameter(1)
  i = s32[] constant(3)
  z = s32[] constant(0)
  ROOT r = f32[5,256,384] dynamic-update-slice(a, u, i, z, z)""",
    "an update within tiles": """
  a = f32[300,384] parameter(0)
  u = f32[250,380] parameter(1)
  i = s32[] constant(3)
  z = s32[] constant(1)
  ROOT r = f32[300,384] dynamic-update-slice(a, u, i, z)""",
    "a copy": """
  a = f32[1024,1024] parameter(0)
  ROOT r = f32[1024,1024] copy(a)""",
    "a product": """
  a = f32[256,128] parameter(0)
  b = f32[128,256] parameter(1)
  ROOT r = f32[256,256] """
    + DOT,
    "a convolution whose kernel each core prepares": """
  a = f32[1,3,17,1] parameter(0)
  b = f32[5,3,1,2] parameter(1)
  ROOT r = f16[1,8,16,2] convolution(a, b), window={size=5x3 pad=2_5x0_1 lhs_dilate=2x1},
    dim_labels=b01f_01io->b01f""",
    "a product whose sum is cut": """
  a = f32[64,2048] parameter(0)
  b = f32[2048,256] parameter(1)
  ROOT r = f32[64,256] """
    + DOT,
}


def text_of(body: str) -> str:
    return f"HloModule m\n{SUM}ENTRY e {{{body}\n}}\n"


@pytest.mark.parametrize("name", BODIES)
def test_values_and_cycles(name: str) -> None:
    """Values are whole numbers: sums do not round, whoever adds them up."""
    text = text_of(BODIES[name])
    shapes = [port.shape.dims for port in tpuc.compile(text, SMALL).inputs]
    args = [random_values(F32, dims, n, whole=True) for n, dims in enumerate(shapes)]
    check(text, args, target=SMALL)
    runs = [
        tpuc.compile(text, SMALL, machine=MachineOptions(machine=machine, cache=False))
        for machine in ("numpy", "llvm")
    ]
    cycles = set()
    for run in runs:
        run(*args)
        cycles.add(run.report.cycles)
    assert cycles == {runs[0].estimate().cycles}


def test_a_kernel_that_is_shared_takes_little_more_than_half() -> None:
    text = text_of(BODIES["a product"].replace("256", "2048").replace("128", "1024"))
    shared, alone = (tpuc.compile(text, target) for target in ("v5p", "v5p{cores_per_device=1}"))
    assert [k.cores for k in shared.program.kernels.values()] == [2]
    assert [k.cores for k in alone.program.kernels.values()] == [1]
    ratio = shared.estimate().cycles / alone.estimate().cycles
    assert 0.5 < ratio < 0.65
    report = shared.estimate()
    assert 0.5 < report.mxu_utilisation <= report.mxu_busy < 1


def test_a_profile_is_of_the_first_core() -> None:
    exe = tpuc.compile(text_of(BODIES["a product"].replace("256", "2048")), "v5p")
    (kernel,) = exe.program.kernels.values()
    (call,) = exe.estimate().kernels
    profile = profile_kernel(kernel, exe.device.chip)
    assert profile.is_whole and profile.cycles == call.cycles
    assert {cause.label: n for cause, n in profile.causes.items() if n} == {
        label: n for label, n in call.causes.items() if n
    }


def test_what_depends_on_other_blocks_is_not_shared() -> None:
    """A loop that stays in VMEM is one core's, as is a kernel whose only blocks cut a sum."""
    body = """
  a = f32[8,65536] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[8] reduce(a, z), dimensions={1}, to_apply=s"""
    program = tpuc.compile(text_of(body), SMALL).program
    assert [k.cores for k in program.kernels.values()] == [1]


def test_the_text_of_a_program_says_who_shares_a_kernel() -> None:
    exe = tpuc.compile(text_of(BODIES["a product"].replace("256", "2048")), "v5p")
    (kernel,) = exe.program.kernels.values()
    assert kernel.cores == 2
    assert " cores 2 spill " in exe.text("tpu")
    assert "score s" in exe.text("tpu")
    assert " cores 2 flops " in exe.text("llo")


def test_a_device_counts_with_all_of_its_cores() -> None:
    x = np.ones((4096, 2048), np.float32)
    add = tpuc.compile(
        "HloModule m\nENTRY e {\n  a = f32[4096,2048] parameter(0)\n  ROOT r = f32[4096,2048] add(a, a)\n}\n",
        "v5p",
    )
    add(x)
    assert 0.5 < add.report.hbm_utilisation < 1
    (kernel,) = add.report.kernels
    assert kernel.roofline == "hbm"
    assert 0.5 < kernel.roofline_share < 1
