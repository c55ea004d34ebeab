"""``tpuc sweep`` and ``--set``: variants of a chip from the command line."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tpu_sim.isa.chip_settings import Setting, SettingError
from tpuc.commands.models import standard_input
from tpuc.sweep import combinations, parse_values, sensitivity
from tpuc.sweep_costs import front, list_costs, slower_with_more

TWO = [parse_values("a=1,2"), parse_values("b=8,16MiB")]


def test_values_share_the_last_ones_unit() -> None:
    assert parse_values("vmem=8,1GiB,128MiB").values == ("8MiB", "1GiB", "128MiB")
    assert parse_values("vregs=16,32").values == ("16", "32")
    assert parse_values("clock=1e9,2e9").values == ("1e9", "2e9")
    with pytest.raises(SettingError, match=r"setting 'vmem=1,2,x': 'x' is no quantity"):
        parse_values("vmem=1,2,x")
    with pytest.raises(SettingError, match="given twice"):
        parse_values("vmem=8,8MiB")
    with pytest.raises(SettingError, match="a parameter is set twice"):
        combinations([*TWO, TWO[0]])


def test_the_chip_as_it_is_comes_first() -> None:
    points = combinations(TWO)
    assert points[0] == () and len(points) == 5
    assert points[2] == (Setting("a", "1"), Setting("b", "16MiB"))


def test_where_every_parameter_helps_the_best_for_each_cost_are_few() -> None:
    gains = {"mxu_count": 0.9, "vregs": 0.95, "dma_setup_cycles": 0.97}
    three = [parse_values(f"{key}=1,2,3") for key in gains]
    times = {
        point: math.prod(gains[setting.key] ** int(setting.value) for setting in point)
        for point in combinations(three)
    }
    best = front(times, list_costs(combinations(three), three))
    found = [[int(setting.value) for setting in point] for point in best]
    assert sorted(sum(values) - 3 for values in found) == [0, 1, 2, 3, 4, 5, 6]  # of 27
    assert [3, 1, 1] in found and [3, 3, 2] in found


def test_the_front_and_what_each_parameter_does() -> None:
    times = dict(zip(combinations(TWO), [1.0, 4.0, 2.0, 4.0, math.inf], strict=True))
    _, slow, wide, dear, _ = times
    costs = list_costs(combinations(TWO), TWO)
    assert front(times, costs) == {slow, wide}
    assert dear not in front(times, costs)
    about = {p: t * 1.0005**-n for n, (p, t) in enumerate(times.items())}
    assert front(about, costs) == {slow, wide}
    rows = {(key, value): ratio for key, value, ratio in sensitivity(times, TWO)}
    assert rows["a", "2"] == 1.0  # b = 16MiB has no time there
    assert rows["b", "16MiB"] == 0.5


def test_a_front_of_costs_that_are_no_steps() -> None:
    first, *points = combinations(TWO)
    times = dict(zip([first, *points], [1.0, 0.9, 0.9, 0.5, 0.4999], strict=True))
    costs = dict(zip([first, *points], [1.0, 1.0004, 1.2, 2.0, math.inf], strict=True))
    assert front(times, costs) == {points[0], points[2]}, "a part in a thousand is the same cost"
    assert front(times, costs | {points[3]: 2.1}) == {points[0], points[2]}, "or the same time"


def test_the_best_by_energy_and_by_price_are_in_the_table_of_values(
    call: Call, model: Path, tmp_path: Path
) -> None:
    table, prices, kept = (tmp_path / name for name in ("t.csv", "prices.toml", "kept.jsonl"))
    arguments = ["sweep", model, "--set", "hbm_bandwidth=100,1600GB/s", "--jobs", "1"]
    arguments += ["--results", kept, "--csv", table]
    shown = call(*arguments, "--cost", "energy").out
    assert "energy by first" in shown and "takes no more energy" in shown
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["is_best"] for row in rows] == ["0", "0", "1"], "faster, and idle for less time"
    ratios = [float(row["joules"]) / float(rows[0]["joules"]) for row in rows]
    assert [float(row["cost_energy"]) for row in rows] == pytest.approx(ratios)
    prices.write_text('[chip_hour]\nv5e = 1.2\n"v5e{hbm_bandwidth=1600GB/s}" = 36\n')
    found = json.loads(call(*arguments, "--prices", prices, "--json").out)
    assert found["cost"] == "price"
    whole, slow, fast = found["variants"]
    assert (whole["is_best"], slow["is_best"], fast["is_best"]) == (True, False, True)
    (figures,) = fast["models"]
    assert figures["price"] == pytest.approx(36 * figures["seconds"] / 3600)
    with table.open(newline="") as file:
        assert [row["is_best"] for row in csv.DictReader(file)] == ["1", "0", "1"]
    refused = call(*arguments, "--cost", "price")
    assert refused.code == 2 and "give --prices" in refused.err
    prices.write_text("[chip_hour]\nv5p = 1.2\n")
    assert "no price of v5e" in call(*arguments, "--prices", prices).err


def test_results_that_cannot_be_written_are_refused_at_once(
    call: Call, model: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "nowhere" / "kept.jsonl"
    refused = call("sweep", model, "--set", "vregs=32", "--results", kept)
    assert refused.code == 1 and f"cannot write {kept}" in refused.err


def test_a_file_of_something_else_is_no_results(call: Call, model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    arguments = ["sweep", model, "--set", "vregs=32", "--jobs", "1", "--results", kept]
    for text in ('{"a": 1}\n', '{\n "a": 1}\n', '{"model": "x"}\n', '{"mod\n[]\n'):
        kept.write_text(text)
        refused = call(*arguments)
        assert refused.code == 1 and "something else than results of a sweep" in refused.err
        assert kept.read_text() == text
    kept.write_text('{"mod')  # killed while writing the first
    assert call(*arguments).code == 0 and len(kept.read_text().splitlines()) == 3


def test_a_sweep_is_a_table_a_file_and_resumes(call: Call, model: Path, tmp_path: Path) -> None:
    kept, table = tmp_path / "kept.jsonl", tmp_path / "table.csv"
    arguments = ["sweep", model, "--set", "hbm_bandwidth=100,800GB/s", "--jobs", "1"]
    arguments += ["--results", kept, "--csv", table, "--json"]
    picture = tmp_path / "sweep.svg"
    if importlib.util.find_spec("matplotlib") is not None:
        arguments += ["--plot", picture]
    found = json.loads(call(*arguments).out)
    assert "--plot" not in arguments or "hbm_bandwidth" in picture.read_text()
    times = [variant["time_by_first"] for variant in found["variants"]]
    assert times[0] == 1 and times[1] > times[2] > 0.9
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["hbm_bandwidth"] for row in rows] == ["", "100GB/s", "800GB/s"]
    assert rows[1]["target"] == "v5e{hbm_bandwidth=100GB/s}"
    lines = kept.read_text().splitlines()
    assert len(lines) == 3
    kept.write_text("\n".join([lines[0], lines[1], lines[2][:20]]))  # killed while writing
    again = json.loads(call(*arguments).out)
    assert again == found and len(kept.read_text().splitlines()) == 4
    whole = kept.read_text().splitlines()[3]
    assert json.loads(whole) == json.loads(lines[2]), "not joined to the line that was cut off"


def test_a_chip_file_says_a_change_as_set_does(call: Call, model: Path, tmp_path: Path) -> None:
    chip = tmp_path / "mine.toml"
    chip.write_text('base = "v5e"\nclock = "2GHz"\nhbm_bandwidth = "1.2TB/s"\n')
    by_file = json.loads(call("estimate", model, "--target", chip, "--json").out)
    settings = ["--set", "clock=2GHz", "--set", "hbm_bandwidth=1.2TB/s"]
    by_name = json.loads(call("estimate", model, *settings, "--json").out)
    assert by_file["cycles"] == by_name["cycles"] and by_file["target"] == "mine"
    chip.write_text('base = "v5e"\nclock = "2GHz"\nname = "v5e"\n')
    refused = call("estimate", model, "--target", chip)
    assert refused.code == 1 and "give it a name of its own in the file" in refused.err


def test_a_chip_file_may_change_a_changed_chip(call: Call, tmp_path: Path) -> None:
    chip = tmp_path / "mine.toml"
    chip.write_text('base = "v5e{vmem=32MiB,clock=1GHz}"\nvregs = 32\n')
    found = json.loads(call("targets", chip, "--json").out)
    changed = json.loads(call("targets", "v5e{vmem=32MiB,clock=1GHz,vregs=32}", "--json").out)
    text = json.dumps(found)
    assert '"mine"' in text
    for key in ("vmem_bytes", "vregs", "dma_latency_cycles"):
        assert _parameter(found, key) == _parameter(changed, key)
    chip.write_text('base = "v5e{vmem=32}"\n')
    refused = call("targets", chip)
    assert refused.code == 1 and "want 65536" in refused.err


def _parameter(tree: object, key: str) -> object:
    """The value of a parameter, wherever in the JSON it stands."""
    if isinstance(tree, dict):
        if key in tree:
            entry = tree[key]
            return entry.get("value") if isinstance(entry, dict) else entry
        tree = list(tree.values())
    found = (_parameter(each, key) for each in tree) if isinstance(tree, list) else ()
    return next((value for value in found if value is not None), None)


def test_a_size_that_is_no_multiple_names_those_that_are(call: Call, model: Path) -> None:
    refused = call("estimate", model, "--set", "hbm=150MB")
    assert refused.code == 2 and "149999616 or 150000128" in refused.err
    refused = call("estimate", model, "--set", "clock=3")
    assert refused.code == 2 and "3 Hz" in refused.err and "such as 940MHz" in refused.err


def test_what_is_kept_of_another_chip_file_is_not_taken(
    call: Call, model: Path, tmp_path: Path
) -> None:
    kept, chip = tmp_path / "kept.jsonl", tmp_path / "mine.toml"
    arguments = ["sweep", model, "--set", "vregs=32", "--target", chip, "--results", kept, "--json"]
    chip.write_text('base = "v5e"\nname = "mine"\n')
    call(*arguments, "--jobs", "1")
    chip.write_text(
        'base = "v5e"\nname = "mine"\n[latencies]\neup = {value = 40, provenance = "assumed"}\n'
    )
    call(*arguments, "--jobs", "1")
    assert len(kept.read_text().splitlines()) == 4


def test_a_variant_that_a_model_does_not_fit_is_reported(call: Call, model: Path) -> None:
    done = call("sweep", model, "--set", "vmem=64KiB,64MiB", "--set", "hbm=1,16MiB", "--jobs", "1")
    assert "as it is" in done.out and "*: the fastest" in done.out and " us" in done.out


def test_set_changes_the_chip_of_any_command(call: Call, model: Path) -> None:
    slow = json.loads(call("estimate", model, "--set", "hbm_bandwidth=50GB/s", "--json").out)
    assert slow["target"] == "v5e{hbm_bandwidth=50GB/s}"
    assert slow["cycles"] > json.loads(call("estimate", model, "--json").out)["cycles"]
    assert "follows from the clock" in call("targets", "v6e", "--set", "clock=1GHz").out


def test_settings_of_several_targets(call: Call, model: Path) -> None:
    two = "v5e{vmem=32MiB,vregs=32},v6e"
    found = json.loads(call("estimate", model, "--target", two, "--json").out)
    assert [point["target"] for point in found["targets"]] == ["v5e{vmem=32MiB,vregs=32}", "v6e"]
    found = json.loads(call("estimate", model, "--target", two, "--set", "vregs=40", "--json").out)
    targets = [point["target"] for point in found["targets"]]
    assert targets == ["v5e{vmem=32MiB,vregs=40}", "v6e{vregs=40}"]
    alone = call("estimate", model, "--target", "v5e{vmem=32MiB,vregs=32}", "--json")
    assert json.loads(alone.out)["target"] == "v5e{vmem=32MiB,vregs=32}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["estimate", "--set", "vmen=1MiB"], "did you mean vmem?"),
        (["sweep", "--set", "vmem=1,2"], "want 65536 to"),
        (["sweep", "--set", "vmem"], "want key=value"),
        (["estimate", "--set", "vmem=32MiB", "--set", "vmem=64MiB"], "--set vmem is given twice"),
    ],
)
def test_wrong_settings_are_usage_errors(
    call: Call, model: Path, arguments: list[str], message: str
) -> None:
    done = call(arguments[0], model, *arguments[1:])
    assert done.code == 2 and message in done.err


def test_the_smallest_slice_that_fits(call: Call, tmp_path: Path) -> None:
    model = tmp_path / "sharded.mlir"
    sharding = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
    model.write_text(
        f"""module @m attributes {{mhlo.num_partitions = 2 : i32}} {{
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%a: tensor<1024x1024xf32> {sharding}) -> (tensor<1024x1024xf32> {sharding}) {{
    %0 = stablehlo.add %a, %a : tensor<1024x1024xf32>
    return %0 : tensor<1024x1024xf32>
  }}
}}
"""
    )
    done = call("estimate", model, "--fit", "--target", "v5e{hbm=3MiB}", "--json")
    trials = json.loads(done.out)["trials"]
    assert [trial["devices"] for trial in trials] == [1, 2, 4]
    assert [bool(trial["problem"]) for trial in trials] == [True, True, False]
    assert 0 < trials[-1]["hbm_bytes"] <= 3 << 20
    assert call("estimate", model, "--fit", "--target", "v5e:2x2").code == 2
    model.write_text(model.read_text().replace(" attributes {mhlo.num_partitions = 2 : i32}", ""))
    done = call("estimate", model, "--fit", "--target", "v5e{hbm=3MiB}")
    assert done.code == 1 and "more chips do not help" in done.out


def test_what_no_slice_would_mend_is_a_plain_error(call: Call, tmp_path: Path) -> None:
    done = call("estimate", "nope", "--fit", "--json")
    error = json.loads(done.out)["error"]
    assert done.code == 1 and error["message"].startswith("cannot read nope")
    assert done.err == f"error: {error['message']}\n"


def test_memory_of_exchanges_counts_for_what_fits(call: Call, tmp_path: Path) -> None:
    """Partial sums lie behind a program's arrays, which alone would fit."""
    model = tmp_path / "sums.mlir"
    array = "tensor<1024x1024xf32>"
    left, right = (
        "{sdy.sharding = #sdy.sharding<@mesh, [" + dims + "]>}"
        for dims in ('{}, {"x"}', '{"x"}, {}')
    )
    model.write_text(
        f"""module @sums attributes {{mhlo.num_partitions = 2 : i32}} {{
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%a: {array} {left}, %b: {array} {right}) -> ({array} {right}) {{
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({array}, {array}) -> {array}
    return %0 : {array}
  }}
}}
"""
    )
    chip = "v5e{hbm=11MiB}"
    done = call("estimate", model, "--target", f"{chip}:2x1", "--json")
    error = json.loads(done.out)["error"]
    assert done.code == 1 and error["kind"] == "ResourceExhaustedError"
    assert error["message"].startswith("RESOURCE_EXHAUSTED: sums needs 14,681,088 bytes of HBM")
    assert "arrays 10,485,760, partial sums and tables of exchanges 4,195,328" in error["message"]
    done = call("estimate", model, "--fit", "--target", chip, "--json")
    trials = json.loads(done.out)["trials"]
    assert [trial["devices"] for trial in trials] == [1, 2, 4, 8]
    assert [bool(trial["needed_bytes"]) for trial in trials] == [True, True, True, False]
    assert all(trial["problem"].startswith("sums needs ") for trial in trials[:-1])


