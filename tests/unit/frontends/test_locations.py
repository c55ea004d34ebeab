"""MLIR locations become HLO metadata: every form, and each behind its own operation."""

from __future__ import annotations

import pytest

from compiler.frontends.models import parse_model
from compiler.frontends.stablehlo.locations import Locations, metadata_text
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.origins import origins_of
from tpu_sim.isa.origins import Origin

ALIASES = {
    "#loc1": '"m.py":3:8 to :20',
    "#loc2": '"f"(#loc1)',
    "#loc3": '"<module>"("m.py":9:1)',
    "#loc4": "callsite(#loc2 at #loc3)",
    "#loc5": '"jit(f)/add"(#loc4)',
    "#again": "#again",
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("unknown", ()),
        ("#loc5", (Origin("jit(f)/add", "m.py", 3),)),
        ("#loc4", (Origin("", "m.py", 3),)),
        ('"x"', (Origin("x"),)),
        ('"a\\22b"("d\\5Ce.py":7:1)', (Origin('a"b', "d\\e.py", 7),)),
        ('fused["a"(#loc1), "b"]', (Origin("a", "m.py", 3), Origin("b"))),
        ('fused<"tag, one">[#loc5, unknown, "b"]', (Origin("jit(f)/add", "m.py", 3), Origin("b"))),
        (
            '"s"(fused["a"(#loc1), "b"("n.py":2:1)])',
            (Origin("s", "m.py", 3), Origin("s", "n.py", 2)),
        ),
        ("#again", ()),
        ("#none", ()),
        ("!what even", ()),
    ],
)
def test_forms(text: str, found: tuple[Origin, ...]) -> None:
    assert Locations(ALIASES).origins(text) == found


def test_metadata_is_as_xla_writes_it() -> None:
    assert metadata_text(Origin()) == ""
    text = metadata_text(Origin('a"b', "m.py", 3))
    assert text == '{op_name="a\\"b" source_file="m.py" source_line=3}'


MODEL = """#loc1 = loc("x")
module @m {
  func.func public @main(%arg0: tensor<4xf32> loc("x"), %arg1: tensor<i32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %arg0 : tensor<4xf32> loc(#loc7)
    %c = stablehlo.constant dense<3> : tensor<i32> loc(#loc8)
    %1:2 = stablehlo.while(%iterArg = %arg1, %iterArg_0 = %0) : tensor<i32>, tensor<4xf32>
     cond {
      %3 = stablehlo.compare LT, %iterArg, %c : (tensor<i32>, tensor<i32>) -> tensor<i1> loc(#lt)
      stablehlo.return %3 : tensor<i1> loc("return")
    } do {
      %3 = stablehlo.add %iterArg, %c : tensor<i32> loc("plus"("m.py":5:1))
      %4 = stablehlo.sine %iterArg_0 : tensor<4xf32>
      stablehlo.return %3, %4 : tensor<i32>, tensor<4xf32> loc("return")
    } loc("loop"("m.py":6:1))
    %2 = "stablehlo.reverse"(%1#1) {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      loc(callsite("m.py":7:1 at "n.py":1:1))
    return %2 : tensor<4xf32> loc(#loc1)
  } loc(#loc1)
} loc(#loc1)
#loc7 = loc("f/neg"("m.py":2:1))
#loc8 = loc(unknown)
#lt = loc("lt"("m.py":4:1))
"""


def test_each_operation_gets_its_own() -> None:
    module = parse_stablehlo(MODEL)
    found = {
        i.opcode: origins_of(i)
        for computation in module.computations.values()
        for i in computation
        if i.opcode not in ("parameter", "get-tuple-element", "constant", "tuple")
    }
    assert found == {
        "negate": (Origin("f/neg", "m.py", 2),),
        "compare": (Origin("lt", "m.py", 4),),
        "add": (Origin("plus", "m.py", 5),),
        "sine": (),
        "while": (Origin("loop", "m.py", 6),),
        "reverse": (Origin("", "m.py", 7),),
    }
    assert [origins_of(p) for p in module.entry.parameters] == [(Origin("x"),), ()]


def test_bytecode_has_them_too() -> None:
    stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.negate %x : tensor<4xf32> loc("f/neg"("m.py":2:1))
      return %0 : tensor<4xf32>
    }"""
    version = stablehlo.get_current_version()
    artifact = stablehlo.serialize_portable_artifact_str(text, version)
    module = parse_model(artifact)
    assert origins_of(module.entry.root_instruction) == (Origin("f/neg", "m.py", 2),)
