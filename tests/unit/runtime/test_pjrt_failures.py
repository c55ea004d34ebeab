"""What of an error JAX is told."""

from __future__ import annotations

import pytest

from compiler.diagnostics import ResourceExhaustedError, UnsupportedError
from runtime.pjrt.failures import coded
from runtime.pjrt.layouts import ErrorCode


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            ResourceExhaustedError("RESOURCE_EXHAUSTED: no room"),
            ErrorCode.RESOURCE_EXHAUSTED,
            b"no room",
        ),
        (UnsupportedError("%x: f64 is not"), ErrorCode.UNIMPLEMENTED, b"%x: f64 is not"),
        (KeyboardInterrupt(), ErrorCode.CANCELLED, b"interrupted: "),
        (ValueError("odd"), ErrorCode.INTERNAL, b"ValueError: odd"),
    ],
)
def test_code_and_message(error: BaseException, code: int, message: bytes) -> None:
    """JAX writes the name of the code before the message."""
    assert coded(error) == (code, message)
