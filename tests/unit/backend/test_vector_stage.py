"""Vector stages: every load and store pattern, against the evaluator, bit for bit."""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

import tpuc
from compiler.diagnostics import UnsupportedError
from compiler.driver import compile_module
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.parser import parse_module
from tests.support.against_evaluator import check
from tests.support.vector_runs import Array, Run
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.chips import load_chip


def values(dtype: str, *dims: int, seed: int = 0) -> Array:
    """Random values: integers over the type's range, floats around one."""
    rng = np.random.default_rng(seed)
    info = BY_NAME[dtype]
    if dtype == "pred":
        return rng.random(dims) < 0.5
    if info.is_integer:
        bits = rng.integers(0, 256, (*dims, info.bits // 8), dtype=np.uint8)
        return bits.view(info.numpy).reshape(dims)
    return rng.standard_normal(dims).astype(info.numpy)


def run(text: str, *args: Array, scalars: bool = False) -> Run:
    """Run and compare exactly, with and without readable rows after the buffers."""
    result = Run(text, args, scalars=scalars)
    result.check()
    Run(text, args, guard=True, scalars=scalars).check()
    return result


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "s32", "s16", "u8", "s8", "pred"])
@pytest.mark.parametrize("dims", [(), (5,), (3000,), (1, 1), (7, 129), (40, 300), (3, 5, 130)])
def test_copying_elementwise(dtype: str, dims: tuple[int, ...]) -> None:
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    text = f"c = pred{shape[len(dtype) :]} parameter(0)\np = {shape} parameter(1)\n"
    text += f"q = {shape} parameter(2)\nROOT r = {shape} select(c, p, q)"
    run(text, values("pred", *dims), values(dtype, *dims), values(dtype, *dims, seed=1))


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.permutations(["f32", "bf16", "s8", "pred"], 2))
)
@pytest.mark.parametrize("dims", [(41, 300), (41, 100), (200,)])
def test_packings_meet_in_one_stage(source: str, target: str, dims: tuple[int, ...]) -> None:
    extents = ",".join(map(str, dims))
    text = f"""p = {source}[{extents}] parameter(0)
        ROOT r = {target}[{extents}] convert(p)"""
    run(text, values(source, *dims))


