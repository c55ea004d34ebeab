"""Digits that describe known places give the places back."""

import numpy as np
import pytest

from compiler.analysis.affine_boxes import parts_of
from compiler.analysis.affine_places import Pieces, Places, pieces_of

_REPEATED = np.arange(12) // 3
_RING = (np.arange(16) + 5) % 16
_REFLECTED = np.concatenate([[2, 1], np.arange(9), [7, 6]])
_UNEVEN = np.array([0, 1, 1, 2, 3, 3, 4, 5, 5])
_PAIRS = np.array([(i, 3 - j) for i in range(5) for j in range(4)])


def _numbers(places: Places) -> np.ndarray:
    found = np.array([places.first])
    for digit in places.digits:
        moved = found[:, None] + np.arange(digit.size)[None, :, None] * np.array(digit.steps)
        found = moved.reshape(-1, len(places.first))
    return found


def _all(pieces: Pieces, components: int) -> np.ndarray:
    found = np.full((pieces.periods, pieces.length, components), -1)
    for part in pieces.parts:
        shape = (pieces.periods, part.end - part.begin, components)
        found[:, part.begin : part.end] = _numbers(part.places).reshape(shape)
    return found.reshape(-1, components)


@pytest.mark.parametrize(
    ("starts", "parts"),
    [
        (_REPEATED, 1),
        (_RING, 2),
        (_REFLECTED, 3),
        (_UNEVEN, 2),
        (_PAIRS, 1),
        (np.arange(7, -1, -1), 1),
        (np.zeros(5, int), 1),
        (np.array([4]), 1),
        (np.tile(_RING, 3), 2),
    ],
)
def test_digits_give_the_places_back(starts: np.ndarray, parts: int) -> None:
    vectors = starts.reshape(len(starts), -1).astype(np.int64)
    pieces = pieces_of(vectors, 8)
    assert pieces is not None
    assert len(pieces.parts) == parts
    np.testing.assert_array_equal(_all(pieces, vectors.shape[1]), vectors)


def test_places_without_order_have_no_digits() -> None:
    shuffled = np.random.default_rng(0).permutation(40)
    assert pieces_of(shuffled.reshape(-1, 1), 8) is None
    assert pieces_of(np.zeros((0, 1), np.int64), 8) is None


def test_windows_that_overlap_are_cut() -> None:
    places = pieces_of(np.arange(0, 640, 160).reshape(-1, 1), 1)
    assert places is not None
    parts = parts_of(places.parts[0].places, (400,), 8)
    assert parts is not None
    assert [(part.box.firsts, part.windows) for part in parts] == [
        ((0,), (160,)),
        ((160,), (160,)),
        ((320,), (80,)),
    ]
    assert parts_of(places.parts[0].places, (400,), 2) is None


def test_a_diagonal_is_no_box() -> None:
    diagonal = pieces_of(np.array([(i, i) for i in range(6)]), 1)
    assert diagonal is not None
    assert parts_of(diagonal.parts[0].places, (1, 1), 8) is None