def test_a_bad_model_is_one_error_and_no_tables(call: Call, tmp_path: Path) -> None:
    bad = tmp_path / "bad.hlo"
    bad.write_text("HloModule m\n\nENTRY e { x = f32[8] parameter(0) ROOT y = f32[8] nope(x) }\n")
    done = call("sweep", bad, "--set", "vregs=32,48", "--jobs", "1")
    assert (done.code, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1
    assert f"error: {bad} on v5e and 2 more: " in done.err and "nope" in done.err


def test_an_error_of_every_model_is_json_for_who_asked_for_json(call: Call, tmp_path: Path) -> None:
    bad = tmp_path / "bad.hlo"
    bad.write_text("hello world")
    done = call("sweep", bad, "--set", "vregs=32", "--jobs", "1", "--json")
    assert done.code == 1
    error = json.loads(done.out)["error"]
    assert error["kind"] == "CompileError" and error["message"] in done.err
    assert f"{bad} on v5e and 1 more: syntax error" in error["message"]


def test_a_compiled_program_is_swept_over_no_chips(call: Call, program: Path) -> None:
    done = call("sweep", program, "--set", "vregs=32")
    assert done.code == 2 and "give the model it came from" in done.err


def test_a_model_that_cannot_be_read_is_refused_as_by_every_command(
    call: Call, tmp_path: Path
) -> None:
    for path, why in ((tmp_path / "none.hlo", "No such file"), (tmp_path, "Is a directory")):
        done = call("sweep", path, "--set", "vregs=32,48")
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f"error: cannot read {path}: {why}")


