"""Errors as PJRT has them: a code, and a message that begins with what JAX users look for."""

from __future__ import annotations

from compiler.diagnostics import CompileError, ResourceExhaustedError, UnsupportedError
from runtime.pjrt.layouts import ErrorCode
from runtime.pjrt.native import leaves
from runtime.queue import RunInterruptedError
from tpu_sim.isa.chips import ChipError


class PjrtError(Exception):
    """An error with a code of its own."""

    def __init__(self, message: str, code: int = ErrorCode.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.code = code


_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (ResourceExhaustedError, ErrorCode.RESOURCE_EXHAUSTED),
    (UnsupportedError, ErrorCode.UNIMPLEMENTED),
    (CompileError, ErrorCode.INVALID_ARGUMENT),
    (ChipError, ErrorCode.INVALID_ARGUMENT),
    (RunInterruptedError, ErrorCode.CANCELLED),
    (KeyboardInterrupt, ErrorCode.CANCELLED),
)
_EXHAUSTED = "RESOURCE_EXHAUSTED: "


def coded(error: BaseException) -> tuple[int, bytes]:
    """The code and the message of an error."""
    if isinstance(error, PjrtError):
        return error.code, str(error).encode()
    for kind, code in _CODES:
        if isinstance(error, kind):
            name = "interrupted: " if code == ErrorCode.CANCELLED else ""
            text = str(error).removeprefix(_EXHAUSTED)  # JAX writes the name of the code before
            return code, f"{name}{text}".encode()
    return ErrorCode.INTERNAL, f"{type(error).__name__}: {error}".encode()


def error_handle(error: BaseException) -> int:
    """A new error for PJRT, which will destroy it."""
    code, message = coded(error)
    handle: int = leaves().error_new(code, message, len(message))
    return handle
