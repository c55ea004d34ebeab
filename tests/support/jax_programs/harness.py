"""Runs the functions of a program whose names begin with ``check_``, and prints what came of each."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any


def run_checks(names: dict[str, Any]) -> None:
    """Call every check; the last line printed is a JSON object of tracebacks, empty for what passed."""
    found: dict[str, str] = {}
    for name, check in list(names.items()):
        if name.startswith("check_"):
            found[name] = _outcome(check)
    sys.stdout.flush()
    print(json.dumps(found), flush=True)


def _outcome(check: Callable[[], None]) -> str:
    try:
        check()
    except BaseException:
        return traceback.format_exc()
    return ""


def raises(kind: type[BaseException], part: str, function: Callable[[], object]) -> None:
    """Expect an exception whose message has `part`."""
    try:
        function()
    except kind as error:
        assert part in str(error), f"{part!r} is not in {error}"
        return
    raise AssertionError(f"no {kind.__name__} with {part!r}")
