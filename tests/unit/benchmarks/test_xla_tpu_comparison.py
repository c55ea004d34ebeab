"""The comparison with XLA:TPU's estimates: products are counted, matched and summed up."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.xla_tpu_comparison import __main__ as command
from benchmarks.xla_tpu_comparison.matching import match
from benchmarks.xla_tpu_comparison.ours import Estimator, OurKernel, Ours
from benchmarks.xla_tpu_comparison.records import Product, Record, XlaKernel, read_records

TEXT = """HloModule dot
ENTRY main {
  a = bf16[512,512] parameter(0)
  b = bf16[512,512] parameter(1)
  ROOT d = bf16[512,512] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def folder_of(tmp_path: Path, dot: dict[str, Any], cycles: int = 10168) -> Path:
    """A folder of one record of one kernel."""
    record = {
        "estimated_cycles": cycles, "kernels": 1, "kernels_with_estimate": 1, "hbm_bytes": 1572864,
        "vmem_result_bytes": 0, "loops": [], "entry": [{"scoped_vmem": 4096}], "mesh": None,
    }  # fmt: skip
    kernel = {
        "w": "square/n=512", "c": "v5e", "n": "fusion", "op": "fusion", "k": "kOutput", "cyc": cycles,
        "ops": {"convolution": 1}, "dot": [dot],
    }  # fmt: skip
    workload = {"id": "square/n=512", "family": "square", "input": "inputs/square.hlo"}
    (tmp_path / "manifest.json").write_text(json.dumps({"open": [workload]}))
    (tmp_path / "open.square.json").write_text(json.dumps({"square/n=512": {"v5e": record}}))
    (tmp_path / "open.kernels.jsonl").write_text(json.dumps(kernel) + "\n")
    with zipfile.ZipFile(tmp_path / "inputs.zip", "w") as archive:
        archive.writestr("square.hlo", TEXT)
    return tmp_path


def dot_of(
    left: list[int], right: list[int], out: list[int], labels: str, window: str | None = None
) -> dict[str, Any]:
    arrays = {"lhs": ["bf16", *left], "rhs": ["bf16", *right], "out": ["bf16", *out]}
    return {**arrays, "dim_labels": labels, "window": window}


SQUARE = dot_of([512, 512], [512, 512], [512, 512], "bf_io->bf")


@pytest.mark.parametrize(
    ("dot", "expected"),
    [
        (SQUARE, Product(512**3, 512**3, 512**2, False)),
        (
            dot_of([16, 8, 4], [16, 4, 8], [16, 8, 8], "0bf_0io->0bf", "{size=16 stride=15 lhs_dilate=16}"),
            Product(16 * 8 * 8 * 4, 16 * 16 * 8 * 8 * 4, 16 * 8 * 8, False),
        ),
        (
            dot_of([2, 6, 8], [3, 8, 4], [2, 6, 4], "b0f_0io->b0f", "{size=3 pad=1_1}"),
            Product(2 * 16 * 8 * 4, 2 * 18 * 8 * 4, 2 * 6 * 4, True),
        ),
    ],
)  # fmt: skip
def test_multiply_adds(dot: dict[str, Any], expected: Product, tmp_path: Path) -> None:
    (record,) = read_records(folder_of(tmp_path, dot), "v5e")
    assert record.parts[0].products == (expected,)


def kernel(name: str, cycles: int, multiply_adds: int, calls: int = 1) -> OurKernel:
    return OurKernel(name, calls, cycles, multiply_adds, 64, 0, name, {"mxu": cycles})


def test_kernels_match_by_their_products() -> None:
    parts = tuple(
        XlaKernel(f"x{n}", "kOutput", 100, 1, (Product(work, work, 64, False),), True)
        for n, work in enumerate((1000, 1000, 2000, 3000))
    )
    record = Record("r", "f", "", 400, 4, 0, 0, 0, parts)
    ours = (kernel("a", 90, 1000), kernel("b", 130, 1000), kernel("c", 50, 2000), kernel("d", 7, 5))
    matches, missing = match(record, Ours(parts=ours))
    assert [(m.our_names, m.count, m.ratio) for m in matches] == [
        (("a", "b"), 2, 1.1),
        (("c",), 1, 0.5),
    ]
    assert [k.name for k in missing] == ["x3"]


def test_the_command_writes_its_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path, SQUARE)
    out, into = tmp_path / "page.md", tmp_path / "accuracy.md"
    into.write_text("# Accuracy\n\nkept\n")
    options = ["--out", str(out), "--into", str(into), "--cache", str(tmp_path / "cache")]
    monkeypatch.setattr(sys, "argv", ["xla_tpu_comparison", str(folder), *options])
    assert command.main() == 0
    ours = Estimator("v5e", tmp_path / "cache").estimate(TEXT)
    row = next(line for line in out.read_text().splitlines() if line.startswith("| square/n=512"))
    assert f"| {ours.cycles:,} | 10,168 | {ours.cycles / 10168:.2f} |" in row
    assert "kept" in into.read_text() and "| dots up to 10 us | 1 |" in into.read_text()
    written = into.read_text()
    assert command.main() == 0
    assert into.read_text() == written
