"""Rules of `runtime.advice` about a loop that is one kernel: its turns, and what each takes beside work."""

from __future__ import annotations

import math
import re

from runtime.advice_site import Finding, SiteFacts
from runtime.kernel_report import VREG_ELEMENTS
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.kernel_facts import LOOKED_UP, MODEL_LOOP, OperationFacts

_UNROLLED = 8
"""Turns that are put together for advice: of a recurrence of f32[1024,256] it takes two thirds away."""
_STEPS = 4
"""Steps that are put together where a test says whether there is another."""
_MUCH_OF_A_TURN = 0.2
"""Of the operations of a turn: when fewer could be done elsewhere, it is not said."""
_LEAST_FILL = 0.5
"""Of a register that a loop works on: below, more at a time is almost free."""
_MANY_PARTS = 2.0
"""Times what turns look up that an array has to be: below, little of it comes for nothing."""
_BEFORE_THE_LOOP = (
    "all that turns look up at once, before the loop: rows = x[ids], then lax.scan over rows; "
    "what only adds rows up is x[ids].sum(0), without a loop"
)
_SEVERAL_STEPS = (
    f"several steps in a turn, say {_STEPS}, so that its end is asked for less often; the last turn may take"
    " steps too many"
)
_MOSTLY_LATENCY = 2.0
"""Times that waits take what the bytes do: above, it is their way to the memory and back that costs."""


def loop_of(site: SiteFacts) -> OperationFacts | None:
    """The loop of the model that a kernel is; None for others, and for loops that passes make."""
    found = [o for o in site.of_opcodes(frozenset({"while"})) if MODEL_LOOP in o.marks]
    return found[0] if found and len(found[0].dims) == 5 else None


def turns(site: SiteFacts) -> Finding | None:
    """What a loop takes beside what it computes, as one turn waits for the one before."""
    loop = loop_of(site)
    if loop is None:
        return None
    beside = site.cycles(Cause.SCALAR, Cause.LOOP, Cause.LATENCY, Cause.MXU_RESULT)
    trips = loop.dims[0]
    share = f"{beside / max(site.report.cycles, 1):.0%}"
    spent = "wait for results or are scalar code and loop overhead"
    if not trips:
        why = f"a loop whose turns depend on data, one after another: of its cycles {share} {spent}"
        return Finding("turns", _of_tests(loop, beside), why, _SEVERAL_STEPS, loop.source)
    each = site.report.cycles / (site.calls * trips)
    why = f"a loop of {trips:,} turns, one after another, of {each:,.0f} cycles, of which {share} {spent}"
    together = min(_UNROLLED, trips)
    rounds = max(1, math.ceil(math.log2(trips)))
    remedy = (
        f"more in a turn: lax.scan(.., unroll={together}) takes {-(-trips // together):,}; where steps "
        f"combine in any grouping (sums, linear recurrences) jax.lax.associative_scan, {rounds} rounds; "
        "where none needs the one before, vmap or a product of matrices"
    )
    return Finding("turns", beside * (1 - 1 / together), why, remedy, loop.source)


def _of_tests(loop: OperationFacts, beside: float) -> float:
    """Of cycles beside work, those of tests that several steps in a turn have no need of: a test's part of
    the chain of operations that a turn is. What steps wait for among themselves stays."""
    test, turn = loop.dims[3:]
    return beside * test / max(turn, 1) * (1 - 1 / _STEPS)


def fetches(site: SiteFacts) -> Finding | None:
    """What the turns of a loop wait for the little that each looks up: an index on its way to the scalar
    unit, a row from HBM."""
    loop = loop_of(site)
    if loop is None or not loop.dims[0]:
        return None
    needed = site.transfer_cycles(site.report.hbm_bytes)
    if site.waits < _MOSTLY_LATENCY * needed:
        return None
    trips = loop.dims[0] * site.calls
    each = site.waits / trips
    why = (
        f"each of {loop.dims[0]:,} turns waits {each:,.0f} cycles for transfers to be through; "
        f"the bytes that pass HBM take {needed / trips:,.0f}"
    )
    return Finding("fetches of turns", site.waits - needed, why, _BEFORE_THE_LOOP)


def tables(site: SiteFacts) -> Finding | None:
    """What a loop takes to bring whole arrays to the chip of which its turns look up little."""
    loop = loop_of(site)
    found = [o for o in site.facts.operations if LOOKED_UP in o.marks and len(o.dims) == 3]
    if loop is None or not loop.dims[0] or not found:
        return None
    largest = max(found, key=lambda o: o.dims[1])
    whole = max((a.bytes for a in site.facts.arrays if a.shape == largest.shape), default=0)
    parts = loop.dims[0] * whole * largest.dims[0] / max(largest.dims[1], 1)
    if whole < _MANY_PARTS * parts:
        return None
    why = (
        f"waits for HBM: all of {largest.shape} comes to the chip, {whole / 1e6:,.1f} MB, for "
        f"{loop.dims[0] * largest.dims[2]:,} parts of it that turns look up, {parts / 1e6:,.1f} MB"
    )
    saved = min(site.waits, site.calls * site.transfer_cycles(whole - parts))
    return Finding("looked-up tables", saved, why, _BEFORE_THE_LOOP, largest.source)


def turning_vectors(site: SiteFacts, vector: float) -> Finding | None:
    """Of a loop in one kernel, or a sort, the vector instructions: of a loop's turns, those that need not
    wait for the turn before, or registers that the state does not fill."""
    loop = loop_of(site)
    if loop is None:
        why = "vector instructions of a loop that stays on the chip, turn after turn"
        remedy = "fewer turns, or less to do in each; of a sort fewer elements, or lax.top_k"
        return Finding("loop", vector, why, remedy)
    trips, total, free = loop.dims[:3]
    each = f", {vector / (site.calls * trips):,.0f} cycles each" if trips else ""
    many = f"{trips:,}" if trips else "many"
    why = f"vector instructions of a loop of {many} turns{each}"
    if free > _MUCH_OF_A_TURN * total:
        share = free / total
        why += f"; {share:.0%} of what they compute waits for no turn before"
        remedy = (
            "that part outside of the loop, for all turns at once: before lax.scan, on the whole array, "
            "or behind it"
        )
        elsewhere = site.calls * trips * free / site.elements_per_cycle
        return Finding("loop", vector * share - elsewhere, why, remedy, loop.source)
    fill = min(1.0, _elements(loop) / VREG_ELEMENTS)
    if fill < _LEAST_FILL:
        few = f"at most {_elements(loop):,} elements, where a register has {VREG_ELEMENTS:,}"
        why += f" on arrays of {few}"
        remedy = "several such loops in one: vmap over a batch, whose turns take as long"
        return Finding("loop", vector * (1 - fill), why, remedy, loop.source)
    return None


def _elements(loop: OperationFacts) -> int:
    """Elements of the largest array of a loop's state."""
    return math.prod(int(dim) for dim in re.findall(r"\d+", loop.shape.partition("[")[2]))
