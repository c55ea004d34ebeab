"""Executes one bundle on a `CoreState`: stalls, then all reads, then all writes.

An instruction's read phase returns its commit, a function without arguments; commits run in the
order listed. A DMA starts after the other commits of its bundle. Where several instructions of a
bundle fault, the first of these is the one: waits, loads, scalar instructions, stores and indexed
accesses, transfers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tpu_sim.interp import mxu
from tpu_sim.interp.numpy_lanes import NumpyLanes
from tpu_sim.interp.transpose import transposed_halves
from tpu_sim.isa.causes import LOWERED, Cause, transfer_cause
from tpu_sim.isa.facts import row_facts
from tpu_sim.isa.instruction import MEANINGS, Instr, Kind, Slot
from tpu_sim.isa.program import HBM, NO_ROUTE, SMEM, SPILL_ROWS, Bundle, Kernel, Window
from tpu_sim.isa.rows.mxu import INTEGER_PASSES
from tpu_sim.isa.timing import (
    PASS_BITS,
    WORD_BYTES,
    DmaCost,
    dma_times,
    result_ready_cycles,
    unit_free,
    wait_end,
)
from tpu_sim.machine import dma
from tpu_sim.machine.fabric import Fabric, Links, LocalFabric
from tpu_sim.machine.faults import (
    DeadlockFault,
    DmaCountFault,
    OutOfMemoryRangeFault,
    OutOfWindowFault,
)
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.race_detector import RaceDetector
from tpu_sim.machine.schema import READY_RING
from tpu_sim.machine.state import ACTIVE, BLOCK, LANES, SHADOW, SUBLANES, CoreState

U32 = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
Commit = Callable[[], None]

_SUBLANES = np.arange(SUBLANES, dtype=np.int64)


class BundleExecutor:
    """Runs the bundles of one kernel (or of main, `kernel` None) on `state` and `hbm`.

    `nan`: see `NumpyLanes`.
    """

    def __init__(
        self,
        state: CoreState,
        hbm: HbmMemory,
        kernel: Kernel | None,
        races: RaceDetector | None,
        nan: int | None = None,
        fabric: Fabric | None = None,
        links: Links | None = None,
    ) -> None:
        self._state = state
        self._hbm = hbm
        self._kernel = kernel
        self._races = races
        self._fabric = fabric or LocalFabric(state.chip)
        self._links = links
        self._vector = NumpyLanes((SUBLANES, LANES), nan)
        self._scalar = NumpyLanes((1,))

    def execute(self, bundle: Bundle) -> None:
        """Issue one bundle; the clock stands at the cycle after it when this returns."""
        if bundle:
            self._stall(bundle)
            steps = [(n, i) for n, i in enumerate(bundle) if i.row.effect != "dma_start"]
            steps.sort(key=lambda step: _rank(step[1]))
            done = {number: self._step(instr) for number, instr in steps}
            commits = [done[number] for number in sorted(done)]
            commits += [self._dma_start(i) for i in bundle if i.row.effect == "dma_start"]
            for commit in commits:
                commit()
        self._state.now += 1

    def _stall(self, bundle: Bundle) -> None:
        state = self._state
        issue = state.now
        popped = [0] * state.chip.mxu_units
        for instr in bundle:
            match instr.row.effect:
                case "dma_wait":
                    flag = self._flag(instr.operands[0], instr.operands[1])
                    until = wait_end(issue, int(state.flag_done[flag]), state.chip)
                    state.dma_wait += until - state.now
                    issue = self._wait(issue, until, Cause(state.flag_cause[flag]))
                case "pop_mrf":
                    unit = instr.operands[1]
                    oldest = int(state.mrf_popped[unit]) + popped[unit]
                    ready = int(state.mrf_ready[unit, oldest % READY_RING])
                    popped[unit] += 1
                    issue = self._wait(issue, ready, Cause.MXU_RESULT)
                case "matmul":
                    free = int(state.unit_free[instr.operands[0]]) >> PASS_BITS
                    issue = self._wait(issue, free, Cause.MXU)
        state.now = issue

    def _wait(self, issue: int, until: int, cause: Cause) -> int:
        """The later time; what the bundle waits longer for this than for those before."""
        self._state.causes[cause] += max(0, until - issue)
        return max(issue, until)

    def _step(self, instr: Instr) -> Commit:
        effect = instr.row.effect
        if not effect:
            return self._lane_function(instr)
        if effect == "matmul":
            unit, source = instr.operands
            return self._matmul(unit, source, instr.row.name)
        step: Commit = getattr(self, f"_{effect}")(*instr.operands)
        return step

    def _lane_function(self, instr: Instr) -> Commit:
        row = instr.row
        lanes = self._scalar if row.slot is Slot.SCALAR else self._vector
        arguments: list[object] = []
        for operand, value in zip(row.operands, instr.operands, strict=True):
            match operand.kind:
                case Kind.VS:
                    arguments.append(self._state.vregs[value])
                case Kind.MS:
                    arguments.append(self._state.vmasks[value])
                case Kind.SS:
                    arguments.append(self._state.sregs[value : value + 1].copy())
                case Kind.VD | Kind.MD | Kind.SD:
                    pass
                case _:
                    arguments.append(value)
        result = MEANINGS[row.name](lanes, *arguments)
        return self._commit_result(instr, result)

    def _commit_result(self, instr: Instr, result: object) -> Commit:
        state = self._state
        if instr.row.pushes:
            queue = state.eup if instr.row.pushes == "eup" else state.xlu
            return lambda: queue.append(_vreg(result))
        write = row_facts(instr.row).write
        assert write is not None, f"{instr.row.name} neither writes nor pushes"
        number = instr.operands[write.index]
        match write.register_class:
            case "v":
                return lambda: state.vregs.__setitem__(number, _vreg(result))
            case "m":
                return lambda: state.vmasks.__setitem__(number, _mask(result))
            case _:
                return lambda: state.sregs.__setitem__(number, _vreg(result)[0])

    # queues

    def _pop_eup(self, d: int) -> Commit:
        value = self._state.eup.popleft()
        return lambda: self._state.vregs.__setitem__(d, value)

    def _pop_xlu(self, d: int) -> Commit:
        value = self._state.xlu.popleft()
        return lambda: self._state.vregs.__setitem__(d, value)

    def _pop_mrf(self, d: int, unit: int) -> Commit:
        state = self._state
        ring = state.results[unit]
        value = ring[int(state.mrf_popped[unit]) % len(ring)].copy()
        state.mrf_popped[unit] += 1
        return lambda: state.vregs.__setitem__(d, value)

    # VMEM

    def _window(self, window_id: int) -> Window:
        assert self._kernel is not None
        return self._kernel.windows[window_id]

    def _window_rows(self, window_id: int, rows: I64) -> I64:
        window = self._window(window_id)
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= window.rows:
            raise OutOfWindowFault(
                f"rows {low}..{high} of window {window.name}, which has {window.rows}"
            )
        return rows + window.base_row

    def _sublane_rows(self, window_id: int, s: int, k: int, stride: int) -> I64:
        base = self._state.sreg(s) + k
        return self._window_rows(window_id, base + _SUBLANES * stride)

    def _load(self, d: int, window_id: int, s: int, k: int, stride: int) -> Commit:
        rows = self._sublane_rows(window_id, s, k, stride)
        if self._races:
            self._races.read_rows(rows, self._window(window_id))
        value = self._state.vmem[rows]
        return lambda: self._state.vregs.__setitem__(d, value)

    def _store(self, window_id: int, s: int, k: int, stride: int, a: int) -> Commit:
        return self._store_sublanes(self._sublane_rows(window_id, s, k, stride), a, None)

    def _store_masked(self, window_id: int, s: int, k: int, stride: int, a: int, m: int) -> Commit:
        mask = self._state.vmasks[m]
        return self._store_sublanes(self._sublane_rows(window_id, s, k, stride), a, mask)

    def _store_sublanes(self, rows: I64, a: int, mask: Mask | None) -> Commit:
        value = self._state.vregs[a]
        if self._races:
            self._races.write_rows(rows if mask is None else rows[mask.any(axis=1)])

        def commit() -> None:
            for sublane, row in enumerate(rows.tolist()):
                target = self._state.vmem[row]
                if mask is None:
                    target[:] = value[sublane]
                else:
                    target[mask[sublane]] = value[sublane][mask[sublane]]

        return commit

    def _indexed_words(self, window_id: int, s: int, index: U32, mask: Mask) -> I64:
        words = index.view(np.int32).astype(np.int64) + self._state.sreg(s) * LANES
        words = words[mask]
        rows = self._window_rows(window_id, words // LANES) if len(words) else words
        return rows * LANES + words % LANES

    def _load_indexed(self, d: int, window_id: int, s: int, a: int) -> Commit:
        everywhere = np.ones((SUBLANES, LANES), np.bool_)
        words = self._indexed_words(window_id, s, self._state.vregs[a], everywhere)
        if self._races:
            self._races.read_rows(np.unique(words // LANES), self._window(window_id))
        value = self._state.vmem.reshape(-1)[words].reshape(SUBLANES, LANES)
        return lambda: self._state.vregs.__setitem__(d, value)

    def _store_indexed(self, window_id: int, s: int, a: int, b: int, m: int) -> Commit:
        mask = self._state.vmasks[m]
        words = self._indexed_words(window_id, s, self._state.vregs[a], mask)
        value = self._state.vregs[b][mask]
        if self._races and len(words):
            self._races.write_rows(np.unique(words // LANES))

        def commit() -> None:
            memory = self._state.vmem.reshape(-1)
            for word, bits in zip(words.tolist(), value.tolist(), strict=True):
                memory[word] = bits  # in order: the last store to a word wins

        return commit

    def _spill_rows(self, slot: int) -> slice:
        assert self._kernel is not None
        first = self._kernel.spill_base_row + slot * SPILL_ROWS
        return slice(first, first + SPILL_ROWS)

    def _fill(self, d: int, slot: int) -> Commit:
        if self._races:
            self._races.read_spill(slot)
        value = self._state.vmem[self._spill_rows(slot)].copy()
        return lambda: self._state.vregs.__setitem__(d, value)

    def _spill(self, slot: int, a: int) -> Commit:
        value = self._state.vregs[a]
        if self._races:
            self._races.write_spill(slot)
        return lambda: self._state.vmem.__setitem__(self._spill_rows(slot), value)

    def _fill_mask(self, d: int, slot: int) -> Commit:
        if self._races:
            self._races.read_spill(slot)
        value = self._state.vmem[self._spill_rows(slot)] != 0
        return lambda: self._state.vmasks.__setitem__(d, value)

    def _spill_mask(self, slot: int, a: int) -> Commit:
        value = self._state.vmasks[a].astype(np.uint32)
        if self._races:
            self._races.write_spill(slot)
        return lambda: self._state.vmem.__setitem__(self._spill_rows(slot), value)

    # SMEM

    def _smem_word(self, a: int, k: int) -> int:
        word = self._state.sreg(a) + k
        if not 0 <= word < len(self._state.smem):
            raise OutOfMemoryRangeFault(f"SMEM word {word}, there are {len(self._state.smem)}")
        return word

    def _scalar_load(self, d: int, a: int, k: int) -> Commit:
        word = self._smem_word(a, k)
        if self._races:
            self._races.read_words(_smem_side(word))
        value = self._state.smem[word]
        return lambda: self._state.sregs.__setitem__(d, value)

    def _scalar_store(self, a: int, k: int, b: int) -> Commit:
        word = self._smem_word(a, k)
        value = self._state.sregs[b]
        if self._races:
            self._races.write_words(_smem_side(word))
        return lambda: self._state.smem.__setitem__(word, value)

    # MXU and transpose unit

    def _matpush(self, unit: int, a: int, row: int) -> Commit:
        block = _weight_rows(self._state.vregs[a])
        shadow = self._state.weights[unit, SHADOW]
        return lambda: shadow.__setitem__(slice(16 * row, 16 * row + 16), block)

    def _matpush_t(self, unit: int, a: int, row: int) -> Commit:
        block = _weight_rows(self._state.vregs[a]).T
        shadow = self._state.weights[unit, SHADOW]
        where = (slice(None), slice(16 * row, 16 * row + 16))
        return lambda: shadow.__setitem__(where, block)

    def _matswap(self, unit: int) -> Commit:
        weights = self._state.weights[unit]

        def commit() -> None:
            weights[ACTIVE] = weights[SHADOW]
            weights[SHADOW] = 0

        return commit

    def _matmul(self, unit: int, a: int, name: str) -> Commit:
        state = self._state
        left = np.concatenate(mxu.halves(state.vregs[a]))
        weights = (state.weights[unit, ACTIVE].astype(np.uint32) << np.uint32(16)).view(np.float32)
        if name in INTEGER_PASSES:
            rows = mxu.integer_pass_rows(left, weights, is_signed=INTEGER_PASSES[name])
        else:
            rows = mxu.pass_rows(left, weights).view(np.uint32)

        def commit() -> None:
            for half, cycles in enumerate(result_ready_cycles(state.chip)):
                pushed = int(state.mrf_pushed[unit])
                ring = state.results[unit]
                ring[pushed % len(ring)] = rows[SUBLANES * half : SUBLANES * (half + 1)]
                state.mrf_ready[unit, pushed % READY_RING] = state.now + cycles
                state.mrf_pushed[unit] += 1
            state.unit_free[unit] = unit_free(int(state.unit_free[unit]), state.now, state.chip)
            state.mxu_passes += 1

        return commit

    def _xpose_push(self, unit: int, a: int, row: int) -> Commit:
        value = self._state.vregs[a]
        where = (unit, SHADOW, slice(SUBLANES * row, SUBLANES * row + SUBLANES))
        return lambda: self._state.transposes.__setitem__(where, value)

    def _xpose_swap(self, unit: int) -> Commit:
        transposed = self._state.transposes[unit, SHADOW].T.copy()
        return lambda: self._state.transposes.__setitem__((unit, ACTIVE), transposed)

    def _xpose_swap16(self, unit: int) -> Commit:
        transposed = transposed_halves(self._state.transposes[unit, SHADOW])
        return lambda: self._state.transposes.__setitem__((unit, ACTIVE), transposed)

    def _xpose_read(self, d: int, unit: int, row: int) -> Commit:
        rows = slice(SUBLANES * row, SUBLANES * row + SUBLANES)
        value = self._state.transposes[unit, ACTIVE, rows].copy()
        return lambda: self._state.vregs.__setitem__(d, value)

    # DMA and sync flags

    def _flag(self, flag: int, f: int) -> int:
        number = flag + self._state.sreg(f)
        count = 0 if self._kernel is None else self._kernel.flags
        if not 0 <= number < count:
            raise DmaCountFault(f"sync flag {number}, the kernel has {count}")
        return number

    def _dma_start(self, instr: Instr) -> Commit:
        desc, src, dst, flag, f, c0, c1 = instr.operands
        state = self._state
        assert self._kernel is not None
        descriptor = self._kernel.descriptors[desc]
        window = self._kernel.windows[descriptor.window] if descriptor.window >= 0 else None
        number = self._flag(flag, f)
        addresses = (state.sreg(src), state.sreg(dst))
        counts = (state.sreg(c0), state.sreg(c1))
        sizes = {HBM: len(self._hbm.bytes), SMEM: state.smem.nbytes}
        transfer = dma.resolve(descriptor, window, addresses, counts, sizes)
        cause = transfer_cause(descriptor)
        if descriptor.route != NO_ROUTE:
            return lambda: self._exchange(transfer, descriptor.route, number)
        cost = self._fabric.cost(descriptor.src_space, descriptor.dst_space)
        return lambda: self._start_transfer(transfer, cost, number, cause)

    def _start_transfer(
        self, transfer: dma.Transfer, cost: DmaCost, flag: int, cause: Cause
    ) -> None:
        state = self._state
        if self._races:
            self._races.start(transfer, flag)
        dma.copy(transfer, state, self._hbm)
        free, done = dma_times(state.now, state.dma_free, transfer.total_bytes, cost)
        state.dma_free = free
        state.flag_done[flag] = max(int(state.flag_done[flag]), done)
        state.flag_cause[flag] = int(cause)
        state.hbm_bytes += transfer.hbm_bytes

    def _exchange(self, transfer: dma.Transfer, number: int, flag: int) -> None:
        """Send to the core that a route leads to; wait on the flag for what comes by it."""
        state, links = self._state, self._links
        if links is None:
            raise DeadlockFault("a transfer to another core, and this one runs alone")
        route = links.routes[number]
        cost = self._fabric.route_cost(route, is_flag=not transfer.total_bytes)
        state.flag_cause[flag] = int(Cause.ICI)
        if route.source(links.number) >= 0:
            state.expect_raise(flag)
        target = route.targets[links.number]
        if target < 0:
            return
        peer, hbm = links.cores[target]
        dma.copy(transfer, state, self._hbm, hbm)
        engine = int(state.port_free[route.port])
        free, done = dma_times(state.now, engine, transfer.total_bytes, cost)
        state.port_free[route.port] = free
        state.flag_done[flag] = max(int(state.flag_done[flag]), free)
        state.hbm_bytes += transfer.hbm_bytes
        peer.raise_flag(flag, done)

    def _dma_wait(self, flag: int, f: int) -> Commit:
        number = self._flag(flag, f)

        def commit() -> None:
            self._state.flag_cause[number] = int(LOWERED)
            if self._races:
                self._races.wait(number)

        return commit


def _rank(instr: Instr) -> int:
    if instr.row.effect == "load_indexed":
        return 2
    return {Slot.LOAD: 0, Slot.STORE: 2}.get(instr.row.slot, 1)


def _vreg(value: object) -> U32:
    assert isinstance(value, np.ndarray) and value.dtype == np.uint32
    return value


def _mask(value: object) -> Mask:
    assert isinstance(value, np.ndarray) and value.dtype == np.bool_
    return value


def _weight_rows(packed: U32) -> npt.NDArray[np.uint16]:
    """(16, 128): rows 2s and 2s+1 are the low and high halves of sublane s."""
    low, high = packed.astype(np.uint16), (packed >> np.uint32(16)).astype(np.uint16)
    rows: npt.NDArray[np.uint16] = np.stack([low, high], axis=1).reshape(16, BLOCK)
    return rows


def _smem_side(word: int) -> dma.Side:
    return dma.Side(SMEM, np.array([word * WORD_BYTES], np.int64), WORD_BYTES)