MOVES = {
    "bias": ("b = f32[40,300] broadcast(p), dimensions={1}", "300"),
    "row_bias": ("b = f32[40,300] broadcast(p), dimensions={0}", "40"),
    "scalar": ("b = f32[40,300] broadcast(p), dimensions={}", ""),
    "column": ("c = f32[40] reshape(p)\nb = f32[40,300] broadcast(c), dimensions={0}", "40,1"),
    "to_inner": ("b = f32[3,20,100] broadcast(p), dimensions={0,1}", "3,20"),
    "slice": ("b = f32[30,200] slice(p), slice={[3:33],[5:205]}", "50,300"),
    "strided": ("b = f32[15,70] slice(p), slice={[3:33:2],[5:215:3]}", "50,300"),
    "reverse": ("b = f32[50,300] reverse(p), dimensions={0,1}", "50,300"),
    "major_transpose": ("b = f32[20,5,130] transpose(p), dimensions={1,0,2}", "5,20,130"),
    "to_lanes": ("b = f32[4,50,3,40] transpose(p), dimensions={0,3,1,2}", "4,3,40,50"),
    "narrow": ("b = f32[16,100] reshape(p)", "8,200"),
    "merge_heads": ("b = f32[64,256] reshape(p)", "4,16,4,64"),
    "split_heads": ("b = f32[4,16,4,64] reshape(p)", "64,256"),
    "head_major": (
        "a = f32[64,4,64] reshape(p)\nb = f32[4,64,64] transpose(a), dimensions={1,0,2}",
        "64,256",
    ),
    "flatten": ("b = f32[1500] reshape(p)", "30,50"),
    "unflatten": ("b = f32[30,50] reshape(p)", "1500"),
    "odd_rows": ("b = f32[394,192] reshape(p)", "2,197,192"),
    "odd_split": ("b = f32[2,197,192] reshape(p)", "394,192"),
    "pad": ("z = f32[] constant(2)\nb = f32[35,140] pad(p,z), padding=3_2x80_10", "30,50"),
    "interior": ("z = f32[] constant(2)\nb = f32[24,161] pad(p,z), padding=3_2_1x8_5_2", "10,50"),
    "shift": ("z = f32[] constant(0)\nb = f32[60,300] pad(p,z), padding=1_-1x-1_1", "60,300"),
    "concat": ("b = f32[10,150] concatenate(p,p,p), dimensions={1}", "10,50"),
    "concat_rows": ("b = f32[33,50] concatenate(p,p,p), dimensions={0}", "11,50"),
    "iota": ("i = f32[10,50] iota(), iota_dimension=0\nb = f32[10,50] add(p,i)", "10,50"),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("move", MOVES)
def test_moves(move: str, dtype: str) -> None:
    body, dims = MOVES[move]
    text = f"p = f32[{dims}] parameter(0)\n{body}"
    head, _, last = text.rpartition("\n")
    text = f"{head}\nROOT {last}".replace("f32", dtype)
    run(text, values(dtype, *(int(d) for d in dims.split(",") if d)))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    "source,target", [("24,270", "72,90"), ("16,16,192", "16,3072"), ("8,32,72", "8,2304")]
)
def test_rows_that_are_put_in_lanes_or_taken_out_need_no_indexed_load(
    source: str, target: str, dtype: str
) -> None:
    text = f"""p = {dtype}[{source}] parameter(0)
        ROOT r = {dtype}[{target}] reshape(p)"""
    result = run(text, values(dtype, *(int(d) for d in source.split(","))))
    assert result.count("vld.idx") == 0


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "pred"])
@pytest.mark.parametrize("rows,cols", [(50, 300), (128, 128), (300, 50), (7, 3), (130, 20)])
def test_minor_transposes(rows: int, cols: int, dtype: str) -> None:
    text = f"""p = {dtype}[{rows},{cols}] parameter(0)
        ROOT r = {dtype}[{cols},{rows}] transpose(p), dimensions={{1,0}}"""
    result = run(text, values(dtype, rows, cols))
    assert result.count("vld.idx") == 0


@pytest.mark.parametrize("rows,blocks", [(128, 1), (256, 1), (300, 2), (512, 2), (640, 3)])
def test_two_rows_in_a_word_share_a_transposed_block(rows: int, blocks: int) -> None:
    text = f"""p = bf16[{rows},128] parameter(0)
        ROOT r = bf16[128,{rows}] transpose(p), dimensions={{1,0}}"""
    result = run(text, values("bf16", rows, 128))
    assert result.count("vxpose.swap.b16") == blocks


