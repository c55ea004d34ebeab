"""Programs with host transfers are cut where a received value is used, and nowhere else."""

from __future__ import annotations

import pytest

from compiler.diagnostics import UnsupportedError
from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.host_transfers import stage_program
from compiler.passes.stages import HostTransfer, Stage, StagedProgram
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


def test_transfers_in_loops_are_refused() -> None:
    body = (
        "body {\n  x = f32[4] parameter(0)\n  t = token[] after-all()"
        + SEND.format(n="s", value="x", token="t", channel=1)
        + "\n  ROOT y = f32[4] negate(x)\n}\ncondition {\n  x = f32[4] parameter(0)\n"
        "  ROOT p = pred[] constant(false)\n}\nENTRY main {\n  x = f32[4] parameter(0)\n"
        "  ROOT w = f32[4] while(x), condition=condition, body=body\n}"
    )
    with pytest.raises(UnsupportedError, match="%s: send: a callback to the host inside of a loop"):
        staged(body)
