"""Protocol buffers for tests, put together field by field."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from compiler.protobuf import bytes_field, number_field

DATA = Path(__file__).resolve().parents[1] / "data" / "hlo_proto"


def _f32_literal(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    dims = b"".join(number_field(3, size) for size in values.shape)
    order = b"".join(number_field(1, dim) for dim in reversed(range(values.ndim)))
    shape = number_field(2, 11) + dims + bytes_field(5, order)
    return bytes_field(1, shape) + bytes_field(8, values.tobytes())


def snapshot(result: float) -> bytes:
    """An HloSnapshot of ``dot_bias_relu.hlo`` on ones, whose result is said to be `result` everywhere."""
    module = (DATA / "dot_bias_relu.pb").read_bytes()
    arguments = [np.ones(dims, np.float32) for dims in ((256, 512), (512, 384), (384,))]
    wanted = np.full((256, 384), result, np.float32)
    held = b"".join(bytes_field(2, _f32_literal(a)) for a in arguments)
    return bytes_field(1, bytes_field(1, module)) + held + bytes_field(3, _f32_literal(wanted))