TRANSPOSES = {
    "misaligned": """s = f32[150,300] slice(p), slice={[13:163],[5:305]}
        ROOT r = f32[300,150] transpose(s), dimensions={1,0}""",
    "merged_rows": """s = f32[6,50,320] reshape(p)
        t = f32[320,6,50] transpose(s), dimensions={2,0,1}
        ROOT r = f32[320,300] reshape(t)""",
    "repeated_rows": """s = f32[300,2,320] broadcast(p), dimensions={0,2}
        m = f32[600,320] reshape(s)
        ROOT r = f32[320,600] transpose(m), dimensions={1,0}""",
    "two_leaves": """s = f32[200,300] slice(p), slice={[0:200],[0:300]}
        u = f32[200,300] slice(p), slice={[100:300],[20:320]}
        d = f32[200,300] subtract(s, u)
        t = f32[300,200] transpose(d), dimensions={1,0}
        v = f32[300,200] transpose(u), dimensions={1,0}
        ROOT r = f32[300,200] multiply(t, v)""",
    "batched": """s = f32[3,100,320] reshape(p)
        ROOT r = f32[3,320,100] transpose(s), dimensions={0,2,1}""",
    "plus_straight": """s = f32[300,300] slice(p), slice={[0:300],[0:300]}
        t = f32[300,300] transpose(s), dimensions={1,0}
        ROOT r = f32[300,300] subtract(t, s)""",
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", TRANSPOSES)
def test_transposes_of_moved_operands(name: str, dtype: str) -> None:
    text = f"p = f32[300,320] parameter(0)\n{TRANSPOSES[name]}".replace("f32", dtype)
    source = values("s8", 300, 320).astype(np.float32)  # whole numbers: exact in bf16 products
    source = np.sign(source) * (np.abs(source) % 8)
    result = run(text, source.astype(BY_NAME[dtype].numpy))
    assert result.count("vld.idx") == 0


def test_columns_of_a_concatenation_are_read_each_in_its_way() -> None:
    text = """p = bf16[256,768] parameter(0)
        a = bf16[256,512] slice(p), slice={[0:256],[0:512]}
        s = bf16[256,256] slice(p), slice={[0:256],[512:768]}
        b = bf16[256,256] transpose(s), dimensions={1,0}
        s2 = bf16[128,256] slice(p), slice={[0:128],[256:512]}
        c = bf16[256,128] transpose(s2), dimensions={1,0}
        d = bf16[256,128] slice(p), slice={[0:256],[128:256]}
        ROOT r = bf16[256,1024] concatenate(a, b, c, d), dimensions={1}"""
    result = run(text, values("bf16", 256, 768))
    assert result.count("vxpose.swap.b16") == 2  # the columns of b
    assert result.count("vxpose.swap") > 0  # those of c, beside others in a pair of tiles
    assert result.count("vld.idx") == 0


@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_blocks_go_to_all_transpose_units(chip: str) -> None:
    text = """p = bf16[1536,256] parameter(0)
        ROOT r = bf16[256,1536] transpose(p), dimensions={1,0}"""
    program = compile_module(parse_module(f"ENTRY e {{ {text} }}"), load_chip(chip)).program
    swaps = re.findall(r"vxpose\.swap\.b16 (\d)", print_program(program))
    assert len(set(swaps)) == load_chip(chip).transpose_units


@pytest.mark.parametrize("start", [0, 5, 8, 29, 30, 99, -3])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_dynamic_slices_clamp(start: int, dtype: str) -> None:
    text = f"""p = {dtype}[50,300] parameter(0)
        i = s32[] parameter(1)
        j = s32[] parameter(2)
        ROOT r = {dtype}[20,200] dynamic-slice(p,i,j), dynamic_slice_sizes={{20,200}}"""
    source = values(dtype, 50, 300)
    result = run(text, source, np.int32(start), np.int32(3 * start), scalars=True)
    assert result.count("vld.idx") == 0


@pytest.mark.parametrize("start", [0, 13, 99])
def test_dynamic_update_slice_selects(start: int) -> None:
    text = """p = f32[50,300] parameter(0)
        u = f32[20,200] parameter(1)
        i = s32[] parameter(2)
        j = s32[] parameter(3)
        ROOT r = f32[50,300] dynamic-update-slice(p,u,i,j)"""
    args = (values("f32", 50, 300), values("f32", 20, 200, seed=1))
    run(text, *args, np.int32(start), np.int32(2 * start), scalars=True)


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_transposed_rows_go_on_from_major_to_major_at_a_dynamic_start(start: int) -> None:
    """Rows 1..9 of each major, three at a time, side by side: the start says in which they begin."""
    text = """x = f32[2,16,3] parameter(0)
    w = f8e4m3fn[2,32,1] parameter(1)
    at = s32[] parameter(2)
    z = s32[] constant(0)
    rows = f32[2,9,3] slice(x), slice={[0:2], [1:10], [0:3]}
    apart = f32[2,3,3,3] reshape(rows)
    beside = f32[3,2,3,3] transpose(apart), dimensions={2,0,1,3}
    merged = f32[3,6,3] reshape(beside)
    three = f8e4m3fn[1,3,1] slice(w), slice={[0:1], [3:6], [0:1]}
    scales = f8e4m3fn[3] reshape(three)
    wide = f32[3] convert(scales)
    factors = f32[3,6,3] broadcast(wide), dimensions={2}
    scaled = f32[3,6,3] multiply(merged, factors)
    turned = f32[3,3,6] transpose(scaled), dimensions={0,2,1}
    ROOT r = f32[3,3,3] dynamic-slice(turned, z, z, at), dynamic_slice_sizes={3,3,3}"""
    weights = values("f8e4m3fn", 2, 32, 1)
    run(text, values("f32", 2, 16, 3), weights, np.array(start, np.int32), scalars=True)


def test_start_in_memory_is_refused_by_name() -> None:
    text = """p = f32[50,300] parameter(0)
        i = s32[] parameter(1)
        ROOT r = f32[20,300] dynamic-slice(p,i,i), dynamic_slice_sizes={20,300}"""
    with pytest.raises(UnsupportedError, match=r"%i: a start index of %r"):
        Run(text, (values("f32", 50, 300), np.int32(1)))


def test_aligned_stages_load_each_vreg_once() -> None:
    text = """p = f32[64,256] parameter(0)
        q = f32[256] parameter(1)
        b = f32[64,256] broadcast(q), dimensions={1}
        s = f32[64,256] add(p, b)
        ROOT r = f32[64,256] multiply(s, p)"""
    result = run(text, values("f32", 64, 256), values("f32", 256))
    assert result.count("vst") == 16
    assert result.count("vld") == 18
    assert result.count("vsel") == 0


def test_chains_of_any_length() -> None:
    lines = ["p0 = s32[8,128] parameter(0)"]
    lines += [f"p{n} = s32[8,128] xor(p{n - 1}, p{max(0, n - 2)})" for n in range(1, 2000)]
    lines.append("ROOT r = s32[8,128] add(p1999, p0)")
    Run("\n".join(lines), (values("s32", 8, 128),)).check()


def test_results_of_several_types() -> None:
    text = """p = f32[20,130] parameter(0)
        a = bf16[20,130] convert(p)
        b = f32[20,130] negate(p)
        z = f32[20,130] abs(b)
        c = pred[20,130] compare(z, p), direction=EQ
        ROOT t = (bf16[20,130], f32[20,130], pred[20,130]) tuple(a, b, c)"""
    run(text, values("f32", 20, 130))


def test_array_constants_are_refused_by_name() -> None:
    text = """p = f32[3] parameter(0)
        k = f32[3] constant({1, 2, 3})
        ROOT r = f32[3] add(p, k)"""
    with pytest.raises(UnsupportedError, match="%k: a constant with different elements"):
        Run(text, (values("f32", 3),))


def test_wide_elements_are_refused_by_name() -> None:
    text = "p = s64[3] parameter(0)\nROOT r = s64[3] add(p, p)"
    with pytest.raises(UnsupportedError, match="s64"):
        Run(text, (np.zeros(3, np.int64),))


def test_nan_payloads_of_padding_never_reach_results() -> None:
    text = """p = bf16[9,130] parameter(0)
        z = bf16[] constant(0)
        ROOT r = bf16[20,300] pad(p, z), padding=1_10x3_167"""
    result = run(text, values("bf16", 9, 130))
    assert not np.isnan(result.results[0].astype(np.float32)).any()
    assert ml_dtypes.bfloat16 == result.results[0].dtype


_DEPTHWISE = """HloModule m
ENTRY e {{
  x = f32[{h},{w},{n},{c}] parameter(0)
  k = f32[{k},{k},1,{c}] parameter(1)
  ROOT r = f32[{h},{w},{n},{c}] convolution(x, k), window={{size={k}x{k} pad={p}_{p}x{p}_{p}}},
    dim_labels=01bf_01io->01bf, feature_group_count={c}
}}
"""


@pytest.mark.parametrize("h, w, n, c, k", [(5, 6, 16, 96, 7), (4, 7, 8, 200, 7), (6, 5, 20, 64, 5)])
def test_tiles_of_many_taps_in_twos(h: int, w: int, n: int, c: int, k: int) -> None:
    text = _DEPTHWISE.format(h=h, w=w, n=n, c=c, k=k, p=k // 2)
    rng = np.random.default_rng(k)
    x, weights = (rng.integers(-4, 5, s).astype(np.float32) for s in ((h, w, n, c), (k, k, 1, c)))
    check(text, [x, weights])


def test_tiles_of_many_taps_share_weights_and_masks() -> None:
    """127 cycles for a register of 49 taps by itself."""
    text = _DEPTHWISE.format(h=28, w=28, n=16, c=96, k=7, p=3)
    registers = 28 * 28 * 2
    assert tpuc.compile(text).estimate().cycles < 80 * registers
