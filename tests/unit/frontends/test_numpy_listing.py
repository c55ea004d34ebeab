"""The page that lists NumPy's functions says what tracing's tables say."""

from __future__ import annotations

from benchmarks.numpy_functions import PAGE, listed, listing


def test_the_page_lists_what_is_traced() -> None:
    """Names that only this NumPy has, or lacks, are no matter of the page."""
    page, now = listed(PAGE.read_text()), listed(listing())
    assert len(now) > 200
    assert len(page ^ now) <= 5, "run python -m benchmarks.numpy_functions --write"
