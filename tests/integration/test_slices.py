"""Programs of several devices: every collective on a slice, against the evaluator of as many devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

import tpuc
from compiler.frontends.models import parse_model
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.evaluator import evaluate_devices
from compiler.options import CompileOptions
from runtime.machines import MachineOptions
from runtime.slice_executable import SliceExecutable
from tpu_sim.machine.faults import DeadlockFault

Array = npt.NDArray[np.generic]
TARGET = "v5e:2x2"
ADD = "add { a = T[] parameter(0) b = T[] parameter(1) ROOT c = T[] OP(a, b) }\n"


def text(
    body: str, dtype: str = "f32", operation: str = "add", header: str = "replica_count=4"
) -> str:
    add = ADD.replace("T[]", f"{dtype}[]").replace("OP", operation)
    return f"HloModule m, {header}\n{add}ENTRY main {{\n{body.replace('T[', f'{dtype}[')}\n}}\n"


def compiled(source: str, machine: str = "llvm", target: str = TARGET) -> SliceExecutable:
    exe = tpuc.compile(
        source, target=target, precision="highest", machine=MachineOptions(machine=machine)
    )
    assert isinstance(exe, SliceExecutable)
    return exe


def values(dtype: str, dims: Sequence[int]) -> Array:
    rng = np.random.default_rng(1)
    wanted = BY_NAME[dtype].numpy
    if dtype == "pred":
        return rng.integers(0, 2, dims).astype(np.bool_)
    return rng.integers(-9, 9, dims).astype(wanted)


def check(source: str, *arguments: Array, machine: str = "llvm") -> SliceExecutable:
    exe = compiled(source, machine)
    got = exe(*arguments)
    each = [[argument[device] for argument in arguments] for device in range(4)]
    want = evaluate_devices(parse_model(source), each)
    for number, result in enumerate(got):
        expected = np.stack([device[number] for device in want])
        np.testing.assert_array_equal(np.asarray(result).astype(expected.dtype), expected)
    return exe


COLLECTIVES = {
    "all-gather": "x = T[6,24] parameter(0)\nROOT r = T[6,96] all-gather(x), replica_groups={}, "
    "dimensions={1}",
    "gather in pairs": "x = T[6,24] parameter(0)\n"
    "ROOT r = T[12,24] all-gather(x), replica_groups={{0,3},{2,1}}, dimensions={0}",
    "all-reduce": "x = T[6,24] parameter(0)\nROOT r = T[6,24] all-reduce(x), replica_groups={}, to_apply=add",
    "large all-reduce": "x = T[96,300] parameter(0)\n"
    "ROOT r = T[96,300] all-reduce(x), replica_groups={}, to_apply=add",
    "all-reduce in place": "x = T[256,128] parameter(0)\n"
    "ROOT r = T[256,128] all-reduce(x), replica_groups={}, to_apply=add",
    "all-reduce in pairs": "x = T[96,300] parameter(0)\n"
    "ROOT r = T[96,300] all-reduce(x), replica_groups={{1,2},{0,3}}, to_apply=add",
    "all-reduce in unequal groups": "x = T[6,24] parameter(0)\n"
    "ROOT r = T[6,24] all-reduce(x), replica_groups={{2},{3,0,1}}, to_apply=add",
    "reduce-scatter": "x = T[6,24] parameter(0)\n"
    "ROOT r = T[6,6] reduce-scatter(x), replica_groups={{3,1,0,2}}, dimensions={1}, to_apply=add",
    "all-to-all": "x = T[8,20] parameter(0)\n"
    "ROOT r = T[8,20] all-to-all(x), replica_groups={{0,2,1,3}}, dimensions={1}",
    "permute": "x = T[6,24] parameter(0)\n"
    "ROOT r = T[6,24] collective-permute(x), source_target_pairs={{0,3},{3,1},{2,2}}",
    "send and receive": (
        "x = T[6,24] parameter(0)\nt = token[] after-all()\n"
        "s = (T[6,24], u32[], token[]) send(x, t), channel_id=3, PAIRS\n"
        "d = token[] send-done(s), channel_id=3\n"
        "v = (T[6,24], u32[], token[]) recv(d), channel_id=3, PAIRS\n"
        "w = (T[6,24], token[]) recv-done(v), channel_id=3\n"
        "ROOT r = T[6,24] get-tuple-element(w), index=0"
    ).replace("PAIRS", "frontend_attributes={_xla_send_recv_source_target_pairs={{0,2},{2,3}}}"),
    "broadcast": "x = T[6,24] parameter(0)\n"
    "ROOT r = T[6,24] collective-broadcast(x), replica_groups={{2,0,3}}",
    "broadcast to nobody": "x = T[6,24] parameter(0)\n"
    "ROOT r = T[6,24] collective-broadcast(x), replica_groups={{0},{2},{3}}",
    "permute of one device": "x = T[6,24] parameter(0)\n"
    "ROOT r = T[6,24] collective-permute(x), source_target_pairs={{0,0}}",
}


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s32"])
def test_a_collective_gives_each_device_what_it_should(name: str, dtype: str) -> None:
    body = COLLECTIVES[name]
    dims = [int(n) for n in body.split("[")[1].split("]")[0].split(",")]
    check(text(body, dtype), values(dtype, (4, *dims)))


@pytest.mark.parametrize(
    ("dtype", "operation"),
    [
        ("pred", "or"),
        ("u8", "add"),
        ("f32", "maximum"),
        ("u32", "minimum"),
        ("s64", "add"),
        ("s32", "xor"),
    ],
)
def test_reductions_of_all_kinds(dtype: str, operation: str) -> None:
    body = COLLECTIVES["large all-reduce"]
    check(text(body, dtype, operation), values(dtype, (4, 96, 300)))


def test_a_start_and_its_done_and_numbers_of_replicas() -> None:
    body = """x = T[6,24] parameter(0)
      s = (T[6,24], T[24,24]) all-gather-start(x), replica_groups={}, dimensions={0}
      n = T[6,24] negate(x)
      d = T[24,24] all-gather-done(s)
      i = u32[] replica-id()
      ROOT r = (T[24,24], T[6,24], u32[]) tuple(d, n, i)"""
    exe = check(text(body), values("f32", (4, 6, 24)))
    assert exe.collectives == [
        {"kind": "all-gather", "operand_bytes": 576, "result_bytes": 2304, "group": 4}
    ]


def test_a_collective_in_an_async_start_is_listed_and_links_are_counted() -> None:
    source = text("""x = T[8,24] parameter(0)
      s = ((T[8,24]), T[8,24]) async-start(x), calls=wrapped
      ROOT d = T[8,24] async-done(s), calls=wrapped""").replace(
        "ENTRY",
        "wrapped { w = f32[8,24] parameter(0)\n"
        "ROOT a = f32[8,24] all-to-all(w), replica_groups={{0,1,2,3}}, dimensions={0} }\nENTRY",
    )
    exe = check(source, values("f32", (4, 8, 24)))
    assert [(c["kind"], c["operand_bytes"], c["group"]) for c in exe.collectives] == [
        ("all-to-all", 768, 4)
    ]
    assert exe.report is not None and exe.report.links is not None
    slot = 2 * 512  # a slot of 2 rows is a tile of 2 x 128 words
    assert exe.report.links.link_bytes == 4 * (1 + 1 + 2) * slot
    assert exe.report.links.core_cycles == tuple(core.cycles for core in exe.cores)


def test_replicas_of_partitions_have_numbers_of_both() -> None:
    body = """x = T[8] parameter(0)
      i = u32[] replica-id()
      p = u32[] partition-id()
      ROOT r = (T[8], u32[], u32[]) tuple(x, i, p)"""
    exe = compiled(text(body, header="replica_count=2, num_partitions=2"))
    x = values("f32", (2, 8))
    got, replicas, _ = exe(x)
    np.testing.assert_array_equal(got, x)
    assert list(replicas) == [0, 1]


@pytest.mark.parametrize(
    "row",
    [
        "T[16] all-gather(x), channel_id=1, replica_groups={{1,0}}, dimensions={0}",
        "T[1] reduce-scatter(x), channel_id=1, replica_groups={}, dimensions={0}, to_apply=add",
        "T[8] all-gather(x), channel_id=2, replica_groups=mesh['a'=2,'b'=2] {'b'}, dimensions={0}, "
        "use_global_device_ids=true",
    ],
)
def test_a_channel_joins_all_partitions_of_its_replicas(row: str) -> None:
    """A module partitioned already: the shardings of its borders cut and join global arrays."""
    body = f"""x = T[4] parameter(0), sharding={{devices=[2]<=[2]}}
      y = {row}
      ROOT r = T[1,{row[2 : row.index("]")]}] reshape(y), sharding={{devices=[2,1]<=[2]}}"""
    source = text(body, header="replica_count=2, num_partitions=2").replace("main", "main_spmd")
    x = values("f32", (2, 8))
    (got,) = compiled(source)(x)
    want = evaluate_devices(parse_model(source), [[piece] for piece in x.reshape(4, 4)])
    np.testing.assert_array_equal(got.reshape(4, -1), np.stack([w[0][0] for w in want]))


PARTITIONED = """HloModule m, num_partitions=4
ENTRY main {
  x = f32[10,64] parameter(0), sharding={devices=[4,1]<=[4]}
  w = f32[64,32] parameter(1), sharding={devices=[1,2,2]<=[4] last_tile_dim_replicate}
  ROOT d = f32[10,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    sharding={devices=[2,2]<=[4]}
}
"""


def test_global_arrays_are_cut_and_put_together() -> None:
    x, w = values("f32", (10, 64)), values("f32", (64, 32))
    exe = compiled(PARTITIONED)
    assert [shape.dims for shape in exe.argument_shapes] == [(10, 64), (64, 32)]
    (got,) = exe(x, w)
    np.testing.assert_array_equal(got, x @ w)


def test_machines_and_estimates_agree_on_cycles() -> None:
    source = text(COLLECTIVES["large all-reduce"])
    x = values("f32", (4, 96, 300))
    found = [[core.cycles for core in check(source, x, machine=m).cores] for m in ("llvm", "numpy")]
    assert found[0] == found[1]
    assert set(found[0]) == {compiled(source).estimate().cycles}


@pytest.mark.parametrize(
    ("body", "bytes_sent"),
    [
        (
            "x = T[512,2048] parameter(0)\n"
            "ROOT r = T[4096,2048] all-gather(x), replica_groups={}, dimensions={0}",
            512 * 2048 * 4 * 7 / 2,
        ),
        (
            "x = T[2048,2048] parameter(0)\n"
            "ROOT r = T[2048,2048] all-reduce(x), replica_groups={}, to_apply=add",
            2048 * 2048 * 4 * 7 / 8,
        ),
    ],
)
def test_large_collectives_come_near_the_bound_of_the_ring(body: str, bytes_sent: float) -> None:
    exe = compiled(text(body, header="replica_count=8"), target="v5e:4x2")
    chip = exe.device.chip
    bound = bytes_sent / chip.ici_bytes_per_cycle
    assert bound <= exe.estimate().cycles < bound / 0.9


def test_collectives_that_do_not_match_are_named() -> None:
    body = """x = T[6,24] parameter(0)
      i = u32[] replica-id()
      zero = u32[] constant(0)
      is = pred[] compare(i, zero), direction=EQ
      ROOT r = T[6,24] conditional(is, x, x), true_computation=yes, false_computation=no"""
    source = text(body).replace(
        "ENTRY",
        "yes { y = f32[6,24] parameter(0)\n"
        "ROOT g = f32[6,24] all-reduce(y), replica_groups={}, to_apply=add }\n"
        "no { z = f32[6,24] parameter(0) ROOT n = f32[6,24] negate(z) }\nENTRY",
    )
    with pytest.raises(DeadlockFault, match="core 0 in"):
        compiled(source)(values("f32", (4, 6, 24)))


def test_small_sums_are_one_and_each_result_is_its_own() -> None:
    body = (
        "x = T[64,24] parameter(0)\ny = T[100] parameter(1)\ns = T[] parameter(2)\n"
        "a = T[64,24] all-reduce(x), replica_groups={}, to_apply=add\n"
        "b = T[100] all-reduce(y), replica_groups={}, to_apply=add\n"
        "c = T[] all-reduce(s), replica_groups={}, to_apply=add\n"
        "ROOT r = (T[64,24], T[100], T[]) tuple(a, b, c)"
    )
    arrays = [values("f32", (4, *dims)) for dims in ((64, 24), (100,), ())]
    exe = check(text(body), *arrays)
    kinds = [kernel.note.split()[-1] for kernel in exe.program.kernels.values()]
    assert kinds.count("all-gather") == 1


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
def test_small_gathers_are_one_and_each_result_is_its_own(dtype: str) -> None:
    body = (
        "x = T[16,24] parameter(0)\ny = T[3,100] parameter(1)\nz = T[2,3,5] parameter(2)\n"
        "a = T[16,96] all-gather(x), replica_groups={}, dimensions={1}\n"
        "b = T[3,400] all-gather(y), replica_groups={}, dimensions={1}\n"
        "c = T[2,12,5] all-gather(z), replica_groups={}, dimensions={1}\n"
        "ROOT r = (T[16,96], T[3,400], T[2,12,5]) tuple(a, b, c)"
    )
    arrays = [values(dtype, (4, *dims)) for dims in ((16, 24), (3, 100), (2, 3, 5))]
    exe = check(text(body, dtype), *arrays)
    kinds = [kernel.note.split()[-1] for kernel in exe.program.kernels.values()]
    assert kinds.count("all-gather") == 1


@pytest.mark.parametrize(("dtype", "operation"), [("f32", "add"), ("s32", "maximum")])
def test_small_scattered_sums_are_one_and_each_result_is_its_own(
    dtype: str, operation: str
) -> None:
    body = (
        "x = T[64,24] parameter(0)\ny = T[100,3] parameter(1)\nz = T[4] parameter(2)\n"
        "a = T[16,24] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=add\n"
        "b = T[25,3] reduce-scatter(y), replica_groups={}, dimensions={0}, to_apply=add\n"
        "c = T[1] reduce-scatter(z), replica_groups={}, dimensions={0}, to_apply=add\n"
        "ROOT r = (T[16,24], T[25,3], T[1]) tuple(a, b, c)"
    )
    arrays = [values(dtype, (4, *dims)) for dims in ((64, 24), (100, 3), (4,))]
    exe = check(text(body, dtype, operation), *arrays)
    kinds = [kernel.note.split()[-1] for kernel in exe.program.kernels.values()]
    assert kinds.count("reduce-scatter") == 1


def test_a_receive_without_its_send_is_refused() -> None:
    body = (
        "t = token[] after-all()\nv = (f32[6], u32[], token[]) recv(t), channel_id=3, "
        "frontend_attributes={_xla_send_recv_source_target_pairs={{0,2}}}\n"
        "w = (f32[6], token[]) recv-done(v), channel_id=3\nROOT r = f32[6] get-tuple-element(w), index=0"
    )
    with pytest.raises(tpuc.UnsupportedError, match="%v: 0 sends of channel 3"):
        compiled(text(body))


RING = "{{0,1},{1,3},{3,2},{2,0}}"
HALVES = f"""HloModule m, replica_count=4
condition {{
  s = (s32[], f32[64,512], f32[64,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s32[], f32[64,512], f32[64,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[64,512] get-tuple-element(s), index=1
  y = f32[64,512] get-tuple-element(s), index=2
  p = f32[64,512] collective-permute(x), source_target_pairs={RING}
  t = f32[64,512] add(x, y)
  ROOT r = (s32[], f32[64,512], f32[64,512]) tuple(j, p, t)
}}
ENTRY main {{
  x = f32[64,512] parameter(0)
  y = f32[64,512] parameter(1)
  w = f32[512,512] parameter(2)
  zero = s32[] constant(0)
  z = (s32[], f32[64,512], f32[64,512]) tuple(zero, x, y)
  l = (s32[], f32[64,512], f32[64,512]) while(z), condition=condition, body=body
  a = f32[64,512] get-tuple-element(l), index=1
  b = f32[64,512] get-tuple-element(l), index=2
  p = f32[64,512] collective-permute(y), source_target_pairs={RING}
  q = f32[64,512] collective-permute(a), source_target_pairs={{{{2,0}},{{0,2}},{{1,3}}}}
  d = f32[64,512] dot(b, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  e = f32[64,512] add(d, p)
  ROOT r = (f32[64,512], f32[64,512]) tuple(e, q)
}}
"""


@pytest.mark.parametrize("machine", ["llvm", "numpy"])
def test_permutes_in_halves_bring_what_whole_ones_do(machine: str) -> None:
    arguments = [values("f32", (4, *dims)) for dims in ((64, 512), (64, 512), (512, 512))]
    exe = check(HALVES, *arguments, machine=machine)
    assert exe.text("hlo").count(" collective-permute-start(") == 3


def test_what_a_permute_hides_behind_is_not_waited_for() -> None:
    arguments = [values("f32", (4, *dims)) for dims in ((64, 512), (64, 512), (512, 512))]
    cycles = []
    for skip in ((), ("latency-hiding",)):
        options = CompileOptions(precision="highest", skip=skip)
        exe = tpuc.compile(HALVES, target=TARGET, options=options)
        exe(*arguments)
        cycles.append(exe.report.cycles)
    assert cycles[0] < 0.9 * cycles[1]


GATHERS = """HloModule m, replica_count=4
ENTRY main {
  x = f32[64,256] parameter(0)
  w = f32[256,256] parameter(1)
  g = f32[256,256] all-gather(x), replica_groups={}, dimensions={0}
  h = f32[128,256] all-gather(x), replica_groups={{0,3},{2,1}}, dimensions={0}
  d = f32[64,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = f32[64,256] negate(d)
  ROOT r = (f32[256,256], f32[128,256], f32[64,256]) tuple(g, h, n)
}
"""


@pytest.mark.parametrize("machine", ["llvm", "numpy"])
def test_gathers_in_halves_bring_what_whole_ones_do(machine: str) -> None:
    arguments = [values("f32", (4, *dims)) for dims in ((64, 256), (256, 256))]
    exe = check(GATHERS, *arguments, machine=machine)
    assert exe.text("hlo").count(" async-start(") == 2


ALL_TO_ALLS = """HloModule m, replica_count=4
ENTRY main {
  x = f32[4,64,256] parameter(0)
  y = f32[64,256] parameter(1)
  w = f32[256,256] parameter(2)
  g = f32[4,64,256] all-to-all(x), replica_groups={}, dimensions={0}
  d = f32[64,256] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[64,256] negate(d)
  two = f32[4,64,256] add(x, x)
  h = f32[4,64,256] all-to-all(two), replica_groups={{3,1,0,2}}, dimensions={0}
  ROOT r = (f32[4,64,256], f32[4,64,256], f32[64,256]) tuple(g, h, e)
}
"""


@pytest.mark.parametrize("machine", ["llvm", "numpy"])
def test_all_to_alls_in_halves_bring_what_whole_ones_do(machine: str) -> None:
    arguments = [values("f32", (4, *dims)) for dims in ((4, 64, 256), (64, 256), (256, 256))]
    exe = check(ALL_TO_ALLS, *arguments, machine=machine)
    assert exe.text("hlo").count(" async-start(") == 2
    whole = tpuc.compile(
        ALL_TO_ALLS,
        target=TARGET,
        options=CompileOptions(precision="highest", skip=("latency-hiding",)),
    )
    assert exe.estimate().cycles < whole.estimate().cycles


@pytest.mark.parametrize("target", ["v5e:4x2", "v5e:3x2", "v5p:2x2x2", "v5e:8x1"])
def test_gathers_in_phases_on_other_networks(target: str) -> None:
    """The steps of a ring or of a box, spread over several kernels."""
    size = 6 if target == "v5e:3x2" else 8
    source = f"""HloModule m, replica_count={size}
    ENTRY main {{
      x = f32[512,512] parameter(0)
      w = f32[512,512] parameter(1)
      g = f32[{size * 512},512] all-gather(x), replica_groups={{}}, dimensions={{0}}
      d = f32[512,512] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      e = f32[512,512] dot(d, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      f = f32[512,512] dot(e, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT r = (f32[{size * 512},512], f32[512,512]) tuple(g, f)
    }}"""
    exe = compiled(source, target=target)
    x, w = values("f32", (size, 512, 512)), values("f32", (size, 512, 512))
    gathered, _ = exe(x, w)
    for device in range(size):
        np.testing.assert_array_equal(np.asarray(gathered)[device], x.reshape(-1, 512))
    assert " async-update(" in exe.text("hlo")


@pytest.mark.parametrize(
    ("target", "dtype", "operation"),
    [
        ("v5e:4x2", "bf16", "add"),
        ("v5e:3x2", "f32", "maximum"),
        ("v5p:2x2x2", "f32", "add"),
        ("v5e:8x1", "s32", "add"),
        ("v5e:2x1", "f32", "add"),
    ],
)
def test_reductions_in_phases(target: str, dtype: str, operation: str) -> None:
    """A reduce-scatter round a ring or over a box, and one beside it, spread over several kernels."""
    size = {"v5e:3x2": 6, "v5e:2x1": 2}.get(target, 8)
    dots = "\n".join(
        f"d{k + 1} = f32[512,512] dot(d{k}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for k in range(4)
    )
    source = text(
        f"""x = T[{size * 264},520] parameter(0)
      d0 = f32[512,512] parameter(1)
      w = f32[512,512] parameter(2)
      s = T[264,520] reduce-scatter(x), replica_groups={{}}, dimensions={{0}}, to_apply=add
      n = T[{size * 264},520] negate(x)
      t = T[264,520] reduce-scatter(n), replica_groups={{}}, dimensions={{0}}, to_apply=add
      {dots}
      ROOT r = (T[264,520], T[264,520], f32[512,512]) tuple(s, t, d4)""",
        dtype,
        operation,
        f"replica_count={size}",
    )
    exe = compiled(source, target=target)
    x = values(dtype, (size, size * 264, 520))
    w = values("f32", (size, 512, 512))
    got = exe(x, w, w)
    assert exe.text("hlo").count(" async-start(") >= 1
    combine = np.sum if operation == "add" else np.max
    for result, whole in zip(got[:2], (x, -x), strict=True):
        want = combine(whole.astype(np.float32), axis=0).reshape(size, 264, 520)
        np.testing.assert_array_equal(np.asarray(result).astype(np.float32), want)
