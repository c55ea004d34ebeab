"""The order in which an array lies where a program meets the host."""

from __future__ import annotations

from compiler.analysis.port_order import port_order
from compiler.hlo.dtypes import BF16, F32


def test_short_last_dimensions_make_room_for_long_ones() -> None:
    assert port_order(F32, (32, 224, 224, 3)) == (0, 3, 1, 2)
    assert port_order(F32, (65536, 3)) == (1, 0)
    assert port_order(BF16, (8, 2048, 4, 1)) == (0, 3, 2, 1)
    assert port_order(F32, (1, 64, 96, 96, 1)) == (0, 1, 4, 2, 3)


def test_what_wastes_little_or_is_small_is_descending() -> None:
    for dims in ((), (7,), (4096, 64), (64, 3), (3, 3, 3, 64), (0, 5, 3)):
        assert port_order(F32, dims) == tuple(range(len(dims)))


def test_columns_of_a_table_are_rows_where_they_are_looked_up() -> None:
    assert port_order(F32, (10_000_000, 3), (1,)) == (1, 0)
    assert port_order(F32, (10_000_000, 3), (0,)) == (0, 1)
