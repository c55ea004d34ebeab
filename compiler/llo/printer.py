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

from compiler.llo.ir import LloBlock, LloIf, LloKernel, LloLoop, LloNode, LloWhile
from tpu_sim.isa.assembly import call_text, descriptor_text, loop_head, quote, while_head
from tpu_sim.isa.program import Call
from tpu_sim.isa.text import format_instr


def print_llo(kernel: LloKernel) -> str:
    """The kernel as text; `compiler.llo.parser.parse_llo` gives an equal kernel back."""
    return "\n".join(_kernel_lines(kernel)) + "\n"


def _kernel_lines(kernel: LloKernel) -> Iterator[str]:
    variables = ", ".join(f"s{sreg}" for sreg in sorted(kernel.variables))
    yield (
        f"kernel {quote(kernel.name)} args {kernel.arg_count} flags {kernel.flags} "
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
    yield from _body_lines(kernel.body, "  ")
    yield "}"


def _body_lines(nodes: list[LloNode], indent: str) -> Iterator[str]:
    inner = indent + "  "
    for node in nodes:
        match node:
            case LloBlock():
                yield f"{indent}block {quote(node.name)} {{"
                for instr in node.ops:
                    yield inner + format_instr(instr)
            case LloLoop():
                yield f"{indent}{loop_head(node)} {{"
                yield from _body_lines(node.body, inner)
            case LloIf():
                yield f"{indent}if s{node.condition} {{"
                yield from _body_lines(node.then, inner)
                if node.orelse:
                    yield f"{indent}}} else {{"
                    yield from _body_lines(node.orelse, inner)
            case LloWhile():
                yield f"{indent}{while_head(node)} {{"
                yield from _body_lines(node.test, inner)
                yield f"{indent}}} do s{node.condition} {{"
                yield from _body_lines(node.body, inner)
            case Call():
                yield f"{indent}{call_text(node)}"
                continue
        yield f"{indent}}}"
