"""Collectives along several axes of a slice at once: values, and how near they come to the links' bound."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import tpuc
from compiler.backend.exchange import box_reduce, gather, reduce
from compiler.backend.exchange.box import box_of, colours
from compiler.backend.exchange.box_gather import BoxGather
from compiler.backend.exchange.box_reduce import BoxReduce
from runtime.machines import MachineOptions
from runtime.slice_executable import SliceExecutable
from runtime.topology import parse_target
from tpu_sim.isa.geometry import GRANULE_BYTES

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


@pytest.fixture
def never_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "ring_cycles", lambda *_: 1 << 60)
    monkeypatch.setattr(reduce, "ring_cycles", lambda *_: 1 << 60)


def compiled(body: str, target: str, devices: int, dtype: str = "f32") -> SliceExecutable:
    text = f"HloModule m, replica_count={devices}\n{ADD}ENTRY main {{\n{body}\n}}\n"
    machine = MachineOptions(cache=False)
    exe = tpuc.compile(text.replace("f32", dtype), target=target, machine=machine)
    assert isinstance(exe, SliceExecutable)
    return exe


def groups_text(groups: list[list[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"


GROUPS = {
    "v5e:4x2": [list(range(8))],
    "v5e:3x4": [[x + 3 * y for x in range(3) for y in range(4)]],  # y counts first
    "v5e:4x4": [[a + b for b in (0, 1, 4, 5)] for a in (0, 2, 8, 10)],  # quarters
    "v4:2x2x2": [list(range(8))],
    "v4:3x3": [list(range(9))],  # two cores share the reduction
    "v4:3x2x2": [[x + 3 * (y + 2 * z) for y, x, z in product(range(2), range(3), range(2))]],
}


@pytest.mark.usefixtures("never_a_ring")
@pytest.mark.parametrize("target", GROUPS)
@pytest.mark.parametrize("rows", [1, 21])
def test_gather_and_reduction(target: str, rows: int) -> None:
    groups = GROUPS[target]
    size, devices = len(groups[0]), sum(map(len, groups))
    exe = compiled(
        f"x = f32[{rows},256] parameter(0)\ny = f32[{size * rows},256] parameter(1)\n"
        f"g = f32[{size * rows},256] all-gather(x), replica_groups={groups_text(groups)}, dimensions={{0}}\n"
        f"s = f32[{rows},256] reduce-scatter(y), replica_groups={groups_text(groups)}, dimensions={{0}}, "
        "to_apply=add\nROOT r = (f32[], f32[]) tuple(g, s)".replace(
            "(f32[], f32[])", f"(f32[{size * rows},256], f32[{rows},256])"
        ),
        target,
        devices,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (devices, rows, 256)).astype(np.float32)
    y = rng.integers(-9, 9, (devices, size * rows, 256)).astype(np.float32)
    gathered, scattered = exe(x, y)
    for group in groups:
        total = y[group].sum(0)
        for rank, device in enumerate(group):
            np.testing.assert_array_equal(gathered[device], x[group].reshape(-1, 256))
            np.testing.assert_array_equal(scattered[device], total[rank * rows : (rank + 1) * rows])
    assert len({core.cycles for core in exe.cores}) == 1


@pytest.mark.usefixtures("never_a_ring")
def test_cores_of_a_device_have_a_way_each() -> None:
    """In values, cycles and faults of both machines; each core waits for that of its number elsewhere."""
    text = body("reduce-scatter", 9, 576)
    one, two = (compiled(text, target, 9) for target in ("v5p{cores_per_device=1}:3x3", "v5p:3x3"))
    cores = [[kernel.cores for kernel in exe.program.kernels.values()] for exe in (one, two)]
    assert cores == [[1], [2]]
    x = np.random.default_rng(0).integers(-9, 9, (9, 576, 1024)).astype(np.float32)
    for exe in (one, two):
        (got,) = exe(x)
        np.testing.assert_array_equal(got, x.sum(0).reshape(9, 64, 1024))
    assert two.cores[0].cycles < one.cores[0].cycles
    assert two.cores[0].cycles == two.estimate().cycles
    plain = tpuc.compile(
        f"HloModule m, replica_count=9\n{ADD}ENTRY main {{\n{text}\n}}\n",
        target="v5p:3x3",
        machine=MachineOptions("numpy"),
    )
    (got,) = plain(x)
    np.testing.assert_array_equal(got, x.sum(0).reshape(9, 64, 1024))
    assert isinstance(plain, SliceExecutable)
    assert plain.cores == two.cores


@pytest.mark.usefixtures("never_a_ring")
def test_narrow_sums_in_many_pieces() -> None:
    exe = compiled(
        "x = f32[4096,512] parameter(0)\nROOT r = f32[1024,512] reduce-scatter(x), "
        "replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=add",
        "v5e:2x2", 4, "bf16",
    )  # fmt: skip
    dtype = exe.inputs[0].shape.dtype.numpy
    x = np.random.default_rng(0).integers(-9, 9, (4, 4096, 512)).astype(dtype)
    (got,) = exe(x)
    want = x.astype(np.float32).sum(0).astype(dtype).reshape(4, 1024, 512)
    np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.usefixtures("never_a_ring")
@pytest.mark.parametrize(("most_pieces", "repeats"), [(1200, {1}), (200, {1, 2})])
def test_reductions_of_many_pieces(
    monkeypatch: pytest.MonkeyPatch, most_pieces: int, repeats: set[int]
) -> None:
    """As many as in hundreds of megabytes: their flags' numbers do not fit the registers, and where pieces
    are repeated in loops not all are as often."""
    plans: list[BoxReduce] = []
    plan = BoxReduce._plan

    def noted(self: BoxReduce, *given: Any) -> None:
        plans.append(self)
        plan(self, *given)

    monkeypatch.setattr(box_reduce, "_BLOCK_GRANULES", (4, 8))
    monkeypatch.setattr(box_reduce, "_MOST_PIECES", most_pieces)
    monkeypatch.setattr(BoxReduce, "_plan", noted)
    text = (
        "x = f32[1280,256] parameter(0)\n"
        "ROOT r = f32[80,256] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=add"
    )
    exe = compiled(text, "v5e:4x4", 16)
    pieces = [piece for chain in plans[-1].chains for phase in chain for piece in phase.pieces]
    assert {piece.repeats for piece in pieces} == repeats
    x = np.random.default_rng(0).integers(-9, 9, (16, 1280, 256)).astype(np.float32)
    (got,) = exe(x)
    np.testing.assert_array_equal(got, x.sum(0).reshape(16, 80, 256))


def test_groups_that_are_no_boxes() -> None:
    cores = parse_target("v5e:4x2").cores
    assert box_of(cores, ((0, 1, 2, 4, 5, 6, 3, 7),)) is None  # ranks in no order
    assert box_of(cores, ((0, 1, 6, 7), (2, 3, 4, 5))) is None  # corners
    assert box_of(cores, ((0, 1, 4, 5), (2, 3, 7, 6))) is None  # one is another way round
    found = box_of(cores, ((0, 4, 1, 5), (2, 6, 3, 7)))
    assert found is not None
    assert [axis.stride for axis in found.axes] == [2, 1]


def test_colours_share_the_links() -> None:
    cores = parse_target("v5e:16x16").cores
    box = box_of(cores, (tuple(range(256)),))
    assert box is not None
    assert [part.end - part.first for part in colours(box, 1000)] == [500, 500]
    assert [part.order for part in colours(box, 1000)] == [(0, 1), (1, 0)]
    assert [axis.routes[0].load for axis in box.axes] == [1, 1]


@pytest.mark.parametrize(
    "target", ["v5p:4x4x4", "v5p:4x4x8", "v5p:8x8x16", "v5p:8x16x16", "v5e:8x16"]
)
def test_plans_along_axes_of_any_sizes_keep_the_links_busy(target: str) -> None:
    """By the plans' own times, of 2 MB a device; a reduction of very many slots is no plan along axes."""
    topology = parse_target(target)
    chip, torus, devices = topology.chip, topology.torus, topology.chip_count
    box = box_of(topology.cores, (tuple(range(devices)),))
    assert box is not None
    links = sum(2 if wraps else 1 for wraps in torus.wraps[: len(box.axes)])
    granules = 4096
    sent = (devices - 1) * granules * GRANULE_BYTES
    bound = sent / (links * chip.ici_bytes_per_cycle)
    assert bound / BoxGather(box, granules, chip).cycles > 0.91
    reduction = BoxReduce(box, granules, chip)
    assert reduction.fits == (devices <= 128)
    assert not reduction.fits or bound / reduction.cycles > 0.91


