"""LLO text in, LLO text out: chosen passes over the kernels of a ``.llo`` text, one after another.

optimized_text(text, "k.llo", chip, ["dead-code", "unroll"])      the kernels after two passes
optimized_text(text, "k.llo", chip, [*LLO_PIPELINE, "schedule"])  their bundles
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.llo.finalize import finalize_kernel, finalize_main
from compiler.llo.ir import LloKernel
from compiler.llo.parser import parse_kernels
from compiler.llo.passes.pass_manager import LloPassManager, llo_passes
from compiler.llo.passes.pipeline import LLO_PIPELINE, SCHEDULE
from compiler.llo.printer import print_llo
from compiler.llo.walk import has_call
from tpu_sim.isa.assembly import print_kernel, print_main
from tpu_sim.isa.chips import Chip


def optimized_text(text: str, file: str, chip: Chip, names: Sequence[str] = LLO_PIPELINE) -> str:
    """The kernels of a text after the passes of those names, verified before and after each.

    After the name "schedule", which can only be the last, the text is that of bundles. Raises
    CompileError for names or an order that cannot be, for wrong text and for LLO that is not valid.
    """
    check_names(names)
    return "\n".join([_optimized(k, chip, names) for k in parse_kernels(text, file)])


def check_names(names: Sequence[str]) -> None:
    """Raise CompileError for names that are no passes, or an order that cannot be."""
    llo_passes(_before_schedule(names))


def _before_schedule(names: Sequence[str]) -> Sequence[str]:
    return names[:-1] if names and names[-1] == SCHEDULE else names


def _optimized(kernel: LloKernel, chip: Chip, names: Sequence[str]) -> str:
    passes = _before_schedule(names)
    if len(passes) == len(names):
        LloPassManager(chip, llo_passes(passes)).run(kernel)
        return print_llo(kernel)
    if has_call(kernel.body):
        return print_main(finalize_main(kernel, chip, check=True, passes=passes))
    return print_kernel(finalize_kernel(kernel, chip, check=True, passes=passes))
