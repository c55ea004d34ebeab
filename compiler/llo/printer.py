"""The ``.llo`` text of a kernel: `print_llo`.  `parser` reads it back.

    kernel "double" args 0 flags 0 flops 0 ops 0 least 0 variables [] note "" {
      window w0 "x" rows 64
      block "" {
        smovi s1 = 8
      }
      loop s2 = 0 .. 8 "rows" {
        block "" {
          sshli s3 = s2, 3
          vld v0 = [w0 + s3 + 0] stride 1
          vadd.f32 v1 = v0, v0
          vst [w0 + s3 + 0] stride 1, v1
        }
      }
    }

One item per line; control flow and descriptors are written as in ``.tpu`` (`tpu_sim.isa.assembly`).
After the descriptors may stand ``spill 4``, the spill slots in use, and ``registers [s1 = 3, s2 = 1]``,
the physical registers of all sregs; passes put them there.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.llo.ir import LloBlock, LloKernel
from tpu_sim.isa.assembly import control_lines, cores_text, descriptor_text, quote
from tpu_sim.isa.text import format_instr


def print_llo(kernel: LloKernel) -> str:
    """The kernel as text; `compiler.llo.parser.parse_llo` gives an equal kernel back."""
    return "\n".join(_kernel_lines(kernel)) + "\n"


def _kernel_lines(kernel: LloKernel) -> Iterator[str]:
    variables = ", ".join(f"s{sreg}" for sreg in sorted(kernel.variables))
    yield (
        f"kernel {quote(kernel.name)} args {kernel.arg_count} flags {kernel.flags} {cores_text(kernel.cores)}"
        f"flops {kernel.flops} ops {kernel.element_ops} least {kernel.least_bytes} "
        f"variables [{variables}] note {quote(kernel.note)} {{"
    )
    for number, window in enumerate(kernel.windows):
        place = f" at {window.place}" if window.place >= 0 else ""
        yield f"  window w{number} {quote(window.name)} rows {window.rows}{place}"
    for number, descriptor in enumerate(kernel.descriptors):
        yield f"  descriptor d{number} {descriptor_text(descriptor)}"
    if kernel.spill_slots:
        yield f"  spill {kernel.spill_slots}"
    if kernel.registers:
        assigned = sorted(item for item in kernel.registers.items() if item[0])
        yield f"  registers [{', '.join(f's{sreg} = {number}' for sreg, number in assigned)}]"
    yield from control_lines(kernel.body, "  ", _block_lines)
    yield "}"


def _block_lines(block: LloBlock, indent: str) -> Iterator[str]:
    return (indent + format_instr(instr) for instr in block.ops)
