"""A plug-in of pytest's that keeps each test's outcome once it is known, and leaves out those that are kept.

`TPUC_ARRAY_API_RESULTS` names the file: a line of JSON for each test.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "TPUC_ARRAY_API_RESULTS"
VERSION = "TPUC_ARRAY_API_VERSION"
"""The variable that says what is being tested."""


def read(path: Path) -> dict[str, dict[str, str]]:
    """The last outcome kept of each test, by its name."""
    if not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {line["test"]: line for line in lines}


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out what has an outcome."""
    known = read(Path(os.environ[VARIABLE]))
    done = [item for item in items if item.nodeid in known]
    items[:] = [item for item in items if item.nodeid not in known]
    config.hook.pytest_deselected(items=done)


def pytest_runtest_logreport(report: Any) -> None:
    """Keep an outcome; of several processes, in the one that hears of all."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    if report.when != "call" and not (report.failed or report.skipped):
        return
    said = [line for line in str(report.longrepr).splitlines() if line.startswith("E  ")]
    line = {
        "test": report.nodeid,
        "outcome": report.outcome,
        "version": os.environ[VERSION],
        "message": said[0][1:].strip() if said and report.failed else "",
    }
    with open(os.environ[VARIABLE], "a") as file:
        file.write(json.dumps(line) + "\n")
