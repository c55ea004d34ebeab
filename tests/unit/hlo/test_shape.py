"""Shapes as values: how they print themselves, where a tuple's arrays are among all of them."""

from __future__ import annotations

from compiler.hlo.dtypes import F32
from compiler.hlo.shape import ArrayShape, Layout, Tile, TokenShape, TupleShape, array, leaves


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


def test_a_shape_prints_itself_as_hlo_has_it() -> None:
    assert repr(array(F32, 8, 128)) == "f32[8,128]"
    assert repr([array(F32), array(F32, 0)]) == "[f32[], f32[0]]"
    tiled = ArrayShape(F32, (8, 128), Layout((1, 0), (Tile((8, 128)),), memory_space=1))
    assert repr(tiled) == "f32[8,128]{1,0:T(8,128)S(1)}"
    assert f"{TupleShape((tiled,))}" == f"TupleShape(elements=({tiled},))"
