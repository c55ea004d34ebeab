from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.hlo.dtypes import BF16, BY_NAME, F32, S32
from compiler.hlo.shape import ArrayShape, Layout, OpaqueShape, Shape, Tile, TokenShape, TupleShape
from compiler.hlo.shape_text import parse_shape, print_shape


def test_tiled_layout_becomes_values() -> None:
    shape = parse_shape("bf16[256,512]{1,0:T(8,128)(2,1)S(1)}")
    tiles = (Tile((8, 128)), Tile((2, 1)))
    assert shape == ArrayShape(BF16, (256, 512), Layout((1, 0), tiles, memory_space=1))


def test_index_comments_are_skipped_and_printed_at_every_fifth_element() -> None:
    shape = parse_shape("(f32[], f32[], f32[], f32[], f32[], /*index=5*/s32[2]{0})")
    assert isinstance(shape, TupleShape)
    assert shape.elements[5] == ArrayShape(S32, (2,), Layout((0,)))
    assert print_shape(shape).endswith("f32[], /*index=5*/s32[2]{0})")


def test_dynamic_dimensions_are_flagged() -> None:
    assert parse_shape("f32[2,<=3]") == ArrayShape(F32, (2, 3), None, (False, True))


def test_star_in_a_tile_combines_dimensions() -> None:
    text = "f32[2,3,4]{2,1,0:T(*,128)}"
    shape = parse_shape(text)
    assert isinstance(shape, ArrayShape)
    assert shape.layout is not None
    assert shape.layout.tiles == (Tile((-1, 128)),)
    assert print_shape(shape) == text


@pytest.mark.parametrize(
    "text",
    ["f32[2", "f32[2,x]", "f33[2]", "f32[2]{1}", "f32[2,2]{0}", "(f32[2]", "f32[2] f32[2]", ""],
)
def test_malformed_shapes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_shape(text)


def _arrays() -> st.SearchStrategy[Shape]:
    @st.composite
    def build(draw: st.DrawFn) -> ArrayShape:
        dims = tuple(draw(st.lists(st.integers(0, 999), max_size=4)))
        dtype = BY_NAME[draw(st.sampled_from(sorted(BY_NAME)))]
        if not draw(st.booleans()):
            return ArrayShape(dtype, dims)
        sizes = st.lists(st.sampled_from((-1, 1, 2, 8, 128)), min_size=1, max_size=2)
        tile = st.builds(Tile, sizes.map(tuple))
        order = tuple(draw(st.permutations(range(len(dims)))))
        tiles = tuple(draw(st.lists(tile, max_size=2)))
        extra = draw(st.sampled_from(["", "E(4)", "L(128)"]))
        layout = Layout(order, tiles, draw(st.integers(0, 6)), extra)
        return ArrayShape(dtype, dims, None if layout == Layout(()) else layout)

    return build()


_SHAPES = st.recursive(
    _arrays() | st.just(TokenShape()) | st.just(OpaqueShape()),
    lambda inner: st.builds(TupleShape, st.lists(inner, max_size=7).map(tuple)),
    max_leaves=12,
)


@given(_SHAPES)
def test_parse_inverts_print(shape: Shape) -> None:
    assert parse_shape(print_shape(shape)) == shape
