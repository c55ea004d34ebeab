"""What exchanges hold in HBM: the same bytes in the report, the program's buffers, the page and xprof."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.options import CompileOptions
from runtime.api import compile
from runtime.machines import MachineOptions
from runtime.xspace_memory import lives
from tpuc.view.collect import ViewOptions, collect

SLICES = Path(__file__).resolve().parents[3] / "examples" / "slice"
TARGET = "v5e:4x2"


@pytest.mark.parametrize("model", ["dp_train.hlo", "tp_mlp_train.hlo", "ring_attention.hlo"])
def test_buffers_end_where_the_programs_memory_does(model: str) -> None:
    report = compile(SLICES / model, target=TARGET).estimate()
    assert report.traced is not None
    program = report.traced[0]
    tables = [b for b in program.buffers if b.name.endswith(" table")]
    ends = [b.offset_bytes + b.size_bytes for b in program.buffers]
    assert bool(tables) == (model != "ring_attention.hlo")  # permutes read nothing
    assert all(table.kind == "constant" for table in tables)
    assert max(ends) == program.hbm_bytes == report.hbm_peak_bytes
    sites = {run.site or run.name for run in report.traced[2].kernels}
    assert {table.name.split(" ")[0] for table in tables} <= sites


def test_partial_sums_are_there_while_their_reduction_runs() -> None:
    program = compile(SLICES / "dp_train.hlo", target=TARGET).program
    sites, found = lives(program)
    (sums,) = (life for life in found if life.buffer.name.endswith(" partial sums"))
    assert sums.buffer.kind == "temp"
    assert sums.first == sums.last == sites.index(sums.buffer.name.split(" ")[0])
    others = [life.buffer for life in found if life is not sums]
    assert all(
        b.offset_bytes + b.size_bytes <= sums.buffer.offset_bytes
        or sums.buffer.offset_bytes + sums.buffer.size_bytes <= b.offset_bytes
        for b in others
    )


def test_the_page_says_what_the_report_says() -> None:
    options = ViewOptions(TARGET, CompileOptions(), MachineOptions())
    main = collect((SLICES / "dp_train.hlo").read_text(), "dp", options).main
    assert main.memory.peak_bytes == main.totals["HBM peak bytes"]
    names = {buffer.name: buffer for buffer in main.memory.buffers}
    (sums,) = (buffer for name, buffer in names.items() if name.endswith(" partial sums"))
    assert sums.live[0] <= sums.live[1] < max(b.live[1] for b in main.memory.buffers)
    table = next(buffer for name, buffer in names.items() if name.endswith(" table"))
    assert table.kind == "constant" and table.live[0] == 0
