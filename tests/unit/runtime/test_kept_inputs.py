"""Inputs stay resident between calls, so a program must leave them as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime.api import compile, device_put
from tpuc.arrays import load_arrays

pytestmark = pytest.mark.slow

DATA = Path(__file__).resolve().parents[2] / "data"
MODELS = [
    "cg_while_tiny",
    "heat_stencil_tiny",
    "kmeans_tiny",
    "llama_fwd_scan_tiny",
    "lstm_train_tiny",
    "mlp_train_tiny",
]


@pytest.mark.parametrize("name", MODELS)
def test_inputs_survive_a_call_and_results_repeat(name: str) -> None:
    executable = compile(DATA / f"{name}.hlo")
    shapes = [port.shape for port in executable.inputs]
    hosts = load_arrays(str(DATA / f"{name}.npz"), "in", shapes)
    arguments = [device_put(host) for host in hosts]
    first = [np.asarray(out).tobytes() for out in executable(*arguments)]
    assert any(port.is_kept for port in executable.inputs) or not shapes
    for argument, host, port in zip(arguments, hosts, executable.inputs, strict=True):
        if not port.is_kept:
            continue
        fresh = device_put(host)
        for plane, wanted, buffer in zip(
            argument.planes(), fresh.planes(), port.buffers, strict=True
        ):
            in_arena = executable._loaded[executable.device].arena.hbm.view(
                buffer.offset_bytes, plane.size
            )
            assert in_arena.tobytes() == plane.tobytes() == wanted.tobytes()
    assert [np.asarray(out).tobytes() for out in executable(*arguments)] == first
    assert [np.asarray(out).tobytes() for out in executable(*hosts)] == first
