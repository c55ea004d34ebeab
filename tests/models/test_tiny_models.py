"""Whole models at a small size: values against XLA's, both machines against each other, dumps read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from compiler.driver import CompileOptions
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from runtime.api import compile as compile_model
from runtime.executable import Executable
from runtime.machines import MachineOptions
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.container import dump_program, load_program
from tpuc.arrays import compare, load_arrays

DATA = Path(__file__).resolve().parents[1] / "data"
MODELS = sorted(path.stem for path in DATA.glob("*_tiny.hlo"))
TOLERANCE = 2e-3


def build(name: str, precision: str = "highest", **machine: object) -> Executable:
    options = MachineOptions(**machine)  # type: ignore[arg-type]
    return compile_model(
        DATA / f"{name}.hlo", machine=options, options=CompileOptions(precision=precision)
    )


def inputs(name: str, executable: Executable) -> list[np.ndarray]:
    shapes = [port.shape for port in executable.inputs]
    return load_arrays(str(DATA / f"{name}.npz"), "in", shapes)


def expected(name: str, executable: Executable) -> list[np.ndarray]:
    shapes = [port.shape for port in executable.outputs]
    return load_arrays(str(DATA / f"{name}.npz"), "out", shapes)


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_xla(name: str) -> None:
    executable = build(name)
    outputs = executable(*inputs(name, executable))
    for difference in compare(outputs, expected(name, executable)):
        assert difference.normalised <= TOLERANCE, difference


@pytest.mark.parametrize("name", MODELS)
def test_default_precision_is_that_of_the_evaluator(name: str) -> None:
    executable = build(name, "default")
    arguments = inputs(name, executable)
    outputs = executable(*arguments)
    module = parse_module((DATA / f"{name}.hlo").read_text(), name)
    for difference in compare(outputs, evaluate(module, arguments, "default")):
        assert difference.normalised <= 2e-2, difference


@pytest.mark.parametrize("name", MODELS)
def test_both_machines_agree_bit_for_bit_and_cycle_for_cycle(name: str) -> None:
    native = build(name, machine="llvm")
    plain = build(name, machine="numpy", checked=True)
    arguments = inputs(name, native)
    results = [np.asarray(r) for r in native(*arguments)]
    for ours, theirs in zip(results, plain(*arguments), strict=True):
        assert ours.tobytes() == np.asarray(theirs).tobytes()
    assert native.report is not None and plain.report is not None
    assert native.report.cycles == plain.report.cycles
    assert native.report.kernels == plain.report.kernels


@pytest.mark.parametrize("name", MODELS)
def test_the_program_survives_assembly_and_container(name: str) -> None:
    program = build(name).program
    text = print_program(program)
    assert print_program(parse_program(text, "text")) == text
    assert print_program(load_program(dump_program(program))) == text


@pytest.mark.parametrize("name", MODELS)
def test_dumped_hlo_reads_back_and_xla_reads_it(name: str, tmp_path: Path) -> None:
    compile_model(DATA / f"{name}.hlo", options=CompileOptions(dump_dir=tmp_path))
    dumps = {path.read_text(): str(path) for path in sorted(tmp_path.glob("*.hlo"))}
    assert dumps
    for text, path in dumps.items():
        again = print_module(parse_module(text, path))
        assert again == text or again == print_module(parse_module(again, path))
    hlo = pytest.importorskip("jaxlib._hlo")
    for text in dumps:
        hlo.hlo_module_from_text(text)


def test_the_report_is_json() -> None:
    executable = build("mlp_train_tiny")
    executable(*inputs("mlp_train_tiny", executable))
    assert executable.report is not None
    record = json.loads(json.dumps(executable.report.to_json()))
    wanted = {
        "target", "cycles", "seconds", "kernels", "hbm_bytes", "hbm_peak_bytes", "mxu_utilisation",
        "mxu_busy", "compile_seconds", "execute_seconds",
    }  # fmt: skip
    assert wanted <= record.keys()
    assert {"name", "cycles", "mxu_utilisation", "hbm_bytes"} <= record["kernels"][0].keys()
    assert 0 < record["mxu_utilisation"] <= record["mxu_busy"] <= 1
