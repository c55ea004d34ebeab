"""The optimised program of an executable, in a form that jaxlib takes for ``as_text()``."""

from __future__ import annotations

from typing import Any

from jaxlib import xla_client

from runtime.executable import Executable
from runtime.pjrt.protobuf import bytes_field, fields, number_field
from runtime.pjrt.signature import Signature

FORM = b"hlo_with_config"
_HOST_PROGRAM_SHAPE = 4


def optimized_program(executable: Executable, signature: Signature) -> bytes:
    """An `HloModuleProtoWithConfig` of the HLO after all passes."""
    native: Any = vars(xla_client)["_xla"]  # a private name, as all of jaxlib that reads HLO text
    module = native.hlo_module_from_text(executable.text("hlo"))
    proto = module.as_serialized_hlo_module_proto()
    shape = next(v for n, v in fields(proto) if n == _HOST_PROGRAM_SHAPE and isinstance(v, bytes))
    config = bytes_field(1, shape) + number_field(4, 1) + number_field(5, 1)
    return bytes_field(1, proto) + bytes_field(2, config)