def test_a_sweep_of_standard_input_is_that_of_the_file(
    call: Call, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = io.TextIOWrapper(io.BytesIO(model.read_bytes()))
    monkeypatch.setattr("sys.stdin", piped)
    standard_input.cache_clear()
    arguments = ["--set", "hbm_bandwidth=100,800GB/s", "--jobs", "1", "--json"]
    found = json.loads(call("sweep", "-", *arguments).out)
    standard_input.cache_clear()
    named = json.loads(call("sweep", model, *arguments).out)
    times = [variant["time_by_first"] for variant in found["variants"]]
    assert times == [variant["time_by_first"] for variant in named["variants"]]
    assert found["variants"][0]["models"][0]["model"] == "-"


def test_who_interrupts_a_sweep_hears_what_is_kept(
    call: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> Iterator[object]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("tpuc.sweep._estimated", interrupted)
    kept = tmp_path / "kept.jsonl"
    command = ("sweep", model, "--set", "vregs=32", "--results", kept)
    assert call(*command).err.strip() == "interrupted"  # nothing was found yet
    kept.write_text('{"model": ')  # what a kill cut off
    done = call(*command)
    assert done.code == 130
    assert done.err.split("\n")[0] == f"{kept} keeps what was found: the same command goes on"
    assert done.err.endswith("\ninterrupted\n")
    assert call("sweep", model, "--set", "vregs=32").err.strip() == "interrupted"


_KILLED = """
import os, signal, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from tpuc.commands.models import standard_input
from tpuc.sweep import end_with_parent
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("spawn"), end_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_of_a_sweep_that_is_killed_end(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(_KILLED)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    worker = Path(f"/proc/{int(done.stdout)}/stat")
    end = time.monotonic() + 20
    while worker.exists() and worker.read_text().split(") ")[1][0] != "Z":
        assert time.monotonic() < end, "the worker outlives its parent"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_second_interrupt_does_not_keep_a_sweep_from_ending(model: Path, tmp_path: Path) -> None:
    """Who waits presses Ctrl-C again, which the terminal sends to all processes."""
    values = [",".join(str(n) for n in range(first, first + 40)) for first in (24, 100)]
    words = [
        "sweep",
        model,
        "--set",
        f"vregs={values[0]}",
        "--set",
        f"call_overhead_cycles={values[1]}",
    ]
    kept = tmp_path / "kept"
    sweep = subprocess.Popen(
        [sys.executable, "-m", "tpuc", *map(str, words), "--results", str(kept)],
        start_new_session=True,
        # where tests run in the background, processes are born deaf to interrupts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    while sweep.poll() is None and not (kept.exists() and kept.stat().st_size):
        time.sleep(0.05)
    for _ in range(4):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sweep.pid, signal.SIGINT)
        time.sleep(0.1)
    said = sweep.communicate(timeout=60)[1]
    assert sweep.returncode in (130, -signal.SIGINT) and "Traceback" not in said


def test_points_that_are_slower_with_more_are_named() -> None:
    """Of rates and sizes that do no harm, and by a part in a thousand, where both values have one unit."""
    rate, wait = parse_values("hbm_bandwidth=1,2,4TB/s"), parse_values("dma_latency_cycles=1,2")
    points = combinations([rate, wait])
    by = dict(zip(points[1:], (10.0, 11.0, 12.0, 12.0, 9.0, 12.001), strict=True))
    found = slower_with_more({(): 1.0, **by}, [rate, wait])
    assert [tuple(setting.value for setting in point) for point in found] == [
        ("2TB/s", "1"), ("2TB/s", "2"), ("4TB/s", "2"),
    ]  # fmt: skip
    assert set(map(tuple, found.values())) == {("hbm_bandwidth",)}
    down = parse_values("hbm_bandwidth=4,1TB/s")
    times = dict(zip(combinations([down])[1:], (1.0, 2.0), strict=True))
    assert not slower_with_more(times, [down]), "less is slower, as it should be"
    mixed = parse_values("vmem=32MiB,1GiB")
    times = dict(zip(combinations([mixed])[1:], (1.0, 2.0), strict=True))
    assert not slower_with_more(times, [mixed]), "units that differ are not compared"


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on_and_no_other_has_its_file_meanwhile(
    call: Call, model: Path, tmp_path: Path
) -> None:
    kept, values = tmp_path / "kept", ",".join(str(n) for n in range(100, 400))
    words = ["sweep", model, "--set", f"call_overhead_cycles={values}", "--results", kept]
    words += ["--jobs", "1", "--json"]
    sweep = subprocess.Popen(
        [sys.executable, "-m", "tpuc", *map(str, words)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + 120
    while sweep.poll() is None and not (kept.exists() and kept.stat().st_size):
        assert time.monotonic() < end
        time.sleep(0.01)
    other = call(*words)
    sweep.kill()
    sweep.communicate(timeout=60)
    assert other.code == 1 and f"another sweep adds to {kept}" in other.err
    assert other.err.count("\n") == 1
    before = kept.read_text().splitlines()
    assert 0 < len(before) < 301
    done = call(*words)
    assert done.code == 0 and len(json.loads(done.out)["variants"]) == 301
    lines = kept.read_text().splitlines()
    assert lines[: len(before)] == before
    whole = [json.loads(line) for line in lines]
    assert len({row["target"] for row in whole}) == len(whole) == 301


def test_results_go_to_a_file_alone(call: Call, model: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in (pipe, Path("/dev/full")):
        done = call("sweep", model, "--set", "vregs=32", "--jobs", "1", "--results", name)
        assert done.code == 1 and f"{name} is no file that results can be read from" in done.err


def test_wrong_words_of_a_sweep_end_as_those_of_other_commands(
    call: Call, model: Path, tmp_path: Path
) -> None:
    bundles = tmp_path / "k.tpu"
    bundles.write_text("kernel")
    for name, why in (("", "the name of the model is empty"), (bundles, "tpuc asm")):
        done = call("sweep", name, "--set", "vregs=32", "--jobs", "1")
        assert done.code == 2 and why in done.err
    done = call("sweep", model, "--set", "vregs=32", "--plot", tmp_path / "x.gif")
    assert done.code == 2 and "want a name that ends in .svg, .png, .pdf" in done.err
