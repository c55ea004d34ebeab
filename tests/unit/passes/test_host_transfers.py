"""Programs with host transfers are cut where a received value is used, and nowhere else."""

from __future__ import annotations

from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.host_transfers import stage_program
from compiler.passes.stages import Branch, HostTransfer, Stage, StagedProgram, StageLoop
from tpu_sim.isa.chips import load_chip

SEND = """
  {n} = (f32[4], u32[], token[]) send({value}, {token}), channel_id={channel}, is_host_transfer=true
  {n}d = token[] send-done({n}), channel_id={channel}, is_host_transfer=true"""
RECEIVE = """
  {n} = (f32[4], u32[], token[]) recv({token}), channel_id={channel}, is_host_transfer=true
  {n}d = (f32[4], token[]) recv-done({n}), channel_id={channel}, is_host_transfer=true
  {n}v = f32[4] get-tuple-element({n}d), index=0
  {n}t = token[] get-tuple-element({n}d), index=1"""


def staged(body: str) -> StagedProgram:
    return stage_program(parse_module(f"HloModule m\n{body}"), PassContext(load_chip("v5e")))


def kinds(program: StagedProgram) -> list[str]:
    names = {True: "send", False: "receive"}
    return [names[s.is_send] if isinstance(s, HostTransfer) else "run" for s in program.steps]


def test_a_received_value_is_used_in_a_stage_of_its_own() -> None:
    program = staged(
        "ENTRY main {\n  x = f32[4] parameter(0)\n  t = token[] after-all()\n  y = f32[4] negate(x)"
        + SEND.format(n="s", value="y", token="t", channel=1)
        + RECEIVE.format(n="r", token="sd", channel=2)
        + "\n  z = f32[4] add(rv, x)\n  ROOT o = (f32[4], f32[4], token[]) tuple(z, y, rt)\n}"
    )
    assert kinds(program) == ["run", "send", "receive", "run"]
    first, last = (step for step in program.steps if isinstance(step, Stage))
    assert (first.inputs, first.outputs) == (("x",), ("y",))
    assert (last.inputs, last.outputs) == (("x", "rv"), ("z",))
    assert [value and value[0] for value in program.results] == ["z", "y", None]
    assert "send" not in first.text
    assert "negate" not in last.text


def test_what_only_prints_is_one_stage() -> None:
    program = staged(
        "ENTRY main {\n  t = token[] parameter(0)\n  x = f32[4] parameter(1)\n  y = f32[4] negate(x)"
        + SEND.format(n="s", value="x", token="t", channel=1)
        + RECEIVE.format(n="r", token="sd", channel=2)
        + "\n  ROOT z = f32[4] negate(y)\n}"
    )
    assert kinds(program) == ["run", "send", "receive"]
    assert program.arguments[0] is None


def test_a_loop_with_transfers_is_a_step_of_its_own() -> None:
    program = staged(
        "body {\n  s = (f32[4], s32[], token[]) parameter(0)\n  x = f32[4] get-tuple-element(s), index=0"
        "\n  n = s32[] get-tuple-element(s), index=1\n  t = token[] get-tuple-element(s), index=2"
        + SEND.format(n="p", value="x", token="t", channel=1)
        + RECEIVE.format(n="r", token="pd", channel=2)
        + "\n  y = f32[4] add(rv, x)\n  m = s32[] negate(n)"
        "\n  ROOT o = (f32[4], s32[], token[]) tuple(y, m, rt)\n}\n"
        "condition {\n  s = (f32[4], s32[], token[]) parameter(0)\n  n = s32[] get-tuple-element(s), index=1"
        "\n  ROOT c = pred[] compare(n, n), direction=LT\n}\n"
        "ENTRY main {\n  e = token[] parameter(0)\n  k = f32[4] parameter(1)\n  l = s32[] parameter(2)"
        "\n  a = f32[4] negate(k)\n  i = (f32[4], s32[], token[]) tuple(a, l, e)"
        "\n  w = (f32[4], s32[], token[]) while(i), condition=condition, body=body"
        "\n  u = token[] get-tuple-element(w), index=2\n  v = f32[4] get-tuple-element(w), index=0"
        "\n  q = (token[], f32[4]) tuple(u, k)\n  z = f32[4] get-tuple-element(q), index=1"
        "\n  b = f32[4] multiply(v, z)\n  ROOT o = (token[], f32[4]) tuple(u, b)\n}"
    )
    assert [value and value[0] for value in program.arguments] == [None, "k", "l"]
    before, loop, after = program.steps
    assert isinstance(before, Stage) and isinstance(loop, StageLoop) and isinstance(after, Stage)
    assert (before.inputs, before.outputs) == (("k",), ("a",))
    assert loop.operands == ("a", "l")
    ((result, number),) = loop.results
    assert number == 0 and set(after.inputs) == {result, "k"}
    assert kinds(loop.condition) == ["run"]
    assert kinds(loop.body) == ["run", "send", "receive", "run"]
    assert len(list(program.stages())) == 5


def test_a_branch_with_transfers_is_a_step_of_its_own() -> None:
    program = staged(
        "one {\n  x = f32[4] parameter(0)\n  t = token[] after-all()"
        + SEND.format(n="p", value="x", token="t", channel=1)
        + "\n  ROOT y = f32[4] negate(x)\n}\nother {\n  ROOT x = f32[4] parameter(0)\n}\n"
        "ENTRY main {\n  n = s32[] parameter(0)\n  k = f32[4] parameter(1)\n  l = f32[4] abs(k)"
        "\n  ROOT c = f32[4] conditional(n, k, l), branch_computations={one, other}\n}"
    )
    before, branch = program.steps
    assert isinstance(before, Stage) and before.outputs == ("l",)
    assert isinstance(branch, Branch)
    assert (branch.index, branch.operands, branch.results) == ("n", (("k",), ("l",)), (("c", 0),))
    assert [kinds(inner) for inner in branch.branches] == [["run", "send"], []]


def test_a_tuple_of_a_later_stage_is_given_what_earlier_ones_make() -> None:
    loop = (
        "body {\n  s = (f32[4], f32[4]) parameter(0)\n  x = f32[4] get-tuple-element(s), index=0"
        "\n  p = f32[4] get-tuple-element(s), index=1\n  ROOT o = (f32[4], f32[4]) tuple(p, x)\n}\n"
        "condition {\n  s = (f32[4], f32[4]) parameter(0)\n  ROOT c = pred[] constant(false)\n}\n"
    )
    program = staged(
        loop
        + "ENTRY main {\n  t = token[] parameter(0)\n  k = f32[4] parameter(1)\n  y = f32[4] negate(k)"
        + RECEIVE.format(n="r", token="t", channel=1)
        + "\n  i = (f32[4], f32[4]) tuple(y, rv)"
        "\n  w = (f32[4], f32[4]) while(i), condition=condition, body=body"
        "\n  v = f32[4] get-tuple-element(w), index=0\n  ROOT z = f32[4] negate(v)\n}"
    )
    first, last = (step for step in program.steps if isinstance(step, Stage))
    assert (first.inputs, first.outputs) == (("k",), ("y",))
    assert set(last.inputs) == {"y", "rv"}
