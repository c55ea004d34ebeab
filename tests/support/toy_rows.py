"""A table of instructions that takes more rows for the time of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compiler.llo.op_table import op_table
from compiler.llo.row_plan import row_plan
from tpu_sim.isa.instruction import ROW_OF_CODE, ROWS

_TABLES: tuple[dict[Any, Any], ...] = (ROWS, ROW_OF_CODE)


@contextmanager
def more_rows() -> Iterator[None]:
    """Rows that are defined inside are gone behind it."""
    before = [dict(table) for table in _TABLES]
    op_table.cache_clear()
    try:
        yield
    finally:
        for table, kept in zip(_TABLES, before, strict=True):
            table.clear()
            table.update(kept)
        op_table.cache_clear()
        row_plan.cache_clear()
