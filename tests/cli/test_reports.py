"""What a report says for people and for programs: order, CSV, schema, energy, price; narrow terminals."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import tpuc
from tests.support.command_line import Call
from tpuc import tables

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ROOT / "examples" / "mlp.hlo"


@pytest.fixture(scope="module")
def executable() -> tpuc.Executable:
    return tpuc.compile(str(LAYERS))


@pytest.mark.parametrize("command", ["run", "estimate"])
def test_json_is_what_the_schema_says(call: Call, command: str) -> None:
    schema = json.loads(call("schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    record = json.loads(call(command, LAYERS, "--json").out)
    jsonschema.validate(record, schema)
    energy = record["energy"]
    assert energy["joules"] == pytest.approx(sum(energy["parts"].values()))
    assert energy["watts"] == pytest.approx(energy["joules"] / record["seconds"])
    jsonschema.validate(json.loads(call(command, "none.hlo", "--json").out), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(record | {"cycles": -1}, schema)


def test_csv_has_every_kernel_in_the_order_asked_for(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    assert call("estimate", LAYERS, "--csv", path, "--top", "all", "--sort", "hbm").code == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    record = json.loads(call("estimate", LAYERS, "--json").out)
    assert {row["name"] for row in rows} == {kernel["name"] for kernel in record["kernels"]}
    moved = [int(row["hbm_bytes"]) for row in rows]
    assert moved == sorted(moved, reverse=True)
    for row in rows:
        causes = sum(int(n) for name, n in row.items() if name.startswith("cycles_"))
        assert causes == int(row["cycles"])
    assert call("estimate", LAYERS, "--csv", "-").out.startswith("name,note,")
    assert call("estimate", LAYERS, "--top", "0").code == 2


def test_the_price_of_a_step(call: Call, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[chip_hour]\nv5e = 3.6\n")
    options = ("--prices", prices, "--tokens", "1000", "--json")
    record = json.loads(call("estimate", LAYERS, *options).out)
    assert record["price"]["step"] == pytest.approx(record["seconds"] * 1e-3)
    assert record["price"]["million_tokens"] == pytest.approx(record["seconds"])
    done = call("estimate", LAYERS, "--target", "v5p", "--prices", prices)
    assert done.code == 1 and "no price of v5p; there are v5e" in done.err
    assert call("estimate", LAYERS, "--tokens", "5").code == 2
    prices.write_text("v5e = 1")
    assert "want a table [chip_hour]" in call("estimate", LAYERS, "--prices", prices).err


def test_names_and_digits_survive_80_columns(
    executable: tpuc.Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(tables, "console", lambda: Console(file=out, width=80))
    report = executable.estimate()
    tables.print_report(report, "m.hlo", None)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for kernel in report.kernels:
        line = next(line for line in text.splitlines() if line.split()[:1] == [kernel.name])
        assert f"{kernel.cycles:,}" in line and kernel.bound_by in line


@settings(max_examples=5)
@given(
    mxu_count=st.sampled_from([1, 2, 8]),
    clock=st.sampled_from(["0.5GHz", "3GHz"]),
    bandwidth=st.sampled_from(["0.2TB/s", "5TB/s"]),
)
def test_no_chip_is_used_beyond_its_peak(mxu_count: int, clock: str, bandwidth: str) -> None:
    target = f"v5e{{mxu_count={mxu_count},clock={clock},hbm_bandwidth={bandwidth}}}"
    report = tpuc.compile(str(LAYERS), target).estimate()
    assert 0 < report.mxu_utilisation <= report.mxu_busy <= 1
    assert 0 < report.hbm_utilisation <= 1
    assert all(k.mxu_utilisation <= 1 and k.mxu_busy <= 1 for k in report.kernels)


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="needs mkdocs-material")
def test_the_docs_are_a_site(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "index.html").read_text()
    assert "tutorials/first-run.html" in page
    assert 'src="https://' not in page and 'rel="stylesheet" href="https://' not in page
