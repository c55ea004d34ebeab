"""HLO text run by XLA on the CPU, by the machine and by the evaluator. Needs JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src.lib import xla_client
from jaxlib import _hlo, _jax

import tpuc
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module

Array = np.ndarray[Any, Any]


def xla(text: str, args: Sequence[Array]) -> list[Array]:
    """What XLA's CPU backend computes of HLO text."""
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    client = jax.devices("cpu")[0].client
    devices = xla_client.DeviceList(tuple(client.devices()[:1]))
    stablehlo = _jax.mlir.hlo_to_stablehlo(proto)
    executable = client.compile_and_load(stablehlo, devices, xla_client.CompileOptions())
    with jax.enable_x64(True):
        buffers = [jax.device_put(a) for a in args]
    outputs = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
    return [np.asarray(output[0]) for output in outputs]


def machine(text: str, args: Sequence[Array]) -> list[Array]:
    """What the emulated chip computes."""
    results = tpuc.compile(text, precision="highest")(*args)
    return [np.asarray(r) for r in results]


def evaluator(text: str, args: Sequence[Array]) -> list[Array]:
    """What the evaluator computes."""
    with np.errstate(all="ignore"):
        return [np.asarray(r) for r in evaluate(parse_module(text), list(args), "highest")]
