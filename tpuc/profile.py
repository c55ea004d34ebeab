"""``python -m tpuc.profile script.py [arguments]``: what each of a JAX script's functions costs on the chip.

The script runs as it would by itself on the platform tpuc; at its end a table says of each jitted
function how often it was compiled and ran, the chip's time, utilisation, HBM, and where cycles went. With
``--json FILE`` before the script the same goes to a file.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from runtime.pjrt.profile import ProgramRecord

_MOST_CAUSES = 3
"""In a column of a table."""
_WIDTH = 132


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="write the records there"
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(json_file: Path | None, script: Path, arguments: Sequence[str]) -> None:
    """Run a JAX script on the emulated chip, and say what its functions cost."""
    os.environ.setdefault("JAX_PLATFORMS", "tpuc")
    from runtime.pjrt.profile import profile

    profile.start()
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        records = profile.records()
        if json_file is not None:
            json_file.write_text(json.dumps([to_json(record) for record in records], indent=1))
        Console(width=_WIDTH, stderr=True).print(_table(records))


def to_json(record: ProgramRecord) -> dict[str, object]:
    """The JSON object of a function's record."""
    return {
        "name": record.name,
        "compiles": record.compiles,
        "compile_seconds": record.compile_seconds,
        "runs": record.runs,
        "cycles": record.cycles,
        "seconds": record.seconds,
        "mxu_utilisation": record.mxu_utilisation,
        "hbm_bytes": record.hbm_bytes,
        "hbm_peak_bytes": record.hbm_peak_bytes,
        "emulated_seconds": record.emulated_seconds,
        "causes": dict(record.causes.most_common()),
    }


def _table(records: Sequence[ProgramRecord]) -> Table:
    total = sum(record.cycles for record in records)
    table = Table(title="functions by chip time", title_justify="left")
    table.add_column("function")
    for name in ("compiles", "runs", "chip time", "share", "MXU", "HBM peak", "emulated in"):
        table.add_column(name, justify="right")
    table.add_column("cycles went to")
    for record in sorted(records, key=lambda record: -record.cycles):
        table.add_row(
            record.name,
            f"{record.compiles} ({record.compile_seconds:.2f} s)",
            f"{record.runs:,}",
            f"{record.seconds * 1e3:,.3f} ms",
            f"{record.cycles / max(1, total):.1%}",
            f"{record.mxu_utilisation:.1%}",
            f"{record.hbm_peak_bytes / 1e6:,.1f} MB",
            f"{record.emulated_seconds:.2f} s",
            _causes(record),
        )
    return table


def _causes(record: ProgramRecord) -> str:
    most = record.causes.most_common(_MOST_CAUSES)
    return ", ".join(f"{cause} {count / max(1, record.cycles):.0%}" for cause, count in most)


if __name__ == "__main__":
    main()
