"""Nothing runs on the host behind the user's back.

HBM is poisoned but for inputs and constants, and every write of an executed DMA is recorded. Then
each byte of a result that is not padding was written by an instruction or lies in an input or a
constant; nothing else changed; and two different poisons give the same results, which are those
that the user gets from `Executable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import tpu_sim.machine.dma as dma
from compiler.hlo.shape import ArrayShape
from runtime.api import compile as compile_model
from runtime.executable import Executable
from runtime.ports import Port
from runtime.storage import read_planes, write_planes
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.program import HBM, HbmBuffer
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.state import CoreState
from tpuc.arrays import load_arrays, randoms

Array = npt.NDArray[np.generic]
Mask = npt.NDArray[np.bool_]

DATA = Path(__file__).resolve().parents[1] / "data"
MODELS = sorted(path.stem for path in DATA.glob("*_tiny.hlo"))
POISONS = (0xA5, 0x5A)

SMALL = {
    "add": "p = f32[5,7] parameter(0) ROOT r = f32[5,7] add(p, p)",
    "constant": "ROOT r = s32[2,3] constant({{1,2,3},{4,5,6}})",
    "convert": "p = f32[5,7] parameter(0) ROOT r = bf16[5,7] convert(p)",
    "dot": (
        "p = f32[9,130] parameter(0) q = f32[130,5] parameter(1) ROOT r = f32[9,5] dot(p, q), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ),
    "iota": "ROOT r = s32[3,129] iota(), iota_dimension=1",
    "parameter": "ROOT p = f32[5,7] parameter(0)",
    "scalar": "p = s32[] parameter(0) ROOT r = s32[] multiply(p, p)",
    "s64": "p = s64[9] parameter(0) ROOT r = s64[9] multiply(p, p)",
    "transpose": "p = s8[9,130] parameter(0) ROOT r = s8[130,9] transpose(p), dimensions={1,0}",
    "tuple": "p = f32[8] parameter(0) n = f32[8] negate(p) ROOT r = (f32[8], f32[8]) tuple(n, p)",
}


class Watch:
    """HBM, and which of its bytes instructions wrote."""

    def __init__(self, size_bytes: int, poison: int) -> None:
        self.hbm = HbmMemory(max(size_bytes, 1 << 16))
        self.hbm.bytes[:] = poison
        self.given: Mask = np.zeros(self.hbm.size_bytes, np.bool_)
        self.written: Mask = np.zeros(self.hbm.size_bytes, np.bool_)

    def give(self, buffer: HbmBuffer) -> npt.NDArray[np.uint8]:
        """The bytes of a buffer that the host fills before the run."""
        end = buffer.offset_bytes + buffer.size_bytes
        self.given[buffer.offset_bytes : end] = True
        return self.hbm.view(buffer.offset_bytes, buffer.size_bytes)

    def record(self, transfer: dma.Transfer) -> None:
        """Mark what a DMA writes."""
        side = transfer.target
        if side.space == HBM:
            for offset in side.offsets.tolist():
                self.written[offset : offset + side.chunk_bytes] = True

    @contextmanager
    def during_run(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Record the DMAs; afterwards, nothing but them may have changed HBM."""
        plain_copy = dma.copy

        def copy(transfer: dma.Transfer, state: CoreState, hbm: HbmMemory) -> None:
            self.record(transfer)
            plain_copy(transfer, state, hbm)

        before = self.hbm.bytes.copy()
        with patch.context() as inside:
            inside.setattr(dma, "copy", copy)
            yield
        changed = np.flatnonzero((self.hbm.bytes != before) & ~self.written)
        assert changed.size == 0, f"HBM changed at {changed[:4]} without an instruction"

    def check_output(self, port: Port) -> None:
        """Every byte of a result, padding aside, was written or given."""
        for buffer, used in zip(port.buffers, used_bytes(port), strict=True):
            end = buffer.offset_bytes + buffer.size_bytes
            known = self.written[buffer.offset_bytes : end] | self.given[buffer.offset_bytes : end]
            lacking = int(np.sum(used & ~known))
            assert not lacking, f"{lacking} bytes of {buffer.name} come from no instruction"


