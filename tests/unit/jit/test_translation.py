"""How blocks become components, and what native runs refuse."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.support.random_programs import BlockBuilder
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.control_flow import Call, Loop, While
from tpu_sim.isa.program import (
    HBM,
    SMEM,
    VMEM,
    Block,
    DmaDescriptor,
    DmaDim,
    Kernel,
    Node,
    Program,
    Window,
)
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.jit.program_translator import translate_program
from tpu_sim.jit.translated import RUN, ModuleKind
from tpu_sim.machine.faults import (
    CycleLimitFault,
    DmaCountFault,
    MachineFault,
    OutOfMemoryRangeFault,
    OutOfWindowFault,
)
from tpu_sim.machine.memory import HbmMemory

CHIP = load_chip("v5e")
HBM_BYTES = 1 << 18
ROWS = 64


def program(body: list[Node], descriptors: list[DmaDescriptor] | None = None) -> Program:
    windows = [Window("a", 0, ROWS), Window("b", ROWS, ROWS)]
    kernel = Kernel("k", 0, windows, descriptors or [], body)
    return Program("v5e", {"k": kernel}, [Call("k", "site")], [], [], HBM_BYTES, 1024)


def block(*instructions: tuple[str, tuple[int, ...]]) -> Block:
    builder = BlockBuilder(CHIP)
    for name, operands in instructions:
        builder.emit(name, *operands)
    return builder.finish("b")


def test_machines_with_and_without_disk_cache_live_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TPUC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TPUC_NO_CACHE", raising=False)
    body: list[Node] = [block(("vmovi", (1, 7)), ("vst", (0, 0, 0, 1, 1)))]
    copies = [DmaDescriptor(VMEM, HBM, 8, (), 0)]
    body.append(block(("dma.start", (0, 0, 0, 0, 0, 0, 0)), ("dma.wait", (0, 0))))
    for threads in (1, 2):
        for cache in (True, False, True):
            hbm = HbmMemory(HBM_BYTES)
            LlvmMachine(CHIP, threads=threads, cache=cache).run(program(body, copies), hbm)
            assert (hbm.bytes[: 8 * 512].view(np.int32) == 7).all()
    assert any((tmp_path / "cache").rglob("*")), "nothing was kept on disk"


def component_count(body: list[Node]) -> int:
    text = translate_program(program(body), CHIP, RUN).text
    return text.count("define void @component")


def scale_tile(tile: int) -> list[tuple[str, tuple[int, ...]]]:
    register = 2 * tile % 50
    return [
        ("vld", (register, 0, 0, 8 * tile, 1)),
        ("vmuli.f32", (register + 1, register, 0x40000000)),
        ("vst", (0, 0, 8 * tile, 1, register + 1)),
    ]


def test_unrolled_copies_of_a_body_are_one_function() -> None:
    assert component_count([block(*(i for tile in range(8) for i in scale_tile(tile)))]) == 1


def test_shared_constants_do_not_join_components() -> None:
    constant = ("vmovi", (60, 0x40000000))
    tiles = [
        ("vld", (1, 0, 0, 0, 1)), ("vmul.f32", (2, 1, 60)), ("vst", (1, 0, 0, 1, 2)),
        ("vld", (3, 0, 0, 8, 1)), ("vmul.f32", (4, 3, 60)), ("vst", (1, 0, 8, 1, 4)),
    ]  # fmt: skip
    assert component_count([block(constant, *tiles)]) == 1


def sums_and_differences(loads: int) -> list[Node]:
    """A sum and a difference of the same vregs in pairs, each stored."""
    code: list[tuple[str, tuple[int, ...]]] = [("vld", (n, 0, 0, 2 * n, 1)) for n in range(loads)]
    for number, name in enumerate(("vadd.f32", "vsub.f32")):
        total = 30 + number
        code.append(("vmov", (total, 0)))
        code += [(name, (total, total, n)) for n in range(1, loads)]
        code.append(("vst", (1, 0, 8 * number, 1, total)))
    return [block(*code)]


def test_components_that_read_the_same_are_one() -> None:
    assert component_count(sums_and_differences(12)) == 1
    assert component_count(sums_and_differences(4)) == 2


def test_estimate_module_has_no_vector_code() -> None:
    text = translate_program(program([block(*scale_tile(0))]), CHIP, ModuleKind(values=False)).text
    assert "<16 x" not in text


def test_overlapping_store_and_load_keep_their_order() -> None:
    """A store shifted by one row is read back by a load of the rows it half covers."""
    copies = [DmaDescriptor(HBM, VMEM, 32, (), 0), DmaDescriptor(VMEM, HBM, 16, (), 1)]
    body = block(
        ("smovi", (1, 32)),
        ("dma.start", (0, 0, 0, 0, 0, 0, 0)), ("dma.wait", (0, 0)),
        ("vld", (1, 0, 0, 0, 1)),
        ("vst", (0, 0, 9, 1, 1)),
        ("vst", (0, 0, 48, 1, 1)),  # the store slot is taken, so the load comes a bundle later
        ("vld", (2, 0, 0, 8, 1)),
        ("vst", (1, 0, 0, 1, 2)),
        ("dma.start", (1, 0, 1, 1, 0, 0, 0)), ("dma.wait", (1, 0)),
    )  # fmt: skip
    hbm = HbmMemory(HBM_BYTES)
    rows = np.arange(32 * 128, dtype=np.uint32).reshape(32, 128)
    hbm.write(0, rows.tobytes())
    LlvmMachine(CHIP, cache=False).run(program([body], copies), hbm)
    found = np.frombuffer(hbm.read(32 * 512, 8 * 512), np.uint32).reshape(8, 128)
    assert np.array_equal(found, np.concatenate([rows[8:9], rows[0:7]]))


def test_stores_to_some_of_the_same_rows_are_steps_of_their_own() -> None:
    """Tiles are written, and halves of each two again: equal copies of a vreg, in order."""
    body = block(
        *(
            access
            for tile in range(8)
            for access in (
                ("vld", (1 + 2 * tile, 0, 0, 8 * tile, 1)),
                ("vst", (1, 0, 8 * tile, 1, 1 + 2 * tile)),
                ("vld", (2 + 2 * tile, 0, 0, 64 + 8 * tile, 1)),
                ("vst", (1, 0, 8 * tile + 4, 1, 2 + 2 * tile)),
            )
        )
    )
    text = translate_program(program([body]), CHIP, RUN).text
    component = text[text.index("define void @component0") :]
    assert component_count([body]) == 1
    assert component[: component.index("\n}")].count("store <16 x i32>") == 1


def endless() -> list[Node]:
    return [While([block(("smovi", (1, 1)))], 1, [block(("smovi", (2, 1)))])]


BAD_COUNT = [DmaDescriptor(HBM, VMEM, 1, (DmaDim(-1, 1, 1),), 0)]
ONE_ROW = [DmaDescriptor(HBM, VMEM, 1, (), 0)]


@pytest.mark.parametrize(
    ("body", "descriptors", "fault"),
    [
        ([block(("smovi", (1, ROWS - 7)), ("vld", (1, 0, 1, 0, 1)))], [], OutOfWindowFault),
        ([block(("smovi", (1, -1)), ("vld", (1, 0, 1, 0, 1)))], [], OutOfWindowFault),
        ([block(("smovi", (1, 1 << 30)), ("sld", (2, 1, 0)))], [], OutOfMemoryRangeFault),
        ([block(("smovi", (1, -1)), ("sst", (1, 0, 1)))], [], OutOfMemoryRangeFault),
        (
            [block(("smovi", (1, 8)), ("dma.wait", (0, 1)))],
            [],
            DmaCountFault,
        ),
        (
            [block(("smovi", (1, -3)), ("dma.start", (0, 0, 0, 0, 0, 1, 0)))],
            BAD_COUNT,
            DmaCountFault,
        ),
        (
            [block(("smovi", (1, 1 << 20)), ("dma.start", (0, 1, 0, 0, 0, 0, 0)))],
            ONE_ROW,
            OutOfMemoryRangeFault,
        ),
        (
            [block(("smovi", (1, ROWS)), ("dma.start", (0, 0, 1, 0, 0, 0, 0)))],
            ONE_ROW,
            OutOfWindowFault,
        ),
        (
            [block(("vmovi", (1, 5000)), ("smovi", (1, 40)), ("vld.idx", (2, 0, 1, 1)))],
            [],
            OutOfWindowFault,
        ),
        (endless(), [], CycleLimitFault),
    ],
    ids=[
        "load above", "load below", "smem load", "smem store", "flag", "dma count", "hbm range",
        "dma window", "indexed load", "endless",
    ],
)  # fmt: skip
def test_fault_ends_the_run_and_names_the_kernel(
    body: list[Node], descriptors: list[DmaDescriptor], fault: type[MachineFault]
) -> None:
    machine = LlvmMachine(CHIP, cache=False, max_cycles=100_000)
    with pytest.raises(fault) as caught:
        machine.run(program(body, descriptors), HbmMemory(HBM_BYTES))
    assert caught.value.kernel == "k"


def test_values_survive_a_transfer_to_smem_in_their_block() -> None:
    """Vregs, masks and queue entries defined before the transfer are read after it."""
    copies = [
        DmaDescriptor(HBM, VMEM, 8, (), 0),
        DmaDescriptor(VMEM, SMEM, 1, (), 1),
        DmaDescriptor(VMEM, HBM, 8, (), 1),
    ]
    load = block(("dma.start", (0, 0, 0, 0, 0, 0, 0)), ("dma.wait", (0, 0)))
    body = block(
        ("smovi", (1, 200)), ("smovi", (2, 64)),
        ("vld", (1, 0, 0, 0, 1)), ("vlane", (2,)), ("vcmp.lt.s32", (1, 2, 1)),
        ("vst", (1, 0, 0, 1, 1)),
        ("vlanefold.add.s32", (1,)),
        ("dma.start", (1, 0, 1, 0, 0, 0, 0)), ("dma.wait", (0, 0)),
        ("sld", (3, 0, 200)), ("vsplat", (3, 3)),
        ("vpop.xlu", (4,)), ("vadd.s32", (5, 3, 4)), ("vsel", (6, 1, 5, 1)),
        ("vst", (1, 0, 0, 1, 6)),
        ("dma.start", (2, 0, 2, 1, 0, 0, 0)), ("dma.wait", (1, 0)),
    )  # fmt: skip
    hbm = HbmMemory(HBM_BYTES)
    x = np.random.default_rng(0).integers(0, 256, (8, 128)).astype(np.int32)
    hbm.write(0, x.tobytes())
    LlvmMachine(CHIP, cache=False).run(program([load, body], copies), hbm)
    found = np.frombuffer(hbm.read(64 * 512, 4096), np.int32).reshape(8, 128)
    total = x[0, 0] + x.sum(axis=1, keepdims=True)
    assert np.array_equal(found, np.where(np.arange(128) < x, total, x))


def test_runs_of_one_machine_do_not_see_each_other() -> None:
    machine = LlvmMachine(CHIP, cache=False)
    looped = program([Loop(3, 5, [block(*scale_tile(0))])])
    first = machine.run(looped, HbmMemory(HBM_BYTES))
    assert machine.run(looped, HbmMemory(HBM_BYTES)) == first
    assert [run.site for run in first.kernels] == ["site"]


def test_an_exception_while_waiting_ends_the_run() -> None:
    machine = LlvmMachine(CHIP, cache=False, max_cycles=1 << 40)  # minutes: a fault, no hanging
    ready, hbm = machine.prepare(program(endless())), HbmMemory(HBM_BYTES)
    main = threading.main_thread().ident
    timer = threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT])
    # a shell starts what runs in the background with this signal ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            machine.run(ready, hbm)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    machine.run(program([block(*scale_tile(0))]), HbmMemory(HBM_BYTES))
