"""Propagation: which shardings follow from those that a program states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.diagnostics import CompileError
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.call_graph import control_computations
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.sharding import HloSharding, leaf_count
from compiler.hlo.verifier import Level, verify
from compiler.passes.context import PassContext
from compiler.passes.sharding_propagation import propagate_shardings
from compiler.sharding.placement import local_shape
from tpu_sim.isa.chips import load_chip

ROOT = Path(__file__).resolve().parents[3]
NOTE = 'custom_call_target="Sharding", sharding={replicated}'
MESH = 'frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=4, "y"=2]>}}'
X = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"
Y = "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"


def sdy(axes: str) -> str:
    """The frontend attribute that states a sharding."""
    quoted = axes.replace('"', '\\"')
    return f'frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, {quoted}>"}}'


def propagated(text: str) -> HloModule:
    """The module after the pass: valid, and with a sharding everywhere that fits its shape."""
    module = parse_stablehlo(text) if "func.func" in text else parse_module(text)
    propagate_shardings(module, PassContext(load_chip("v5e")))
    verify(module, Level.PARSED)
    for computation in control_computations(module):
        for instr in computation:
            sharding = instr.attrs["sharding"]
            assert isinstance(sharding, HloSharding)
            if sharding.is_tuple:
                assert sharding.elements is not None
                assert len(sharding.elements) == leaf_count(instr.shape)
            local_shape(sharding, instr.shape)
    assert "xla.sdy" not in print_module(module)
    return module


def shardings(module: HloModule) -> dict[str, str]:
    return {i.name: str(i.attrs["sharding"]) for c in control_computations(module) for i in c}


def test_a_dot_takes_rows_from_one_side_and_columns_from_the_other() -> None:
    found = shardings(
        propagated(f"""HloModule m, {MESH}
      ENTRY e {{
        a = f32[16,8] parameter(0), {sdy('[{"x"}, {}]')}
        b = f32[8,6] parameter(1), {sdy('[{}, {"y"}]')}
        d = f32[16,6] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        ROOT t = f32[6,16] transpose(d), dimensions={{1,0}}
      }}""")
    )
    assert found["d"] == "{devices=[4,2]<=[8]}"
    assert found["t"] == "{devices=[2,4]<=[4,2]T(1,0)}"


def test_the_larger_array_wins_a_conflict() -> None:
    text = f"""HloModule m, {MESH}
      ENTRY e {{
        a = f32[16,8] parameter(0), {sdy('[{"x"}, {}]')}
        b = f32[8,64] parameter(1), {sdy('[{}, {"x"}]')}
        ROOT d = f32[16,64] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      }}"""
    assert shardings(propagated(text))["d"] == "{devices=[1,4,2]<=[8] last_tile_dim_replicate}"
    swapped = text.replace("64", "4")
    assert shardings(propagated(swapped))["d"] == X


def test_lower_priorities_go_first() -> None:
    def text(first: str, second: str) -> str:
        return f"""HloModule m, {MESH}
          ENTRY e {{
            a = f32[16,8] parameter(0), {sdy('[{"x"}' + first + ", {}]")}
            b = f32[8,64] parameter(1), {sdy('[{}, {"x"}' + second + "]")}
            ROOT d = f32[16,64] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
          }}"""

    assert shardings(propagated(text("p0", "p1")))["d"] == X
    assert "devices=[1,4,2]" in shardings(propagated(text("p1", "p0")))["d"]


def test_all_dimensions_of_a_priority_take_their_turn() -> None:
    module = propagated(f"""HloModule m, {MESH}
      ENTRY e {{
        a = f32[16,8] parameter(0), {sdy('[{"x"}p1, {"y"}p1]')}
        ROOT r = f32[16,8] negate(a)
      }}""")
    assert set(shardings(module).values()) == {"{devices=[4,2]<=[8]}"}


def test_a_constraint_that_differs_is_a_copy() -> None:
    module = propagated(f"""HloModule m, {MESH}
      ENTRY e {{
        a = f32[16,8] parameter(0), {sdy('[{"x"}, {}]')}
        c = f32[16,8] custom-call(a), {NOTE}, {sdy('[{}, {"y"}]')}
        d = f32[16,8] custom-call(c), custom_call_target="Sharding", sharding={{replicated}},
          {sdy("[{?}, {?}]")}
        ROOT r = f32[16,8] negate(d)
      }}""")
    assert [i.opcode for i in module.entry] == ["parameter", "copy", "negate"]
    assert shardings(module)["r"] == Y


def test_a_loop_carries_the_sharding_of_its_state() -> None:
    module = propagated(f"""HloModule m, {MESH}
      body {{
        s = (f32[16,8], s32[]) parameter(0)
        v = f32[16,8] get-tuple-element(s), index=0
        n = s32[] get-tuple-element(s), index=1
        one = s32[] constant(1)
        w = f32[16,8] sine(v)
        next = s32[] add(n, one)
        ROOT t = (f32[16,8], s32[]) tuple(w, next)
      }}
      cond {{
        s2 = (f32[16,8], s32[]) parameter(0)
        m = s32[] get-tuple-element(s2), index=1
        five = s32[] constant(5)
        ROOT less = pred[] compare(m, five), direction=LT
      }}
      ENTRY e {{
        a = f32[16,8] parameter(0), {sdy('[{"x"}, {}]')}
        zero = s32[] constant(0)
        init = (f32[16,8], s32[]) tuple(a, zero)
        loop = (f32[16,8], s32[]) while(init), condition=cond, body=body
        ROOT r = f32[16,8] get-tuple-element(loop), index=0
      }}""")
    found = shardings(module)
    assert found["w"] == found["r"] == X
    assert found["loop"] == found["s"] == f"{{{X}, {{replicated}}}}"


def test_branches_agree_on_their_result() -> None:
    module = propagated(f"""HloModule m, {MESH}
      yes {{ p = f32[16,8] parameter(0) ROOT y = f32[16,8] sine(p) }}
      no {{ q = f32[16,8] parameter(0) ROOT n = f32[16,8] cosine(q) }}
      ENTRY e {{
        c = pred[] parameter(0)
        a = f32[16,8] parameter(1), {sdy('[{"x"}, {}]')}
        b = f32[16,8] parameter(2)
        ROOT r = f32[16,8] conditional(c, a, b), true_computation=yes, false_computation=no
      }}""")
    found = shardings(module)
    assert {found[name] for name in ("a", "b", "p", "q", "y", "n", "r")} == {X}


GROUPS = """module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func public @main(%a: tensor<16x24xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
      %b: tensor<16x24xf32>, %c: tensor<16x24xf32>) -> (tensor<16x24xf32>, tensor<16x24xf32>) {
    sdy.sharding_group %a group_id=7 : tensor<16x24xf32>
    sdy.sharding_group %b group_id=7 : tensor<16x24xf32>
    %0 = stablehlo.exponential %b : tensor<16x24xf32>
    %1 = sdy.propagation_barrier %0 allowed_direction=DIRECTION : tensor<16x24xf32>
    %2 = stablehlo.add %1, %c : tensor<16x24xf32>
    return %0, %2 : tensor<16x24xf32>, tensor<16x24xf32>
  }
}"""


@pytest.mark.parametrize(
    ("direction", "beyond"),
    [("FORWARD", X), ("BACKWARD", "{replicated}"), ("NONE", "{replicated}")],
)
def test_groups_share_and_barriers_stop(direction: str, beyond: str) -> None:
    found = shardings(propagated(GROUPS.replace("DIRECTION", direction)))
    assert found["b"] == found["exponential"] == X
    assert found["add"] == beyond


@pytest.mark.parametrize(("number", "beyond"), [(1, X), (2, "{replicated}")])
def test_a_barrier_in_generic_form_has_its_direction_as_a_number(number: int, beyond: str) -> None:
    pretty = "sdy.propagation_barrier %0 allowed_direction=DIRECTION : tensor<16x24xf32>"
    generic = f""""sdy.propagation_barrier"(%0) <{{allowed_direction = {number} : i32}}>
      : (tensor<16x24xf32>) -> tensor<16x24xf32>"""
    assert shardings(propagated(GROUPS.replace(pretty, generic)))["add"] == beyond


def test_parts_of_axes_and_device_ids() -> None:
    found = shardings(
        propagated("""
      module @m attributes {mhlo.num_partitions = 8 : i32} {
        sdy.mesh @mesh = <["x"=8]>
        sdy.mesh @perm = <["x"=8], device_ids=[3, 1, 4, 7, 5, 0, 2, 6]>
        func.func public @main(
            %a: tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)4}, {"x":(4)2}]>},
            %b: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@perm, [{"x"}, {}]>})
            -> (tensor<4x6xf32>, tensor<16x4xf32>) {
          %0 = stablehlo.sine %a : tensor<4x6xf32>
          %1 = stablehlo.sine %b : tensor<16x4xf32>
          return %0, %1 : tensor<4x6xf32>, tensor<16x4xf32>
        }
      }""")
    )
    assert found["a"] == found["sine"] == "{devices=[4,2]<=[8]}"
    assert found["b"] == found["sine.1"] == "{devices=[8,1]3,1,4,7,5,0,2,6}"


def test_manual_regions_lie_between_boundaries() -> None:
    path = next((ROOT / "tests").rglob("shmap_dp_allreduce_tiny.mlir"))
    module = propagated(path.read_text())
    inside = [i for i in module.entry if str(i.attrs["sharding"]) == "{manual}"]
    assert any(i.opcode == "all-reduce" for i in inside)
    enter = [i for i in module.entry if i.attrs.get("custom_call_target") == "SPMDFullToShardShape"]
    for instr in enter:
        around = instr.operands[0].attrs["sharding"]
        assert isinstance(around, HloSharding)
        local = local_shape(around, instr.operands[0].shape)
        assert local == instr.shape or getattr(local, "dims", ()) == instr.array.dims


def test_what_is_stated_in_gspmd_form_spreads_too() -> None:
    module = propagated("""HloModule m, num_partitions=8
      ENTRY e {
        a = f32[16,8] parameter(0), sharding={devices=[4,1,2]<=[8] last_tile_dim_replicate}
        b = f32[16,8] parameter(1)
        c = f32[16,8] custom-call(a), custom_call_target="Sharding",
          sharding={replicated}, backend_config="unspecified_dims=[0,1]"
        ROOT r = f32[16,8] add(c, b)
      }""")
    found = shardings(module)
    assert found["r"] == X
    assert found["b"] == "{replicated}"  # a parameter without a sharding is replicated


def test_an_uneven_result_is_gathered() -> None:
    module = propagated(f"""HloModule m, {MESH}
      ENTRY e {{
        a = f32[16,8] parameter(0), {sdy('[{"x"}, {}]')}
        ROOT s = f32[13,8] slice(a), slice={{[0:13], [0:8]}}
      }}""")
    assert module.entry.root_instruction.opcode == "copy"
    assert shardings(module)["s"] == X
    assert str(module.entry.root_instruction.attrs["sharding"]) == "{replicated}"


def test_parts_of_an_axis_that_no_grid_has_do_not_meet() -> None:
    mesh = MESH.replace('"x"=4, "y"=2', '"x"=6')
    module = propagated(f"""HloModule m, {mesh}
      ENTRY e {{
        a = f32[4,8] parameter(0), {sdy('[{"x":(1)2}, {}]')}
        b = f32[4,8] parameter(1), {sdy('[{}, {"x":(3)2}]')}
        ROOT s = f32[4,8] add(a, b)
      }}""")
    assert shardings(module)["s"] == "{devices=[2,1,3]<=[6] last_tile_dim_replicate}"


def test_a_header_that_disagrees_is_refused() -> None:
    with pytest.raises(CompileError, match="num_partitions=4"):
        propagated(
            f"HloModule m, {MESH}, num_partitions=4\nENTRY e {{ ROOT a = f32[8] parameter(0) }}"
        )


def test_a_mesh_without_axes_says_nothing_of_devices() -> None:
    header = "frontend_attributes={xla.sdy.meshes={empty_mesh = #sdy.mesh<[]>}}, num_partitions=8"
    module = propagated(f"HloModule m, {header}\nENTRY e {{ ROOT a = f32[4] parameter(0) }}")
    assert shardings(module) == {"a": "{replicated}"}


SPECS = ("[{?}, {?}]", '[{"x"}, {}]', '[{"y", ?}, {"x"}]', '[{}, {"x", "y"}]', '[{"x", "y"}, {?}]')
STEPS = (
    "r{n} = f32[16,16] add(r{a}, r{b})",
    "r{n} = f32[16,16] dot(r{a}, r{b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    "r{n} = f32[16,16] transpose(r{a}), dimensions={{1,0}}",
    "r{n} = f32[16,16] custom-call(r{a}), " + NOTE.replace("{", "{{").replace("}", "}}") + ", {s}",
    "t{n} = f32[4,4,16] reshape(r{a})\n r{n} = f32[16,16] reshape(t{n})",
    "t{n} = f32[16,8] slice(r{a}), slice={{[0:16], [3:11]}}\n"
    " r{n} = f32[16,16] concatenate(t{n}, t{n}), dimensions={{1}}",
    "c{n} = f32[] constant(2)\n d{n} = f32[16,16] broadcast(c{n}), dimensions={{}}\n"
    " r{n} = f32[16,16] multiply(d{n}, r{a})",
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_programs_keep_their_values(data: st.DataObject) -> None:
    spec = st.sampled_from(SPECS)
    lines = [f"r{n} = f32[16,16] parameter({n}), {sdy(data.draw(spec))}" for n in range(3)]
    for n in range(3, 3 + data.draw(st.integers(1, 8))):
        a, b = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
        step = data.draw(st.sampled_from(STEPS))
        lines.append(step.format(n=n, a=a, b=b, s=sdy(data.draw(spec))))
    body = "\n".join(lines)
    text = f"HloModule m, {MESH}\nENTRY e {{\n{body}\nROOT out = f32[16,16] negate(r{n})\n}}"
    inputs = [np.random.default_rng(k).standard_normal((16, 16), np.float32) for k in range(3)]
    want = evaluate(parse_module(text), inputs, "highest")
    module = propagated(text)
    found = evaluate(module, inputs, "highest")
    np.testing.assert_array_equal(found[0], want[0])
    again = parse_module(print_module(module))
    assert shardings(again) == shardings(module)
