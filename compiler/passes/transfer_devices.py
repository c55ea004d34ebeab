"""Which device of several makes a transfer with the host: noted before the program is partitioned.

JAX says it by the sharding of a ``send-done`` or ``recv-done``: one device's where the callback is the whole
program's, none or all devices' where the program is each device's own (`shard_map`). What is sent is whole
on each device then, so that no sharding needs to be known.
"""

from __future__ import annotations

from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.sharding import HloSharding
from compiler.passes.sharding.statements import SHARDY

_DONE = ("send-done", "recv-done")
_NOTE = "host_transfer_device"


def note_transfer_devices(module: HloModule) -> None:
    """Turn the shardings of transfers with the host into notes that partitioning leaves as they are."""
    for computation in module.computations.values():
        for instr in computation:
            if instr.opcode in _DONE and instr.attrs.get("is_host_transfer"):
                _note(instr)


def _note(done: HloInstruction) -> None:
    sharding = done.attrs.pop("sharding", None)
    parts = (sharding.elements or (sharding,)) if isinstance(sharding, HloSharding) else ()
    device = next((part.device for part in parts if part.kind == "maximal"), None)
    note = () if device is None else ((_NOTE, f'"{device}"'),)
    for half in (done, done.operands[0]):  # partitioning may put a tuple between the two
        said = half.attrs.pop("frontend_attributes", None)
        kept = said.items if isinstance(said, FrontendAttributes) else ()
        items = (*(item for item in kept if not item[0].startswith(SHARDY)), *note)
        if items:
            half.attrs["frontend_attributes"] = FrontendAttributes(items)


def transfer_device(transfer: HloInstruction) -> int | None:
    """The one device that makes a transfer, a half of one; None if each one does."""
    said = transfer.attrs.get("frontend_attributes")
    device = said.get(_NOTE) if isinstance(said, FrontendAttributes) else None
    return None if device is None else int(device)
