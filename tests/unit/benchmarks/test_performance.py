"""The performance benchmark: its texts, its turns, its page."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.performance import __main__ as command
from benchmarks.performance import levels
from benchmarks.performance import measure as measuring
from benchmarks.performance import page as pages
from benchmarks.performance.agreement import difference, stored
from benchmarks.performance.inputs import named_parameters, random_input
from benchmarks.performance.measure import Options, Row, SideResult, measure
from benchmarks.performance.workloads import WORKLOADS, Workload, chosen, source_file
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape
from compiler.hlo.verifier import verify

GENERATED = [w for w in WORKLOADS if w.text is not None]
SMALL = (
    "HloModule m\nENTRY main {\n  x = f32[8,128] parameter(0)\n  ROOT y = f32[8,128] add(x, x)\n}\n"
)


@pytest.mark.parametrize("workload", GENERATED, ids=lambda w: w.name)
def test_generated_texts_are_well_formed(workload: Workload) -> None:
    assert workload.text is not None
    verify(parse_module(workload.text(), workload.name))


def small(name: str) -> str:
    """A generated text for arrays of 64 x 64."""
    (workload,) = chosen([name])
    assert workload.text is not None
    return workload.text().replace("4096", "64").replace("0.000244140625", "0.015625")


def test_generated_texts_mean_what_they_are_called() -> None:
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    scale, bias = x[0] + 1, x[1]
    e = np.exp(x - x.max(1, keepdims=True))
    centred = x - x.mean(1, keepdims=True)
    normed = centred / np.sqrt(centred.var(1, keepdims=True) + 1e-5)
    rows = np.arange(64, dtype=np.int32)[::-1].reshape(64, 1)
    cube = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    wanted = {
        "softmax": ([x], e / e.sum(1, keepdims=True)),
        "layernorm": ([x, scale, bias], normed * scale + bias),
        "gelu": ([x], 0.5 * x * (1 + np.tanh(cube))),
        "reduce": ([x], x.sum(1)),
        "transpose": ([x], x.T),
        "gather": ([x, rows], x[::-1]),
    }
    for name, (inputs, want) in wanted.items():
        (got,) = evaluate(parse_module(small(name), name), inputs)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=name)


def test_workloads_are_chosen_by_pattern() -> None:
    assert [w.name for w in chosen(["dot_bf16_?048", "gelu"])] == ["dot_bf16_2048", "gelu"]
    assert chosen([]) == list(WORKLOADS)
    with pytest.raises(ValueError, match="no workload matches 'nothing'"):
        chosen(["nothing"])


def test_model_files_are_found_in_the_given_folders_first(tmp_path: Path) -> None:
    (kmeans,) = chosen(["kmeans"])
    found = source_file(kmeans, [], tmp_path)
    assert found is not None and found.parent.name == "examples"
    (tmp_path / "kmeans_full.hlo").write_text(SMALL)
    assert source_file(kmeans, [tmp_path], tmp_path) == tmp_path / "kmeans_full.hlo"
    assert source_file(Workload("no_such_model"), [tmp_path], tmp_path) is None


def test_inputs_repeat_and_keep_to_their_limits() -> None:
    floats = ArrayShape(BY_NAME["bf16"], (3, 700_000))  # more than a piece
    a, b = (random_input(floats, 1, 0, 16) for _ in range(2))
    assert a.tobytes() == b.tobytes() != random_input(floats, 1, 1, 16).tobytes()
    assert 0.09 < a.astype(np.float32).std() < 0.11
    numbers = random_input(ArrayShape(BY_NAME["s32"], (1000,)), 0, 0, 7)
    assert set(numbers.tolist()) == set(range(7))
    assert random_input(ArrayShape(BY_NAME["s8"], (1000,)), 0, 0, 10**6).min() >= 0
    assert random_input(ArrayShape(BY_NAME["pred"], (9,)), 0, 0, 16).dtype == np.bool_
    assert (random_input(floats, 1, 0, 16, positive=True) >= 0).all()
    text = "f { var = f32[] parameter(0) }\nENTRY e {\n %a_var.1 = f32[2]{0} parameter(3)\n"
    text += " b = s32[] parameter(1) }"
    assert named_parameters(text, "var") == [3] and named_parameters(text, "") == []


def test_ours_alone_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "small.hlo"
    path.write_text(SMALL)
    row = measure(Workload("small"), path, Options(threads=1, turns=1, with_xla=False))
    assert row.ours.error == ""
    assert row.xla.error == "jax is not installed"
    assert row.ratio is None
    assert row.ours.calls >= 1 and 0 < row.ours.execute < 10
    assert row.ours.compile_warm and sum(row.ours.stages.values()) == pytest.approx(
        row.ours.compile_cold
    )
    assert row.ours.facts["hbm_peak_bytes"] >= 2 * 8 * 128 * 4
    assert row.problems == []  # the warm compile was warm
    assert Row.from_json(row.to_json()) == row


def test_what_fails_is_said(tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text("HloModule m\nENTRY main {\n  ROOT x = f32[2] nonsense()\n}\n")
    row = measure(Workload("bad"), path, Options(threads=1, turns=1, with_xla=False))
    assert "nonsense" in row.ours.error and row.problems == [f"tpuc: {row.ours.error}"]
    assert "nonsense" in pages.page([row], {}, "command", 1)


def test_a_warm_compile_that_is_none_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "small.hlo"
    path.write_text(SMALL)
    options = Options(threads=1, turns=1, with_xla=False)
    with monkeypatch.context() as patch:
        patch.setenv("TPUC_NO_CACHE", "1")
        row = measure(Workload("small"), path, options)
    assert row.problems == ["warm compile: the program was not found in the cache"]
    found = Row("small")
    answers = {"seconds": 1.0, "is_loaded": True}
    monkeypatch.setattr(measuring, "Worker", partial(AnsweringWorker, answers))
    measuring._compile_again(found, path, options, tmp_path)
    assert found.problems == ["warm compile: its code was not found in the cache"]


class AnsweringWorker:
    """In place of a process: it has one answer, and leaves something in the cache."""

    def __init__(self, answer: dict[str, object], side: str, options: Options, cache: Path) -> None:
        self._answer, self._cache = answer, cache

    def __enter__(self) -> AnsweringWorker:
        (self._cache / "new").write_bytes(b"code")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, what: str, **details: object) -> dict[str, object]:
        return self._answer


class SavingWorker:
    """In place of a process: it has outputs."""

    def __init__(self, *outputs: np.ndarray) -> None:
        self._outputs = outputs

    def ask(self, what: str, **details: object) -> dict[str, object]:
        if what == "save":
            np.save(str(details["path"]), stored(self._outputs[int(str(details["number"]))]))
        return {"count": len(self._outputs)}


def test_values_that_differ_are_a_problem(tmp_path: Path) -> None:
    x = np.linspace(1, 2, 5000, dtype=np.float32)
    same, near, far = (
        SavingWorker(x, x > 1.5),
        SavingWorker(x * 1.001, x > 1.5),
        SavingWorker(-x, x > 9),
    )
    found = Row("w")
    measuring._compare(found, Workload("w"), [near, same], tmp_path)  # type: ignore[list-item]
    assert found.problems == [] and found.difference == pytest.approx(1e-3, rel=0.01)
    measuring._compare(found, Workload("w"), [far, same], tmp_path)  # type: ignore[list-item]
    assert found.problems == [
        "output 0 differs by 2.0e+00 from XLA:CPU's", "output 1 differs by 5.0e-01 from XLA:CPU's",
    ]  # fmt: skip
    assert not list(tmp_path.iterdir())
    page = pages.page([found], {}, "command", 1)
    assert "## Not valid" in page and "| **w (not valid)** |" in page
    assert "differ: w | **no** |" in page
    other = Row("other")
    measuring._compare(other, Workload("w"), [SavingWorker(x), same], tmp_path)  # type: ignore[list-item]
    assert other.problems == ["1 outputs, XLA:CPU has 2"]


def test_differences_are_of_the_whole_and_know_nan() -> None:
    nan, inf = np.array([1, np.nan, np.inf]), np.array([1, np.inf, np.inf])
    assert difference(nan, nan) == 0
    assert difference(nan, inf) == difference(inf, nan) == np.inf
    assert (
        difference(np.zeros(3), np.zeros(4)) == difference(np.zeros(3), np.zeros(3, int)) == np.inf
    )
    assert difference(np.array([0.0, 0.1]), np.zeros(2)) == pytest.approx(0.1)
    assert difference(np.arange(4), np.array([0, 1, 2, 9])) == 0.25
    assert difference(np.ones(3) * 1j, np.ones(3) * -1j) == 2
    bf16 = np.arange(4).astype(BY_NAME["bf16"].numpy)
    assert stored(bf16).dtype == np.float32
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))) == 0


def test_a_problem_is_a_failure_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for problems, code in ([], 0), (["values differ"], 1):
        bad = replace(row("gelu", 1, 2), problems=problems, difference=0.5)
        monkeypatch.setattr(command, "run", lambda *_, bad=bad: bad)
        monkeypatch.setattr("sys.argv", ["performance", "--workloads", "gelu", "--without-start"])
        if code:
            with pytest.raises(SystemExit) as ended:
                command.main()
            assert ended.value.code == code
            assert "PROBLEM: values differ" in capsys.readouterr().err
        else:
            command.main()


def row(name: str, ours: float, xla: float, *, counts: bool = True) -> Row:
    """A measured workload: cold compiles take ten times as long, warm ones as long."""
    facts = {"hbm_peak_bytes": 1e9, "peak_resident_bytes": ours * 1e9, "kernels": []}
    mine = SideResult(ours * 10, ours, {"parse": ours}, ours, ours, ours, 3, facts)
    other = SideResult(xla, None, {}, xla, xla, xla, 3)
    return Row(name, mine, other, ours / xla, ours / xla, counts)


def test_the_page_judges_by_the_wanted_numbers() -> None:
    rows = [row("a", 1, 4), row("b", 4, 1), row("apart", 9, 1, counts=False)]
    text = pages.page(rows, {"python": 0.01, "import": 0.1, "run": 2.0}, "the command", 2)
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line[:1] == "|"}
    assert "| 1.00 | **no** |" in lines["execute, geometric mean over XLA:CPU (2 workloads)"]
    assert "above: b 4.00" in lines["execute, each"]
    dots = pages.page([row("dot_x", 1, 1)], {}, "command", 1)
    assert "| compile cold, each dot | at most 6 | above: dot_x 10.00 | **no** |" in dots
    assert "| 10.00 | **no** |" in lines["compile cold, geometric mean over XLA:CPU (2 workloads)"]
    assert lines["longest compile, cold"].endswith("apart 90.0 s | **no** |")
    assert lines["`import tpuc`"].endswith("| yes |")
    assert lines["`tpuc run` of a small model, warm cache"].endswith("| **no** |")
    assert "above: b, apart" in lines["memory, each"]
    assert "`the command`" in text
    assert text.index("## Not in the means") < text.index("| apart | 9.000")


def test_levels_are_judged_apart() -> None:
    rows = [row("a", 1, 4), replace(row("a", 4, 1), level="avx2")]
    text = pages.page(rows, {}, "command", 1)
    assert "| execute, each | at most 1.3 | above: none | yes |" in text
    assert "| execute with avx2, each | at most 1.3 | above: a 4.00 | **no** |" in text
    assert text.count("| compile cold, geometric mean over XLA:CPU (1 workloads) |") == 1
    assert text.index("## Execution\n") < text.index("## Execution with avx2\n")


def test_both_sides_are_held_to_a_level() -> None:
    before = {"XLA_FLAGS": "--xla_a=1", "HOME": "/h"}
    assert levels.environment("native", before) == before
    held = levels.environment("avx512", before)
    assert held["TPUC_HOST_FEATURES"] == "avx512" and held["HOME"] == "/h"
    assert held["XLA_FLAGS"] == "--xla_a=1 --xla_cpu_max_isa=AVX512"
    assert command.parse_arguments(["--levels", "native,avx2"]).levels == ["native", "avx2"]
    with pytest.raises(SystemExit):
        command.parse_arguments(["--levels", "sse"])


def test_rows_are_kept_between_commands(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert command.load_results(path) == ({}, {})
    held = replace(row("a", 1, 2), level="avx2")
    kept = {("native", "a"): row("a", 1, 2), ("avx2", "a"): held}
    command.keep_results(path, kept, {"run": 1.0})
    assert command.load_results(path) == (kept, {"run": 1.0})


def test_the_page_names_no_folder_of_this_computer() -> None:
    arguments = ["--models", "/here", "--workloads", "gelu", "--results", "/tmp/r.json"]
    assert command.shown(arguments) == [
        "--models", "FOLDER", "--workloads", "gelu", "--results", "FILE",
    ]  # fmt: skip