def body(kind: str, devices: int, rows: int) -> str:
    """A collective of rows x 1024 words in all."""
    ends = {
        "all-gather": (rows // devices, rows, "dimensions={0}"),
        "reduce-scatter": (rows, rows // devices, "dimensions={0}, to_apply=add"),
        "all-reduce": (rows, rows, "to_apply=add"),
        "all-to-all": (rows, rows, "dimensions={0}"),
    }
    given, made, rest = ends[kind]
    return (
        f"x = f32[{given},1024] parameter(0)\n"
        f"ROOT r = f32[{made},1024] {kind}(x), replica_groups={{}}, {rest}"
    )


@pytest.mark.parametrize(
    ("target", "kind", "least"),
    [
        ("v5e:4x2", "all-gather", 0.95),
        ("v5e:4x2", "all-reduce", 0.95),
        ("v5e:8x16", "all-gather", 0.9),  # one dimension wraps around
        ("v5e:16x16", "all-gather", 0.95),
        ("v5e:16x16", "reduce-scatter", 0.9),
        ("v5p:4x4x4", "all-gather", 0.95),
        ("v5p:4x4x4", "reduce-scatter", 0.88),  # 95 % of twice as many bytes; on one core 0.65
        ("v5e:4x4", "all-to-all", 0.95),
    ],
)
def test_large_collectives_are_near_the_bound_of_the_links(
    target: str, kind: str, least: float
) -> None:
    topology, rows = parse_target(target), 1 << 15
    devices, torus, rate = topology.chip_count, topology.torus, topology.chip.ici_bytes_per_cycle
    exe = compiled(body(kind, devices, rows), target, devices)
    links = sum(
        2 if w and n > 2 else 1 for n, w in zip(torus.dims, torus.wraps, strict=True) if n > 1
    )
    whole = rows * 4096
    if kind == "all-to-all":
        bound = whole * max(torus.dims) / (8 if torus.wraps[0] else 4) / rate
    else:
        bound = whole * (1 - 1 / devices) / (links * rate) * (2 if kind == "all-reduce" else 1)
    report = exe.estimate()
    assert report.target == target
    assert least < bound / report.cycles < 1
