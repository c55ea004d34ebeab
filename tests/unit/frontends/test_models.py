"""Whole models, and how the form of a source is recognised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.frontends.models import parse_model
from compiler.frontends.recognition import is_mlir, is_model_text
from compiler.hlo.evaluator import evaluate
from compiler.hlo.verifier import verify
from runtime.api import compile as compile_model

DATA = Path(__file__).parents[2] / "data"
MODELS = sorted(path.stem for path in DATA.glob("*.mlir"))


@pytest.mark.parametrize("name", MODELS)
def test_models_parse_verify_and_give_the_recorded_results(name: str) -> None:
    path = DATA / f"{name}.mlir"
    module = parse_model(path.read_text(), path.name)
    verify(module)
    recorded = DATA / f"{name}.npz"
    if not recorded.exists():
        return
    arrays = np.load(recorded)
    inputs = [arrays[f"in{i}"] for i in range(len(module.entry.parameters))]
    results = evaluate(module, inputs, "highest")
    wants = [arrays[f"out{i}"] for i in range(sum(key.startswith("out") for key in arrays))]
    assert len(results) == len(wants)
    for found, want in zip(results, wants, strict=True):
        if want.dtype.kind in "iub":
            assert (found != want).mean() <= 0.01
        else:
            scale = np.abs(want).max(initial=0.0) + 1e-5
            assert np.abs(found - want).max(initial=0.0) / scale < 2e-3


def test_several_device_models_keep_their_shardings() -> None:
    text = (DATA / "spmd_tp_mlp_train_tiny.mlir").read_text()
    module = parse_model(text)
    assert module.attrs["num_partitions"] == 8
    assert all("sharding" in p.attrs for p in module.entry.parameters)
    alone = parse_model(text.replace("num_partitions = 8", "num_partitions = 1"))
    assert not any("sharding" in p.attrs for p in alone.entry.parameters)


def test_a_manual_computation_stands_between_its_marks() -> None:
    module = parse_model((DATA / "shmap_dp_allreduce_tiny.mlir").read_text())
    targets = [i.attrs.get("custom_call_target") for i in module.entry if i.opcode == "custom-call"]
    assert targets == ["xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"]
    assert "xla.sdy.manual_computation_body" in module.computations


@pytest.mark.parametrize(
    "text",
    [
        "module {",
        "  // a comment\n module @m attributes {",
        "#loc = loc(unknown)\nmodule {}",
        "func.func @main() { return }",
        '"builtin.module"() ({',
        "!t = tensor<f32>\n",
    ],
)
def test_mlir_is_recognised(text: str) -> None:
    assert is_mlir(text)


def test_hlo_text_and_paths_are_told_apart() -> None:
    assert not is_mlir("HloModule m\n")
    assert is_model_text("HloModule m")
    assert is_model_text("module { func.func @main() { return } }")
    assert not is_model_text("module.mlir")
    assert not is_model_text("models/func.func.hlo")
    assert is_model_text("e { ROOT x = f32[] parameter(0) }")
    assert is_model_text("ENTRY %e.1 { ROOT x = f32[] parameter(0) }")
    assert is_model_text("/* one */ f (x: f32[]) -> f32[] { ROOT x = f32[] parameter(0) }")
    assert is_model_text("x = f32[2,3]{1,0} negate(f32[2,3] y)")
    assert not is_model_text("runs/x=1/model {2}.hlo")
    assert not is_model_text("runs/{name}")
    assert not is_model_text("model f32[3] (1).hlo")
    assert parse_model("ENTRY e { ROOT x = f32[] parameter(0) }").entry.name == "e"


def test_stablehlo_text_compiles_and_runs() -> None:
    executable = compile_model(
        "func.func @main(%x: tensor<8x128xf32>) -> tensor<8x128xf32> "
        "{ %0 = stablehlo.add %x, %x : tensor<8x128xf32> return %0 : tensor<8x128xf32> }"
    )
    x = np.arange(1024, dtype=np.float32).reshape(8, 128)
    (result,) = executable(x)
    np.testing.assert_array_equal(np.asarray(result), x + x)


def test_shardy_constants_and_reshards_are_read() -> None:
    """Modules that Shardy's own passes have seen have them."""
    module = parse_model("""module attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %c = sdy.constant dense<2.0> : tensor<4x8xf32>
    %y = stablehlo.multiply %x, %c : tensor<4x8xf32>
    %z = sdy.reshard %y <@mesh, [{"x"}, {}]> : tensor<4x8xf32>
    return %z : tensor<4x8xf32>
  }
}""")
    constrained = module.entry.root_instruction
    assert constrained.opcode == "custom-call"
    assert constrained.attrs["custom_call_target"] == "Sharding"
    assert constrained.operands[0].opcode == "multiply"


@pytest.mark.parametrize(
    "body",
    [
        "stablehlo.constant() <{value = dense<3> : tensor<2xi32>}> : () -> tensor<2xi32>",
        'stablehlo.constant dense<3> {mhlo.frontend_attributes = {a = "b",},} : tensor<2xi32>',
    ],
    ids=["properties", "a last comma"],
)
def test_forms_of_text_that_printers_do_not_write(body: str) -> None:
    """People write them by hand, and MLIR's parsers take them."""
    text = f"func.func @main() -> tensor<2xi32> {{\n %0 = {body}\n return %0 : tensor<2xi32>\n}}"
    (value,) = evaluate(parse_model(text), [])
    np.testing.assert_array_equal(value, [3, 3])
