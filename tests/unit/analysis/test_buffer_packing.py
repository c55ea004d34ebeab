"""Packed buffers never overlap while both live, and memory that was freed is used again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compiler.analysis.buffer_packing import Request, pack

ALIGNMENT = 512
REQUESTS = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 40), st.integers(0, 20)), max_size=40
)


@given(REQUESTS)
def test_live_buffers_are_disjoint_and_aligned(rows: list[tuple[int, int, int]]) -> None:
    requests = [
        Request(number, size, start, start + length)
        for number, (size, start, length) in enumerate(rows)
    ]
    offsets, end = pack(requests, 1024, ALIGNMENT)
    for a in requests:
        assert offsets[a.key] % ALIGNMENT == 0
        assert offsets[a.key] >= 1024
        assert offsets[a.key] + a.size_bytes <= end
        for b in requests:
            if a.key < b.key and a.start <= b.end and b.start <= a.end:
                is_apart = (
                    offsets[a.key] + a.size_bytes <= offsets[b.key]
                    or offsets[b.key] + b.size_bytes <= offsets[a.key]
                )
                assert is_apart


def test_a_chain_needs_two_places() -> None:
    chain = [Request(i, 4096, i, i + 1) for i in range(100)]
    _, end = pack(chain, 0, ALIGNMENT)
    assert end == 2 * 4096


def test_the_smallest_block_that_fits_is_used() -> None:
    requests = [
        Request(0, 8192, 0, 3),
        Request(1, 512, 1, 9),
        Request(2, 1024, 2, 3),
        Request(3, 512, 3, 9),
        Request(4, 1024, 4, 9),
        Request(5, 8192, 5, 9),
    ]
    offsets, end = pack(requests, 0, ALIGNMENT)
    assert offsets[4] == offsets[2]
    assert offsets[5] == offsets[0]
    assert end == 8192 + 1024 + 512 + 512
