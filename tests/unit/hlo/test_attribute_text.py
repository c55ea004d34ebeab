from __future__ import annotations

import pytest

from compiler.hlo.attribute_text import FORMS, Reference, decode, encode
from compiler.hlo.attributes import (
    ConvDims,
    FrontendAttributes,
    InputOutputAlias,
    IotaReplicaGroups,
    OpMetadata,
    RawText,
    Window,
    WindowDim,
)

ROUND_TRIPS = {
    "index": "3",
    "epsilon": "0.001",
    "is_stable": "true",
    "direction": "LT",
    "algorithm": "dot_bf16_bf16_f32_x3",
    "custom_call_target": '"a\\"b\\n"',
    "dimensions": "{0,2}",
    "operand_precision": "{highest,default}",
    "source_target_pairs": "{{0,1},{1,0}}",
    "replica_groups": "[2,4]<=[4,2]T(1,0)",
    "slice_sizes": "{{1,8},{2,8}}",
    "slice": "{[0:8:2], [1:4:1]}",
    "result_accuracy": "{tolerance={atol=1,rtol=0.5,ulps=2}}",
    "padding": "1_2_1x0_-1_0",
    "window": "{size=3x1 stride=2x1 pad=0_1x0_0 lhs_dilate=2x1 rhs_dilate=1x2 rhs_reversal=1x0}",
    "dim_labels": "b01f_01io->b01f",
    "metadata": '{op_name="jit(f)/add" source_line=3}',
    "frontend_attributes": '{a="x,y=}",b.c={m = #sdy.mesh<["x"=8]>},d="z"}',
    "backend_config": '{"k":{"v":["}"]}}',
    "entry_computation_layout": "{(f32[2]{0}, s32[])->(f32[2]{0})}",
    "input_output_alias": "{ {0}: (1, {}, may-alias), {1,2}: (0, {3}, must-alias) }",
    "buffer_donor": "{ (0, {}), (1, {2}) }",
    "output_to_operand_aliasing": "{{0}: (1, {}), {}: (0, {1})}",
    "operand_layout_constraints": "{f32[2,2]{0,1}, s32[]}",
    "sharding": "{{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}, {maximal device=1}}",
    "unheard_of": "{anything {at} all}",
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_values_print_back_as_they_were(name: str) -> None:
    assert encode(name, decode(name, ROUND_TRIPS[name])) == ROUND_TRIPS[name]


def test_every_form_is_exercised() -> None:
    covered = {FORMS[name] for name in ROUND_TRIPS if name in FORMS}
    references = {FORMS[name] for name in ("to_apply", "calls", "control-predecessors")}
    assert set(FORMS.values()) == covered | references


def test_windows_and_labels_become_values() -> None:
    window = decode("window", "{size=3 stride=2 pad=0_1}")
    assert window == Window((WindowDim(3, stride=2, pad_high=1),))
    labels = decode("dim_labels", "bf01_oi01->bf01")
    assert labels == ConvDims(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))


def test_window_counts_its_positions() -> None:
    assert WindowDim(3, stride=2, pad_high=1).output_size(8) == 4
    assert WindowDim(3, base_dilation=2, window_dilation=2).output_size(5) == 5
    assert WindowDim(4).output_size(3) == 0


def test_iota_replica_groups_expand() -> None:
    groups = decode("replica_groups", "[2,4]<=[4,2]T(1,0)")
    assert isinstance(groups, IotaReplicaGroups)
    assert groups.groups() == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_computations_are_references_until_the_parser_resolves_them() -> None:
    assert decode("to_apply", "%sum") == Reference(("sum",), is_list=False)
    assert decode("branch_computations", "{%a, b}") == Reference(("a", "b"), is_list=True)


def test_fields_inside_values_are_found() -> None:
    metadata = decode("metadata", ROUND_TRIPS["metadata"])
    assert isinstance(metadata, OpMetadata)
    assert (metadata.op_name, metadata.field("source_line")) == ("jit(f)/add", "3")
    attributes = decode("frontend_attributes", ROUND_TRIPS["frontend_attributes"])
    assert isinstance(attributes, FrontendAttributes)
    assert attributes.get("a") == "x,y=}"
    assert attributes.get("d") == "z"
    assert attributes.get("nothing") is None
    aliases = decode("input_output_alias", ROUND_TRIPS["input_output_alias"])
    assert isinstance(aliases, tuple)
    assert aliases[1] == InputOutputAlias((1, 2), 0, (3,), "must-alias")
    assert decode("unheard_of", "x") == RawText("x")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("index", "one"),
        ("is_stable", "maybe"),
        ("direction", "{LT}"),
        ("dimensions", "3"),
        ("custom_call_target", "bare"),
        ("slice", "{[1]}"),
        ("padding", "1x2"),
        ("window", "{sizes=3}"),
        ("window", "{size=3x3 stride=2}"),
        ("dim_labels", "b01f_01io->b0f"),
        ("replica_groups", "{0,1}"),
        ("replica_groups", "[3,2]<=[2]"),
        ("replica_groups", "[2,4]<=[4,2]T(0,2)"),
        ("replica_groups", "[1,99999999999]<=[99999999999]"),
        ("input_output_alias", "{ {0}: 1 }"),
        ("frontend_attributes", "{a b}"),
        ("entry_computation_layout", "{(f32[2])}"),
    ],
)
def test_malformed_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(name, text)
