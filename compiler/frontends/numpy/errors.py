"""Errors of traced functions: each is a `CompileError` and of the class that NumPy raises for the same call.

So a program that catches ValueError, TypeError or IndexError around NumPy's functions works on traced arrays,
too. What a rule or the HLO builder refuses without saying which class becomes a `BadValueError` (`of_numpy`):
shapes that do not fit, which are ValueErrors of NumPy's.
"""

from __future__ import annotations

import numpy as np

from compiler.diagnostics import CompileError


class BadValueError(CompileError, ValueError):
    """Shapes that do not fit together, an option that there is not."""


class BadTypeError(CompileError, TypeError):
    """An element type that the function is not defined for, an argument of the wrong kind."""


class BadIndexError(CompileError, IndexError):
    """An index outside of its axis, too many of them, or what is no index."""


class BadNumberError(CompileError, OverflowError):
    """A Python integer that the element type does not hold."""


class BadMatrixError(CompileError, np.linalg.LinAlgError):
    """Not the matrix that a function of linear algebra wants."""


class UnknownValueError(CompileError, TypeError):
    """Python asks for the value of an array that has none yet."""


class BadAxisError(CompileError, np.exceptions.AxisError):
    """An axis that an array does not have."""

    def __init__(self, axis: int, rank: int) -> None:
        message = f"axis {axis} is out of range for an array of {rank} dimensions"
        CompileError.__init__(self, message)
        self._msg, self.axis, self.ndim = None, axis, rank

    def __str__(self) -> str:
        return self.message


def of_numpy(error: CompileError) -> CompileError:
    """`error`, as a ValueError if nothing was said of what it is."""
    return BadValueError(error.message, error.span) if type(error) is CompileError else error