def used_bytes(port: Port) -> list[Mask]:
    """For each plane of a port, which bytes hold elements: all but the padding."""
    planes = [np.zeros(buffer.size_bytes, np.uint8) for buffer in port.buffers]
    write_planes(all_ones(port.shape), port.shape, planes, use_cache=False)
    return [plane != 0 for plane in planes]


def all_ones(shape: ArrayShape) -> Array:
    """An array without a zero byte (pred has one such value)."""
    if shape.dtype.kind == "pred":
        return np.ones(shape.dims, np.bool_)
    count = int(np.prod(shape.dims))
    data = np.full(count * shape.dtype.numpy.itemsize, 0xFF, np.uint8)
    return data.view(shape.dtype.numpy).reshape(shape.dims)


def watched_run(
    executable: Executable, inputs: Sequence[Array], poison: int, patch: pytest.MonkeyPatch
) -> list[Array]:
    """Run on the NumPy machine under watch and return the results."""
    program = executable.program
    watch = Watch(program.hbm_bytes, poison)
    for offset, data in program.constants:
        watch.hbm.write(offset, data)
    for buffer in program.buffers:
        if buffer.kind == "constant":
            watch.give(buffer)
    for value, port in zip(inputs, executable.inputs, strict=True):
        targets = [watch.give(buffer) for buffer in port.buffers]
        write_planes(value, port.shape, targets, use_cache=False)
    with watch.during_run(patch):
        NumpyMachine(executable.device.chip).run(program, watch.hbm)
    results = []
    for port in executable.outputs:
        watch.check_output(port)
        planes = [watch.hbm.view(b.offset_bytes, b.size_bytes) for b in port.buffers]
        results.append(read_planes(planes, port.shape, use_cache=False))
    return results


def check(executable: Executable, inputs: Sequence[Array], patch: pytest.MonkeyPatch) -> None:
    """All of the module's promises."""
    users = [np.asarray(value).tobytes() for value in executable(*inputs)]
    for poison in POISONS:
        results = watched_run(executable, inputs, poison, patch)
        assert [value.tobytes() for value in results] == users


def module(name: str) -> str:
    return f"HloModule m\nENTRY e {{\n  {SMALL[name]}\n}}\n"


def inputs_of(executable: Executable) -> list[Array]:
    return list(randoms([port.shape for port in executable.inputs], 0))


@pytest.mark.parametrize("name", MODELS)
def test_results_of_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compile_model(DATA / f"{name}.hlo")
    shapes = [port.shape for port in executable.inputs]
    inputs = load_arrays(str(DATA / f"{name}.npz"), "in", shapes)
    check(executable, inputs, monkeypatch)


@pytest.mark.parametrize("name", SMALL)
def test_results_of_small_operations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compile_model(module(name))
    check(executable, inputs_of(executable), monkeypatch)


def test_a_store_that_is_not_executed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compile_model(module("add"))
    plain_copy = dma.copy

    def copy(transfer: dma.Transfer, state: CoreState, hbm: HbmMemory) -> None:
        if transfer.target.space != HBM:
            plain_copy(transfer, state, hbm)

    monkeypatch.setattr(Watch, "record", lambda watch, transfer: None)
    monkeypatch.setattr(dma, "copy", copy)
    with pytest.raises(AssertionError, match="come from no instruction"):
        watched_run(executable, inputs_of(executable), POISONS[0], monkeypatch)


def test_a_host_that_writes_the_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compile_model(module("add"))
    inputs = inputs_of(executable)
    (port,) = executable.outputs
    plain_run = NumpyMachine.run

    def run(machine: NumpyMachine, program: object, hbm: HbmMemory) -> object:
        result = plain_run(machine, program, hbm)  # type: ignore[arg-type]
        hbm.write(port.buffers[0].offset_bytes + port.buffers[0].size_bytes, b"behind the back")
        return result

    monkeypatch.setattr(NumpyMachine, "run", run)
    with pytest.raises(AssertionError, match="without an instruction"):
        watched_run(executable, inputs, POISONS[0], monkeypatch)


def test_padding_is_not_counted_and_elements_are() -> None:
    (port,) = compile_model(module("add")).outputs
    (used,) = used_bytes(port)
    assert int(used.sum()) == 5 * 7 * 4 < used.size
