"""What a program is: a JAX function, and its arguments at a small and at a real size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

Array = Any


@dataclass(frozen=True)
class Argument:
    """Shape and type of an argument, and the range its random values come from."""

    dims: tuple[int, ...]
    dtype: str = "float32"
    low: float = -1.0
    high: float = 1.0

    def value(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """Random values; integers without the upper end."""
        if np.dtype(self.dtype).kind in "iu":
            return rng.integers(int(self.low), int(self.high), self.dims).astype(self.dtype)
        return rng.uniform(self.low, self.high, self.dims).astype(self.dtype)


def integers(*dims: int, below: int, dtype: str = "int32") -> Argument:
    """Integers from 0 up."""
    return Argument(dims, dtype, 0, below)


def key() -> Argument:
    """A key of random numbers."""
    return integers(2, below=1 << 31, dtype="uint32")


Made = tuple[Callable[..., Array], Sequence[Argument]]
Maker = Callable[..., Made]


@dataclass(frozen=True)
class Program:
    """A program by name, with the sizes that its maker takes, and how far its values may be from JAX's, as a
    share of an output's largest element."""

    name: str
    make: Maker
    small: dict[str, int]
    real: dict[str, int]
    tolerance: float

    def hlo(self, *, is_small: bool) -> str:
        """The HLO text that JAX hands to XLA."""
        function, arguments = self.make(**(self.small if is_small else self.real))
        shapes = [jax.ShapeDtypeStruct(a.dims, np.dtype(a.dtype)) for a in arguments]
        lowered = jax.jit(function, keep_unused=True).lower(*shapes)
        return str(lowered.compiler_ir("hlo").as_hlo_text(True))


PROGRAMS: dict[str, Program] = {}
TOLERANCE = 2e-3
"""Of programs that state none."""


def program(
    small: dict[str, int], real: dict[str, int], tolerance: float = TOLERANCE
) -> Callable[[Maker], Maker]:
    """Note a maker under its name."""

    def note(make: Maker) -> Maker:
        PROGRAMS[make.__name__] = Program(make.__name__, make, small, real, tolerance)
        return make

    return note
