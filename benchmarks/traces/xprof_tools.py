"""Ask xprof's own tools what they make of an XSpace (``--trace NAME.xplane.pb``).

    python -m benchmarks.traces.xprof_tools NAME.xplane.pb [NAME.xplane.pb ..]

It fails if a tool refuses the file or shows nothing of it. Needs the package `xprof` (`pip install xprof`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler.protobuf import Message

_NUMBER = re.compile(r"[\d.]+")
Facts = dict[str, float]


def _overview(data: Any) -> Facts:
    about = _properties(data)
    return {
        "step ms": _number(about["steptime_ms_average"]),
        "MXU %": _number(about["mxu_utilization_percent"]),
        "HBM %": _number(about["hbm_utilization_percent"]),
        "dearest operations": len(data[0]["rows"]),
    }


def _op_profile(data: Any) -> Facts:
    metrics = data["byProgram"]["metrics"]
    found: Facts = {"ms": metrics["rawTime"] / 1e9, "HBM share": metrics["bandwidthUtils"][0]}
    return found | {"programs": len(data["byProgram"]["children"])}


def _memory(data: Any) -> Facts:
    return {"peak MiB": max(data["heapSizes"]), "buffers at the peak": len(data["maxHeap"])}


def _trace(data: Any) -> Facts:
    slices = [event for event in data["traceEvents"] if event.get("ph") == "X"]
    return {"slices": len(slices), "devices": len({event["pid"] for event in slices})}


def _roofline(data: Any) -> Facts:
    about = _properties(data)
    rows: Facts = {"rows": len(data[0]["rows"])}
    return rows | {"ridge FLOP/byte": float(about["hbm_ridge_point"])}


def _table(data: Any) -> Facts:
    return {"rows": len((data[0] if isinstance(data, list) else data)["rows"])}


TOOLS: dict[str, Callable[[Any], Facts]] = {
    "overview_page": _overview,
    "op_profile": _op_profile,
    "memory_viewer": _memory,
    "trace_viewer@": _trace,
    "roofline_model": _roofline,
    "hlo_stats": _table,
    "framework_op_stats": _table,
}
"""By name, what is asked of a tool's answer."""


def _properties(tables: Any) -> dict[str, str]:
    return {name: value for table in tables for name, value in (table.get("p") or {}).items()}


def _number(text: str) -> float:
    found = _NUMBER.search(text)
    return float(found[0]) if found else 0.0


def ask(path: Path, module: str) -> dict[str, Facts]:
    """What each of `TOOLS` says of an XSpace with a module of that name."""
    converter = importlib.import_module("xprof.convert.raw_to_tool_data")
    found: dict[str, Facts] = {}
    with tempfile.TemporaryDirectory() as folder:  # xprof writes what it worked out beside the file
        copy = Path(folder) / "host.xplane.pb"
        shutil.copyfile(path, copy)
        converter.xspace_to_tool_names(
            [str(copy)]
        )  # lays the modules beside it, for the memory viewer
        for tool, facts in TOOLS.items():
            options = {"module_name": module, "memory_space": "0"}
            data, _ = converter.xspace_to_tool_data([str(copy)], tool, options)
            found[tool] = facts(json.loads(data)) if data else {}
    return found


def modules(path: Path) -> list[str]:
    """What an XSpace calls its modules: the kinds of events of the plane that has their buffers."""
    planes = Message(path.read_bytes()).messages(1)
    kinds = [
        kind for plane in planes if plane.text(2) == "/host:metadata" for kind in plane.messages(4)
    ]
    return [kind.message(2).text(2) for kind in kinds]


def main() -> int:
    """Print what each tool says of each file; 1 if one says nothing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="NAME.xplane.pb")
    code = 0
    for path in parser.parse_args().files:
        print(path)
        for tool, facts in ask(path, modules(path)[0]).items():
            is_empty = not any(facts.values())
            code |= is_empty
            shown = ", ".join(f"{name} {value:,.4g}" for name, value in facts.items())
            print(f"  {tool:20}{'NOTHING: ' if is_empty else ''}{shown}")
    return code


if __name__ == "__main__":
    sys.exit(main())
