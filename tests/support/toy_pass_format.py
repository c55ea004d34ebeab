"""A format of MXU passes beside the ISA's own: low bytes alone, signed. Prints whether machines agree.

What it adds is what docs/adding-an-instruction.md names: a row, and a kernel for each machine.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tpu_sim.interp import mxu
from tpu_sim.isa.rows.mxu import matrix_pass
from tpu_sim.jit import pass_forms
from tpu_sim.jit.host import Host
from tpu_sim.jit.integer_passes import portable_text
from tpu_sim.jit.weight_layout import layout_of


def _forms(host: Host) -> tuple[pass_forms.PassForm, ...]:
    write = partial(portable_text, lanes=host.vector_lanes, layout=layout_of(host), is_signed=True)
    return (pass_forms.PassForm("tpuc_kernel_v1_matmul_toy", write),)


matrix_pass("toy", 200, "vmatmul of signed bytes, by another name", "int8_rate")
mxu.PASSES["toy"] = partial(mxu.integer_pass_rows, is_signed=True)
pass_forms.FORMS["toy"] = _forms


def main() -> None:
    """Multiply on both machines."""
    from tests.differential.test_machines_agree import CHIP, HBM_BYTES, run_both
    from tests.support.random_programs import BlockBuilder
    from tpu_sim.isa.control_flow import Call
    from tpu_sim.isa.program import HBM, VMEM, DmaDescriptor, Kernel, Program, Window

    builder = BlockBuilder(CHIP)
    builder.emit("dma.start", 0, 0, 0, 0, 0, 0, 0)
    builder.emit("dma.wait", 0, 0)
    load = builder.finish("load")
    builder = BlockBuilder(CHIP)
    builder.emit("vld", 1, 0, 0, 0, 1)
    for row in range(8):
        builder.emit("vmatpush.bf16", 0, 1, row)
    builder.emit("vmatswap", 0)
    builder.emit("vmatmul.toy", 0, 1)
    for number in (2, 3):
        builder.emit("vpop.mrf", number, 0)
        builder.emit("vst", 1, 0, 8 * (number - 2), 1, number)
    compute = builder.finish("compute")
    builder = BlockBuilder(CHIP)
    builder.emit("smovi", 1, 96)
    builder.emit("dma.start", 1, 0, 1, 0, 0, 0, 0)
    builder.emit("dma.wait", 0, 0)
    windows = [Window("in", 0, 8), Window("out", 8, 16)]
    copies = [DmaDescriptor(HBM, VMEM, 8, (), 0), DmaDescriptor(VMEM, HBM, 16, (), 1)]
    kernel = Kernel("k", 0, windows, copies, [load, compute, builder.finish("store")], flags=1)
    program = Program("v5e", {"k": kernel}, [Call("k")], [], [], HBM_BYTES, 1024)
    words = np.random.default_rng(0).integers(0, 2**32, (8, 128), np.uint32)
    plain, native = run_both(program, words.tobytes())
    assert plain[96 * 128 : 112 * 128].any()
    print("equal" if np.array_equal(plain, native) else "different")


if __name__ == "__main__":
    main()
