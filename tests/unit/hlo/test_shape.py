"""Where the arrays of a tuple's elements are among all of them."""

from __future__ import annotations

from compiler.hlo.dtypes import F32
from compiler.hlo.shape import TokenShape, TupleShape, array, leaves


def test_leaf_offsets_count_the_arrays_before_each_element() -> None:
    pair = TupleShape((array(F32, 2), array(F32, 3)))
    shape = TupleShape((array(F32, 1), pair, TokenShape(), TupleShape(()), pair))
    assert shape.leaf_offsets == (0, 1, 3, 3, 3, 5)
    assert shape.leaf_offsets[-1] == len(leaves(shape))
    assert leaves(shape)[shape.leaf_offsets[4]] == array(F32, 2)


def test_leaf_offsets_are_worked_out_once_and_change_no_equality() -> None:
    shape, other = (TupleShape((array(F32, 1), array(F32, 2))) for _ in range(2))
    assert shape.leaf_offsets is shape.leaf_offsets
    assert shape == other
    assert hash(shape) == hash(other)
