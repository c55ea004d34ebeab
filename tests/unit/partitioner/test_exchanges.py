"""What devices send each other: rows at borders and results, and not the arrays."""

from __future__ import annotations

import pytest

import tpuc
from runtime.slice_executable import SliceExecutable

HEAD = "HloModule m, num_partitions=8\nset { x = f32[] parameter(0) ROOT y = f32[] parameter(1) }\n"
ROWS = "sharding={devices=[8,1]<=[8]}"
WHOLE = "sharding={replicated}"

CASES = {
    "shift by a row": (
        "v5e:4x2",
        f"""x = f32[64,4] parameter(0), {ROWS} z = f32[] constant(0), {WHOLE}
        p = f32[65,4] pad(x, z), padding=1_0x0_0
        ROOT r = f32[64,4] slice(p), slice={{[0:64], [0:4]}}, {ROWS}""",
        {"collective-permute": 16},
    ),
    "a row for each sequence": (
        "v5e:4x2",
        f"""c = f32[8,32,8] parameter(0), sharding={{devices=[1,8,1]<=[8]}}
        i = s32[8,2] parameter(1), {WHOLE} u = f32[8,1,8] parameter(2), {WHOLE}
        ROOT r = f32[8,32,8] scatter(c, i, u), update_window_dims={{1,2}}, inserted_window_dims={{}},
        scatter_dims_to_operand_dims={{1,2}}, input_batching_dims={{0}},
        scatter_indices_batching_dims={{0}}, index_vector_dim=1, to_apply=set,
        sharding={{devices=[1,8,1]<=[8]}}""",
        {},
    ),
    "windows of rows": (
        "v5e:4x2",
        f"""c = f32[64,128] parameter(0), {ROWS} i = s32[2,1] parameter(1), {WHOLE}
        ROOT r = f32[2,3,128] gather(c, i), offset_dims={{1,2}}, collapsed_slice_dims={{}},
        start_index_map={{0}}, index_vector_dim=1, slice_sizes={{3,128}}, {WHOLE}""",
        {"all-reduce": 2 * 3 * 128 * 4},
    ),
    "gradient of a kernel": (
        "v5e:4x2",
        f"""a = f32[2,32,8,4] parameter(0), sharding={{devices=[1,8,1,1]<=[8]}}
        g = f32[2,32,8,4] parameter(1), sharding={{devices=[1,8,1,1]<=[8]}}
        ROOT r = f32[3,3,4,4] convolution(a, g), window={{size=32x8 pad=1_1x1_1}},
        dim_labels=f01b_i01o->01bf, {WHOLE}""",
        {"collective-permute": 2 * 2 * 8 * 4 * 4, "all-reduce": 3 * 3 * 4 * 4 * 4},
    ),
    "reversed both ways": (
        "v5e:2x3",
        """x = f32[12,18] parameter(0), sharding={devices=[2,3]<=[6]}
        ROOT r = f32[12,18] reverse(x), dimensions={0,1}, sharding={devices=[2,3]<=[6]}""",
        {"collective-permute": 6 * 6 * 4},
    ),
    "a matrix on each device": (
        "v5e:4x2",
        """x = f32[8,3,3] parameter(0), sharding={devices=[8,1,1]<=[8]}
        ROOT r = (f32[8,3,3], s32[8]) custom-call(x), custom_call_target="lapack_spotrf_ffi",
        backend_config={uplo = 76 : ui8}, frontend_attributes={num_batch_dims="1"},
        sharding={{devices=[8,1,1]<=[8]}, {devices=[8]<=[8]}}""",
        {},
    ),
    "factors by the target's name": (
        "v5e:4x2",
        """x = f32[8,4,3] parameter(0), sharding={devices=[8,1,1]<=[8]}
        ROOT r = (f32[8,4,3], f32[8,3]) custom-call(x), custom_call_target="Qr",
        sharding={{devices=[8,1,1]<=[8]}, {devices=[8,1]<=[8]}}""",
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_more_is_sent_than_is_missing(name: str) -> None:
    target, body, want = CASES[name]
    text = HEAD.replace("=8\n", "=6\n") if target == "v5e:2x3" else HEAD
    exe = tpuc.compile(f"{text}ENTRY e {{ {body} }}", target=target)
    assert isinstance(exe, SliceExecutable)
    found: dict[str, int] = {}
    for sent in exe.collectives:
        kind = str(sent["kind"])
        found[kind] = found.get(kind, 0) + int(str(sent["operand_bytes"]))
    assert found == want
