"""Program text both ways."""

from __future__ import annotations

import random

import pytest

from tests.isa.test_encoding import ALL_ROWS, random_instr
from tests.support.isa_programs import block, kernel_text, program_text
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.container import dump_program, load_program
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.errors import AssemblyError
from tpu_sim.isa.instruction import Instr, Row
from tpu_sim.isa.program import (
    HBM,
    SMEM,
    VMEM,
    Block,
    DmaDescriptor,
    DmaDim,
    HbmBuffer,
    Kernel,
    Node,
    Program,
    Window,
)
from tpu_sim.isa.text import format_f32, format_instr, format_operation, parse_f32, parse_instr

NAMES = ("", "x", 'a "quoted" ; name', "{ } @", "back\\slash", "naïve\n")


def random_program(seed: int) -> Program:
    """Everything a program can say, without regard to whether it could run."""
    rng = random.Random(seed)
    kernels = {f"k{i}": random_kernel(rng, f"k{i}") for i in range(3)}
    return Program(
        target="v5e",
        kernels=kernels,
        main=[*random_nodes(rng, 3), Call("k0", rng.choice(NAMES))],
        buffers=[
            HbmBuffer(rng.choice(NAMES), "temp", 512 * i, 512, "f32[8]{0}", i - 1) for i in range(3)
        ],
        constants=[(512 * i, rng.randbytes(rng.choice([0, 1, 60, 200]))) for i in range(3)],
        hbm_bytes=1 << 20,
        smem_words=512,
        smem_args=0,
        metadata={name: rng.choice(NAMES) for name in NAMES},
    )


def random_kernel(rng: random.Random, name: str) -> Kernel:
    dims = (DmaDim(4, 8, -16), DmaDim(-1, 0, 1), DmaDim(-2, 3, 4))
    return Kernel(
        name=name,
        arg_count=3,
        windows=[Window(rng.choice(NAMES), 8 * i, 8) for i in range(3)],
        descriptors=[
            DmaDescriptor(HBM, VMEM, 8, dims[: rng.randrange(4)], 1),
            DmaDescriptor(SMEM, HBM, 1, (), -1),
        ],
        body=random_nodes(rng, 3),
        spill_slots=2,
        spill_base_row=24,
        flags=3,
        flops=10**12,
        note=rng.choice(NAMES),
    )


def random_nodes(rng: random.Random, depth: int) -> list[Node]:
    nodes: list[Node] = [random_block(rng)]
    if depth:
        nodes.append(
            Loop(4, 5, random_nodes(rng, depth - 1), parallel=True, name=rng.choice(NAMES))
        )
        nodes.append(Loop(-1, 5, random_nodes(rng, 0), trip_sreg=3))
        nodes.append(If(2, random_nodes(rng, depth - 1), rng.choice([[], random_nodes(rng, 0)])))
        nodes.append(While(random_nodes(rng, 0), 6, random_nodes(rng, depth - 1), "w", -1))
    return nodes


def random_block(rng: random.Random) -> Block:
    bundles = []
    for _ in range(6):
        bundle = []
        for _ in range(rng.choice([0, 0, 1, 4])):
            instr = random_instr(rng.choice(ALL_ROWS), rng)
            bundle.append(Instr(instr.row, instr.operands, rng.choice(NAMES)))
        bundles.append(tuple(bundle))
    return Block(bundles, rng.choice(NAMES))


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.name)
def test_every_row_prints_and_parses_back(row: Row) -> None:
    rng = random.Random(row.name)
    for _ in range(20):
        instr = random_instr(row, rng)
        assert parse_instr(format_instr(instr)) == instr
        bare = Instr(instr.row, instr.operands)
        assert format_operation(instr) == format_instr(bare)


@pytest.mark.parametrize("seed", range(8))
def test_programs_print_and_parse_back(seed: int) -> None:
    program = random_program(seed)
    text = print_program(program)
    assert parse_program(text) == program
    assert print_program(parse_program(text)) == text


@pytest.mark.parametrize("seed", range(8))
def test_programs_go_through_the_container(seed: int) -> None:
    program = random_program(seed)
    assert load_program(dump_program(program)) == program


def test_f32_immediates_keep_every_bit() -> None:
    rng = random.Random(0)
    edges = [0, -(1 << 31), 1, 0x7F800000, -1, -0x00400001]
    for bits in [*edges, *(rng.getrandbits(32) - (1 << 31) for _ in range(500))]:
        assert parse_f32(format_f32(bits)) == bits


def test_the_form_of_memory_accesses_reads_well() -> None:
    instr = parse_instr('vld v4 = [w0 + s2 + 8] stride 1 @"add.5"')
    assert (instr.row.name, instr.operands, instr.source) == ("vld", (4, 0, 2, 8, 1), "add.5")


@pytest.mark.parametrize(
    ("bundle", "message"),
    [
        ("vadd.f33 v1 = v2, v3", "unknown instruction .*; near: vadd.f32, "),
        ("vadd.f32 v1 = v2", "want the form 'vadd.f32 v0 = v0, v0'"),
        ("vadd.f32 v1 = v2, s3", "wrong operands"),
        ("vld v1 = [w0 + 8] stride 1", "wrong operands"),
    ],
)
def test_bad_instructions_are_named_with_their_line(bundle: str, message: str) -> None:
    text = program_text(kernel_text(block("smovi s1 = 1", bundle)))
    with pytest.raises(AssemblyError, match=message) as caught:
        parse_program(text, "bad.tpu")
    line = 1 + text.split("\n").index(f"{{ {bundle} }}")
    assert caught.value.where == f"bad.tpu:{line}:3"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("main {", "mian {", "want metadata"),
        ("window w1", "window w2", "number 2, want 1"),
        ("hbm -> vmem", "hbm -> cmem", "want the spaces"),
        ("chunk 64 dims []", "chunk 64 dims [3 y 4]", "want a dimension"),
        ('site "k.1"\n}', 'site "k.1"', "ends too early"),
    ],
)
def test_bad_structure_is_refused(before: str, after: str, message: str) -> None:
    text = program_text(kernel_text(block("smovi s1 = 1")))
    assert before in text
    with pytest.raises(AssemblyError, match=message):
        parse_program(text.replace(before, after, 1))
