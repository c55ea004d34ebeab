"""Machine code for any host that this LLVM knows, whatever host this is."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from tpu_sim.jit.emitter import TARGET_ATTRIBUTES
from tpu_sim.jit.host import Arch, Host
from tpu_sim.jit.lanes import intrinsic_declarations

TRIPLES = {Arch.X86_64: "x86_64-unknown-linux-gnu", Arch.AARCH64: "aarch64-unknown-linux-gnu"}
LIBRARY_LEVEL, PROGRAM_LEVEL = 2, 0


def object_and_assembly(text: str, host: Host, level: int) -> tuple[bytes, str]:
    """A module of IR text compiled for `host`; skips the test if this LLVM cannot."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = TRIPLES[host.arch]
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(f"this LLVM has no target {triple}")
    machine = target.create_target_machine(
        cpu=host.cpu, features=host.features, opt=level, codemodel="small", reloc="pic"
    )
    module = llvm.parse_assembly(text + intrinsic_declarations(text) + TARGET_ATTRIBUTES)
    module.triple = triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return machine.emit_object(module), str(machine.emit_assembly(module))
