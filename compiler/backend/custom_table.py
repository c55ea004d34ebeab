"""Which emitter makes the kernel of a kCustom fusion, by the opcode of its root."""

from __future__ import annotations

from compiler.backend.custom import CustomEmitter
from compiler.backend.custom_gather import emit_gather
from compiler.backend.custom_scatter import emit_scatter
from compiler.backend.custom_update import emit_update
from compiler.backend.exchange.gather import emit_all_gather
from compiler.backend.exchange.kernels import emit_all_to_all
from compiler.backend.exchange.permute import emit_permute
from compiler.backend.exchange.reduce import emit_reduce_scatter
from compiler.backend.fourier.kernel import emit_fft
from compiler.backend.running_total.kernel import emit_running_total
from compiler.backend.sorting.kernel import emit_network_sort

CUSTOM_EMITTERS: dict[str, CustomEmitter] = {
    "dynamic-update-slice": emit_update,
    "all-gather": emit_all_gather,
    "all-to-all": emit_all_to_all,
    "collective-permute": emit_permute,
    "gather": emit_gather,
    "network-sort": emit_network_sort,
    "pair-fft": emit_fft,
    "reduce-scatter": emit_reduce_scatter,
    "running-total": emit_running_total,
    "scatter": emit_scatter,
}
