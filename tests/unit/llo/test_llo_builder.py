"""What the builder numbers, folds, hoists and drops."""

from __future__ import annotations

import pytest

from compiler.llo.builder import LloBuilder, f32_bits
from compiler.llo.ir import LloBlock
from compiler.llo.verifier import verify_llo
from compiler.llo.walk import blocks, op_count
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.control_flow import If, Loop

CHIP = load_chip("v5e")


def new_builder() -> LloBuilder:
    return LloBuilder("k", CHIP)


def names(builder: LloBuilder) -> list[str]:
    return [op.row.name for block in blocks(builder.finish().body) for op in block.ops]


def test_equal_operations_are_one() -> None:
    b = new_builder()
    x = b.window("x", 64)
    first = b.emit("vadd.f32", b.emit("vld", x, 0, 0, 1), b.emit("vmovi", 3))
    second = b.emit("vadd.f32", b.emit("vld", x, 0, 0, 1), b.emit("vmovi", 3))
    assert first == second
    assert names(b) == ["vld", "vmovi", "vadd.f32"]


def test_a_store_makes_loads_of_its_window_new() -> None:
    b = new_builder()
    x, y = b.window("x", 64), b.window("y", 64)
    from_x, from_y = b.emit("vld", x, 0, 0, 1), b.emit("vld", y, 0, 0, 1)
    b.emit("vst", x, 0, 8, 1, from_y)
    assert b.emit("vld", x, 0, 0, 1) != from_x
    assert b.emit("vld", y, 0, 0, 1) == from_y


def test_a_dma_wait_makes_all_loads_new() -> None:
    b = new_builder()
    x = b.window("x", 64)
    before = b.emit("vld", x, 0, 0, 1)
    b.emit("dma.wait", b.flag(), 0)
    assert b.emit("vld", x, 0, 0, 1) != before


def test_vregs_are_not_shared_between_blocks() -> None:
    b = new_builder()
    before = b.emit("vlane")
    b.new_block()
    assert b.emit("vlane") != before


def test_a_push_comes_with_its_pop() -> None:
    b = new_builder()
    result = b.emit("vtanh.f32", b.emit("vmovi", f32_bits(0.5)))
    kernel = b.finish()
    ops = next(blocks(kernel.body)).ops
    assert [op.row.name for op in ops] == ["vmovi", "vtanh.f32", "vpop.eup"]
    assert ops[2].operands == (result,)


def test_scalar_constants_fold() -> None:
    b = new_builder()
    seven = b.sadd(b.sconst(3), b.sconst(4))
    assert b.constant(seven) == 7
    assert b.constant(b.smuli(seven, 6)) == 42
    assert b.constant(b.scmp("lt", "s32", seven, b.sconst(8))) == 1
    assert b.sconst(0) == 0
    assert b.ssub(seven, seven) == 0 or b.constant(b.ssub(seven, seven)) == 0


@pytest.mark.parametrize(("factor", "row"), [(8, "sshli"), (24, "smuli.s32")])
def test_multiplications_by_powers_of_two_are_shifts(factor: int, row: str) -> None:
    b = new_builder()
    with b.loop(4) as i:
        b.emit("sst", 0, 200, b.smuli(i, factor))
    assert names(b) == [row, "sst"]


def test_chains_of_added_constants_go_into_the_address() -> None:
    b = new_builder()
    x = b.window("x", 64)
    with b.loop(4) as i:
        row = b.saddi(b.saddi(i, 8), 16)
        b.emit("vst", x, row, 1, 1, b.emit("vlane"))
    loop = b.finish().body[-1]
    assert isinstance(loop, Loop)
    store = next(op for block in blocks(loop.body) for op in block.ops if op.row.name == "vst")
    assert store.operands[1:3] == (loop.index, 25)


def test_invariant_scalars_leave_the_loop() -> None:
    b = new_builder()
    size = b.argument(0)
    with b.loop(4) as i, b.loop(5) as j:
        b.emit("sst", j, 300, b.sadd(b.smuli(size, 3), b.smuli(i, 5)))
    kernel = b.finish()
    outer, inner = kernel.body[0], kernel.body[1]
    assert isinstance(outer, LloBlock) and isinstance(inner, Loop)
    assert [op.row.name for op in outer.ops] == ["sld", "smuli.s32"]
    assert [op.row.name for op in next(blocks(inner.body)).ops] == ["smuli.s32", "sadd.s32"]
    verify_llo(kernel)


def test_invariant_scalars_of_an_else_branch_come_before_the_if() -> None:
    b = new_builder()
    size = b.argument(0)
    with b.if_(size):
        b.emit("sst", 0, 200, size)
    with b.else_():
        b.emit("sst", 0, 200, b.smuli(size, 3))
    kernel = b.finish()
    assert isinstance(kernel.body[1], If)
    verify_llo(kernel)


def test_what_depends_on_a_variable_stays_and_is_renewed() -> None:
    b = new_builder()
    variable = b.variable(constant=1)
    with b.loop(3):
        before = b.saddi(variable, 1)
        assert b.saddi(variable, 1) == before
        b.assign(variable, before)
        assert b.saddi(variable, 1) != before
    verify_llo(b.finish())


def test_only_variables_are_assigned() -> None:
    b = new_builder()
    with pytest.raises(ValueError, match="not a variable"):
        b.assign(b.argument(0), b.sconst(1))


def test_a_loop_of_one_iteration_is_no_loop() -> None:
    b = new_builder()
    with b.loop(1) as i:
        assert i == 0
        b.emit("sst", 0, 200, b.saddi(i, 3))
    assert not any(isinstance(node, Loop) for node in b.finish().body)


def test_a_loop_of_no_iterations_is_no_code() -> None:
    b = new_builder()
    with b.loop(0) as i:
        b.emit("sst", 0, 200, i)
    assert op_count(b.finish()) == 0


def test_a_wrong_number_of_operands_is_refused() -> None:
    b = new_builder()
    with pytest.raises(TypeError, match=r"vadd\.f32: 1 operands, want 2"):
        b.emit("vadd.f32", b.emit("vlane"))


def test_calls_need_a_builder_for_main() -> None:
    with pytest.raises(ValueError, match="main"):
        new_builder().call("k")
    main = LloBuilder("main", CHIP, calls=True)
    main.emit("sst", 0, 1, main.argument(0))
    main.call("k", "site")
    assert len(main.finish().body) == 2


def test_while_loops_have_a_test_and_a_body() -> None:
    b = new_builder()
    count = b.variable(constant=0)
    with b.while_("w", expected_trips=7) as loop:
        loop.condition(b.scmp("lt", "s32", count, b.sconst(7)))
        b.assign_add(count, 1)
    verify_llo(b.finish())
