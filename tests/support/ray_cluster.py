"""A Ray cluster of this computer, for tests of what runs on workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def local_cluster(processors: int) -> Iterator[Any]:
    """Ray, started here, for so many tasks at once; the test is skipped without Ray."""
    ray = pytest.importorskip("ray", reason="workers need the package ray: pip install 'tpuc[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=processors, **quiet)
    yield ray
    ray.shutdown()
