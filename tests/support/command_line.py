"""What tests of the command line share: a small model, and how a command ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MODEL = """HloModule m, entry_computation_layout={(f32[8,128]{1,0})->f32[8,128]{1,0}}

ENTRY e {
  x = f32[8,128]{1,0} parameter(0)
  ROOT y = f32[8,128]{1,0} add(x, x)
}
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Call = Callable[..., Done]
