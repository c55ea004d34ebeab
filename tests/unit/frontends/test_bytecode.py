"""Bytecode, portable and plain, read by our own reader: what it becomes is what its text becomes."""

from __future__ import annotations

import importlib
import io
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.mlir_bytecode.container import MAGIC
from compiler.frontends.mlir_bytecode.cursor import Cursor
from compiler.frontends.mlir_bytecode.document import read_document
from compiler.frontends.models import parse_model
from compiler.frontends.stablehlo.lowering import lower_document
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.keys import computation_key
from compiler.hlo.origins import origins_of
from tests.unit.frontends.test_operations import CASES, Case, function_text
from tpu_sim.isa.origins import Origin

DATA = Path(__file__).resolve().parents[2] / "data"
FILES = sorted((DATA / "bytecode").glob("*.mlirbc"))
"""Made by `jax.export` of the texts beside them; heat_stencil_tiny in the oldest version there is, 0.9.0."""
PLAIN = sorted((DATA / "bytecode" / "plain").glob("*.mlirbc"))
"""Made by `write_bytecode` of the modules that jaxlib 0.10.2 parses of the texts."""
OLD_AND_NEW = [(0, 9, 0), (1, 0, 0), None]


@pytest.fixture
def no_jaxlib(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reading must not ask for MLIR's own reader."""

    load = importlib.import_module

    def missing(name: str, package: str | None = None) -> ModuleType:
        if name.startswith("jaxlib"):
            raise ImportError(f"No module named {name!r}")
        return load(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    yield


@pytest.mark.usefixtures("no_jaxlib")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_artifact_is_read_without_jaxlib(path: Path) -> None:
    """JAX makes equal operations one when it writes an artifact: they are compared as a set."""
    found = parse_model(path.read_bytes(), path.name)
    want = parse_model((DATA / f"{path.stem}.mlir").read_text())
    assert _instructions(found) == _instructions(want)
    assert str(found.attrs) == str(want.attrs)


@pytest.mark.parametrize("row", CASES, ids=str)
@pytest.mark.parametrize("version", OLD_AND_NEW, ids=str)
def test_every_operation_in_old_and_new_artifacts(
    row: Case, version: tuple[int, int, int] | None, capfd: pytest.CaptureFixture[str]
) -> None:
    stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    name = ".".join(map(str, version)) if version else stablehlo.get_current_version()
    text = function_text(row.body, list(row.arguments), [np.asarray(w) for w in row.wants])
    try:
        data = stablehlo.serialize_portable_artifact_str(text, name)
    except ValueError:  # of another dialect, or younger than the version
        capfd.readouterr()
        return
    document = read_document(data)
    _same(lower_document(document), parse_model(text))


@pytest.mark.usefixtures("no_jaxlib")
@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_plain_bytecode_is_read_without_jaxlib(path: Path) -> None:
    found = parse_model(path.read_bytes(), path.name)
    _same(found, parse_model((DATA / f"{path.stem}.mlir").read_text()))


@pytest.mark.parametrize("row", CASES, ids=str)
def test_every_operation_in_plain_bytecode(row: Case) -> None:
    text = function_text(row.body, list(row.arguments), [np.asarray(w) for w in row.wants])
    try:
        data = _written(text)
    except _mlir().ir.MLIRError:  # the text leaves out what jaxlib wants to be said
        assert str(row) == "convolution"
        return
    _same(parse_model(data), parse_model(text))


_RARE = {
    "scan": """%c, %z = "chlo.scan"(%x, %y) <{dimension = 0 : i64, is_reverse = true,
        operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}> ({
      ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
        %s = stablehlo.add %a, %b : tensor<4xf32>
        "stablehlo.return"(%s, %s) : (tensor<4xf32>, tensor<4xf32>) -> ()
      }) : (tensor<3x4xf32>, tensor<4xf32>) -> (tensor<3x4xf32>, tensor<4xf32>)""",
    "scan that carries nothing": """%c = "chlo.scan"(%x) <{dimension = 0 : i64,
        operandSegmentSizes = array<i32: 1, 0>, resultSegmentSizes = array<i32: 1, 0>}> ({
      ^bb0(%a: tensor<4xf32>):
        "stablehlo.return"(%a) : (tensor<4xf32>) -> ()
      }) : (tensor<3x4xf32>) -> tensor<3x4xf32>""",
    "top_k": "%c, %i = chlo.top_k(%x, k = 2) : tensor<3x4xf32> -> (tensor<3x2xf32>, tensor<3x2xi32>)",
    "algorithm": """%c = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0],
        algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32,
        accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1,
        num_primitive_operations = 1, allow_imprecise_accumulation = false>
        : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3xf32>""",
    "custom_call": """%c = stablehlo.custom_call @tpu_custom_call(%x) {backend_config = "a", has_side_effect =
        true, output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [],
        operand_index = 0, operand_tuple_indices = []>]} : (tensor<3x4xf32>) -> tensor<3x4xf32>""",
    "f8": """%d = stablehlo.convert %x : (tensor<3x4xf32>) -> tensor<3x4xf8E4M3FN>
        %c = stablehlo.convert %d : (tensor<3x4xf8E4M3FN>) -> tensor<3x4xf8E5M2>""",
}


@pytest.mark.parametrize("body", _RARE.values(), ids=_RARE)
def test_what_plain_bytecode_writes_in_a_form_of_its_own(body: str) -> None:
    text = f"""func.func @main(%x: tensor<3x4xf32>, %y: tensor<4xf32>) {{
        {body}
        return }}"""
    found, want = (parse_model(source) for source in (_written(text), text))
    assert [_key(i) for i in found.entry] == [_key(i) for i in want.entry]


def test_what_jax_lowers_is_read_plain() -> None:
    jax = pytest.importorskip("jax")
    lowered = jax.jit(lambda x: jax.numpy.tanh(x @ x.T)).lower(np.zeros((4, 8), np.float32))
    out = io.BytesIO()
    lowered.compiler_ir().operation.write_bytecode(out)
    _same(parse_model(out.getvalue()), parse_model(lowered.as_text()))


def test_sharding_rules_of_factorizations_are_read() -> None:
    jax = pytest.importorskip("jax")
    linalg = jax.numpy.linalg
    lowered = jax.jit(lambda x: (linalg.svd(x), linalg.cholesky(x), linalg.eigh(x))).lower(
        np.zeros((2, 4, 4), np.float32)
    )
    out = io.BytesIO()
    lowered.compiler_ir().operation.write_bytecode(out)
    assert "op_sharding_rule" in lowered.as_text()
    _same(parse_model(out.getvalue()), parse_model(lowered.as_text()))


def test_a_rule_of_many_factors_says_what_the_text_says() -> None:
    sizes = ", ".join(f"{name}=2" for name in [*"ijklmnopqrstuvwxyz", "z_1", "z_2"])
    dims = ", ".join([*"ijklmnopqrstuvwxyz", "z_1z_2"])
    shape = "x".join(["2"] * 18 + ["4"])
    rule = f"<([{dims}])->([{dims}]) {{{sizes}}} need_replication={{j}} permutation={{k}}>"
    text = f"""func.func @main(%x: tensor<{shape}xf32>) -> tensor<{shape}xf32> {{
      %c = stablehlo.custom_call @Sharding(%x) {{sdy.sharding_rule = #sdy.op_sharding_rule{rule}}}
        : (tensor<{shape}xf32>) -> tensor<{shape}xf32>
      return %c : tensor<{shape}xf32>
    }}"""
    pending = list(read_document(_written(text)).operations)
    calls = []
    while pending:
        operation = pending.pop()
        calls += [operation] if operation.name == "stablehlo.custom_call" else []
        pending += [inner for region in operation.regions for inner in region.operations]
    (call,) = calls
    assert f"#sdy.op_sharding_rule{rule}" in str(call.attributes["sdy.sharding_rule"])


def test_an_operation_of_another_dialect_is_named() -> None:
    text = """func.func @main(%x: f32) -> f32 {
      %0 = arith.addf %x, %x : f32
      return %0 : f32
    }"""
    with pytest.raises(CompileError, match=r"m\.mlirbc.*operation arith\.addf is not known"):
        parse_model(_written(text), "m.mlirbc")


def _mlir() -> ModuleType:
    mlir = pytest.importorskip("jaxlib.mlir")
    importlib.import_module("jaxlib.mlir.ir")
    return mlir


def _written(text: str) -> bytes:
    """What MLIR's own writer makes of a text."""
    ir = _mlir().ir
    registry = ir.DialectRegistry()
    importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    with ir.Context() as context:
        for name in ("stablehlo", "chlo", "sdy"):
            importlib.import_module(f"jaxlib.mlir.dialects.{name}").register_dialect(context)
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        out = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(out)
    return out.getvalue()


_ELSEWHERE = ("metadata", "to_apply")
"""Where it stood, which plain texts do not say, and other computations."""


def _key(instruction: HloInstruction) -> str:
    named = {key: str(value) for key, value in instruction.attrs.items() if key not in _ELSEWHERE}
    return f"{instruction.opcode} {instruction.shape} {sorted(named.items())}"


def _instructions(module: HloModule) -> set[str]:
    found = [i for c in module.computations.values() for i in c]
    return {f"{i.opcode} {i.shape} {len(i.operands)} {i.attrs.get('sharding')}" for i in found}


def _same(found: HloModule, want: HloModule) -> None:
    assert computation_key(found.entry) == computation_key(want.entry)
    assert str(found.attrs) == str(want.attrs)


def test_names_and_places_of_operations_and_arguments() -> None:
    stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    text = """func.func @main(%x: tensor<4xf32> loc("data")) -> tensor<4xf32> {
      %0 = stablehlo.negate %x : tensor<4xf32> loc("f/neg"(callsite("g"("m.py":2:1) at "main.py":9:1)))
      %1 = stablehlo.sine %0 : tensor<4xf32> loc(fused["a"("n.py":3:1), "b"("n.py":4:1)])
      return %1 : tensor<4xf32>
    }"""
    data = stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version())
    module = parse_model(data)
    assert origins_of(module.entry.root_instruction) == (
        Origin("a", "n.py", 3),
        Origin("b", "n.py", 4),
    )
    negate = module.entry.root_instruction.operands[0]
    assert origins_of(negate) == (Origin("f/neg", "m.py", 2),)
    assert origins_of(module.entry.parameters[0]) == (Origin("data"),)


def test_an_error_points_at_the_operation() -> None:
    stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      return %x : tensor<?xf32>
    }"""
    data = stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version())
    with pytest.raises(CompileError, match="static shapes") as found:
        parse_model(data, "m.mlirbc")
    assert "m.mlirbc:2:3" in str(found.value) and "func.func" in str(found.value)


@pytest.mark.usefixtures("no_jaxlib")
def test_damaged_artifacts_are_refused_or_read() -> None:
    """Whatever bytes are changed or lost: a message of ours, and no other exception."""
    rng = random.Random(3)
    refused = 0
    for _ in range(400):
        data = bytearray(rng.choice((*FILES[:2], *PLAIN)).read_bytes())
        for _ in range(rng.choice((1, 2, 5))):
            data[rng.randrange(len(MAGIC), len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(MAGIC), len(data)) :]
        try:
            parse_model(bytes(data), "m.mlirbc")
        except CompileError as error:
            refused += 1
            assert "m.mlirbc" in str(error)
    assert refused > 200


@pytest.mark.usefixtures("no_jaxlib")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ML\xefR", "ends too early"),
        (b"ML\xefR\x0d", "cannot read this bytecode"),
        (b"ML\xefR\x0fX\0", "version 7 of the format; 0 to 6 are known"),
        (b"ML\xefR\x0dX\0", "no section string"),
    ],
)
def test_what_is_no_bytecode_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        parse_model(data, "m.mlirbc")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x01", 0),
        (b"\xff", 127),
        (b"\x02\x02", 128),
        (b"\xfe\xff", (1 << 14) - 1),
        (b"\x04\x00\x02", 1 << 14),
        (b"\x80" + b"\xff" * 7, (1 << 56) - 1),
        (b"\x00" + b"\xff" * 8, (1 << 64) - 1),
    ],
)
def test_numbers_of_one_to_nine_bytes(data: bytes, value: int) -> None:
    cursor = Cursor(data)
    assert cursor.number() == value and cursor.is_done
