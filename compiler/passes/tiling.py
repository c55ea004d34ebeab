"""Tiling: every fusion's windows and grid are chosen once and written into its `backend_config`.

From here on they are part of the program: copy-insertion reads them, the backend obeys them, a
dump shows them, and an edited dump is compiled as edited. What a fusion or its dot asked for already
is kept, a request on the dot moves to the fusion. kCustom fusions and those of scalars alone have no
windows.

It needs a whole chip; with less than that (memory sizes alone) nothing is changed.
"""

from __future__ import annotations

from compiler.analysis.fusion_body import fusion_body
from compiler.analysis.window_config import (
    OWN,
    REQUEST,
    WINDOW_CONFIG,
    read_config,
    write_config,
)
from compiler.analysis.window_planner import WindowPlanner
from compiler.analysis.window_request import WindowRequests
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.memory_space_assignment import is_planned


def tile_fusions(module: HloModule, context: PassContext) -> bool:
    """Plan every fusion of the control flow that is a kernel of windows."""
    planner = context.planner
    if planner is None:
        return False
    fusions = [i for c in control_computations(module) for i in c if is_planned(i)]
    for fusion in fusions:
        context.counts["tiled"] += _tile(fusion, planner, context.windows)
    for fusion in fusions:  # only now: fusions may share a computation
        context.counts["moved"] += _forget_request(fusion)
    context.windows.check(f.name for f in fusions if fusion_body(f).dot is not None)
    context.counts["distinct"] = sum(b is not None for b in planner.known.values())
    return bool(context.counts["tiled"] or context.counts["moved"])


def _tile(fusion: HloInstruction, planner: WindowPlanner, windows: WindowRequests) -> bool:
    """Write the plan; whether that is news."""
    before = dict(fusion.attrs)
    if windows.asked:
        dot = fusion_body(fusion).dot
        windows.take([fusion] if windows.claim(fusion, dot) else [dot])
    config = {**read_config(fusion), **planner.config(fusion)}
    config.pop(REQUEST, None)
    write_config(fusion, config)
    return fusion.attrs != before


def _forget_request(fusion: HloInstruction) -> bool:
    """Take the windows out of the dot's config: the fusion's has them now."""
    dot = fusion_body(fusion).dot
    if dot is None:
        return False
    config = read_config(dot)
    moved = (WINDOW_CONFIG, OWN, REQUEST)
    rest = {key: value for key, value in config.items() if key not in moved}
    if rest == config:
        return False
    write_config(dot, rest)
    return True
