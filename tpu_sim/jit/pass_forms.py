"""The forms of each kind of MXU pass: what computes it on a host.

All forms of a pass give the same bits and read weights in the host's one layout. Which is fastest
differs from CPU to CPU: `tpu_sim.jit.installation` times them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tpu_sim.isa.rows.mxu import PASS_FORMATS
from tpu_sim.jit.host import Arch, Host
from tpu_sim.jit.integer_passes import portable_text
from tpu_sim.jit.mxu_chains import exact_text, fma_text
from tpu_sim.jit.mxu_dots import bf16_dot_text, byte_dot_text, word_dot_text
from tpu_sim.jit.mxu_few_registers import single_chain_text
from tpu_sim.jit.mxu_kernels import integer_tiles_text, tiles_text
from tpu_sim.jit.weight_layout import layout_of

_PREFIX = "tpuc_kernel_v1_"
MATMUL_TILES = _PREFIX + "matmul_tiles"
MATMUL_DOT = _PREFIX + "matmul_dot"
MATMUL_CHAIN = _PREFIX + "matmul_chain"
MATMUL_FMA = _PREFIX + "matmul_fma"
MATMUL_EXACT = _PREFIX + "matmul_exact"


@dataclass(frozen=True)
class PassForm:
    """A function ``void name(out, lhs, weights, next)``; `write` gives its text."""

    name: str
    write: Callable[[str], str]

    def text(self) -> str:
        """The function as LLVM IR."""
        return self.write(self.name)


def pass_forms(host: Host) -> dict[str, tuple[PassForm, ...]]:
    """By format the forms of a pass on `host`; the last is the one that the others are compared with."""
    return {name: FORMS[name](host) for name in PASS_FORMATS}


def _bf16_forms(host: Host) -> tuple[PassForm, ...]:
    layout = layout_of(host)
    forms = []
    if host.has_matrix_unit:
        forms.append(PassForm(MATMUL_TILES, tiles_text))
    elif host.has("avx512bf16"):
        forms.append(PassForm(MATMUL_DOT, bf16_dot_text))
    if host.arch is Arch.X86_64 and host.vector_lanes == 8:
        chain = partial(single_chain_text, lanes=host.vector_lanes, layout=layout)
        forms.append(PassForm(MATMUL_CHAIN, chain))
    fma = partial(fma_text, host=host, layout=layout, exact=MATMUL_EXACT)
    return (
        *forms,
        PassForm(MATMUL_FMA, fma),
        PassForm(MATMUL_EXACT, partial(exact_text, layout=layout)),
    )


def _integer_forms(host: Host, is_signed: bool) -> tuple[PassForm, ...]:
    stem = _PREFIX + ("matmul_s8" if is_signed else "matmul_u8")
    lanes, layout = host.vector_lanes, layout_of(host)
    forms = []
    if host.has_matrix_unit and host.has("amx-int8"):
        tiles = partial(integer_tiles_text, is_signed=is_signed)
        forms.append(PassForm(f"{stem}_tiles", tiles))
    if host.has("avx512vnni" if lanes == 16 else "avxvnni"):
        write = partial(byte_dot_text, lanes=lanes, layout=layout, is_signed=is_signed)
        forms.append(PassForm(f"{stem}_bytes", write))
    if host.arch is Arch.X86_64:
        write = partial(word_dot_text, lanes=lanes, layout=layout, is_signed=is_signed)
        forms.append(PassForm(f"{stem}_words", write))
    floats = partial(portable_text, lanes=lanes, layout=layout, is_signed=is_signed)
    return (*forms, PassForm(f"{stem}_floats", floats))


FORMS: dict[str, Callable[[Host], tuple[PassForm, ...]]] = {
    "bf16": _bf16_forms,
    "s8": partial(_integer_forms, is_signed=True),
    "u8": partial(_integer_forms, is_signed=False),
}
