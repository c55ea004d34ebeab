"""What a report says for people and for programs: order, CSV, schema, energy, price; narrow terminals."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
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
from tpuc import cost_tables, tables

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
    for text, problem in (
        ("v5e = 1", "want a table [chip_hour]"),
        ("[chip_hour]\nv5e = inf", "the price of v5e is inf, want a number"),
        ("[chip_hour]\nv5e = -1", "the price of v5e is -1, want a number"),
    ):
        prices.write_text(text)
        assert problem in call("estimate", LAYERS, "--prices", prices, "--json").err


@pytest.mark.skipif(os.name != "posix", reason="a pipe with a path")
def test_prices_come_from_a_pipe(call: Call) -> None:
    """It was read twice, and empty the second time."""
    prices = "[chip_hour]\nv5e = 3.6\n"
    for path in ("-", "/dev/stdin"):
        done = subprocess.run(
            [sys.executable, "-m", "tpuc", "estimate", str(LAYERS), "--prices", path, "--json"],
            input=prices, capture_output=True, text=True, cwd=ROOT, check=False,
        )  # fmt: skip
        record = json.loads(done.stdout)
        assert record["price"]["step"] == pytest.approx(record["seconds"] * 1e-3)
    assert "both want standard input" in call("estimate", "-", "--prices", "-").err


@pytest.mark.parametrize("width", [80, 60, 40])
def test_names_and_digits_survive_a_narrow_terminal(
    executable: tpuc.Executable, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Columns that have no room are left out: at 40, cycles were `68…`, of a name were three letters."""
    report = executable.estimate()
    for by in ("kernel", "line", "op"):
        out = io.StringIO()
        monkeypatch.setattr(tables, "console", lambda file=out: Console(file=file, width=width))
        tables.print_report(report, "m.hlo", None, by)
        lines = out.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if "…" in line.replace("…/", "")]
        if by == "kernel":
            for kernel in report.kernels:
                line = next(line for line in lines if line.split()[:1] == [kernel.name])
                assert f"{kernel.cycles:,}" in line
                assert width < 80 or kernel.bound_by in line


def test_a_name_that_has_room_is_whole_beside_a_text_that_is_broken() -> None:
    """At 80 columns the places of lines were broken before their number: `attention.py:` and `39`."""
    name, text = "examples/attention.py:39", "dot_general, mul, tanh, 2 more"
    columns = ("line", "cycles", "share", "bound by", "operations")
    out = io.StringIO()
    rows = [(name, "87,808", "42.3%", "mxu 89%", text)]
    cost_tables.print_listing(Console(file=out, width=80), "t", columns, ("line",), rows)
    assert name in out.getvalue() and "87,808" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_columns_say_how_wide_a_piped_report_is(
    executable: tpuc.Executable,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    widths = []
    for columns in ("80", ""):
        monkeypatch.setenv("COLUMNS", columns)
        tables.print_report(executable.estimate(), "m.hlo", None)
        widths.append(max(map(len, capsys.readouterr().out.splitlines())))
    assert widths[0] <= 80 < widths[1] <= 120


def test_a_name_longer_than_the_terminal_is_broken_and_its_digits_stay() -> None:
    out = io.StringIO()
    rows = [("scope/" * 20, "1,234,567", "50.0%", "a few words that are broken")]
    columns = ("operation", "cycles", "share", "kernels")
    cost_tables.print_listing(Console(file=out, width=48), "t", columns, ("operation",), rows)
    text = out.getvalue()
    assert "1,234,567" in text and "50.0%" in text and text.count("scope/") >= 15
    assert max(map(len, text.splitlines())) <= 48


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
    assert "assets/iframe-worker.js" in page, "the search from disk"
    assert 'src="https://' not in page and 'rel="stylesheet" href="https://' not in page
