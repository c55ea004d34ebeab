"""Which emitter makes the kernel of a kCustom fusion, by the opcode of its root."""

from __future__ import annotations

from compiler.backend.custom import CustomEmitter
from compiler.backend.custom_gather import emit_gather
from compiler.backend.custom_scatter import emit_scatter
from compiler.backend.custom_update import emit_update

CUSTOM_EMITTERS: dict[str, CustomEmitter] = {
    "dynamic-update-slice": emit_update,
    "gather": emit_gather,
    "scatter": emit_scatter,
}
