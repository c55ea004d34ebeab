"""The debugger: values and cycles of an uninterrupted run, and the same state on the way back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import tpuc
from runtime.executable import Executable
from tpu_sim.machine.schema import OFFSETS, SCHEMA
from tpu_sim.machine.snapshots import core_arrays
from tpuc.arrays import randoms
from tpuc.debugger.breakpoints import BreakpointCondition, DebuggerError
from tpuc.debugger.commands import COMMANDS, CommandLoop, completions
from tpuc.debugger.debugger import Debugger
from tpuc.debugger.prompt import interact
from tpuc.debugger.values import NoValueError

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MACHINES = ("llvm", "numpy")
MODEL = """HloModule chain

body {
  s = (s32[], f32[64,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,256] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[64,256] sine(x)
  sorted = f32[64,256] sort(y), dimensions={1}, to_apply=less
  ROOT t = (s32[], f32[64,256]) tuple(next, sorted)
}

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

condition {
  s = (s32[], f32[64,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  two = s32[] constant(2)
  ROOT go = pred[] compare(i, two), direction=LT
}

ENTRY main {
  x = f32[64,256] parameter(0)
  w = f32[256,256] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[64,256]) tuple(zero, x)
  loop = (s32[], f32[64,256]) while(start), condition=condition, body=body
  found = f32[64,256] get-tuple-element(loop), index=1
  ROOT d = f32[64,256] dot(found, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture(scope="module")
def exe() -> Executable:
    return tpuc.compile(MODEL)


@pytest.fixture(scope="module")
def arrays(exe: Executable) -> list[npt.NDArray[np.generic]]:
    return list(randoms(exe.argument_shapes, 0))


def held(debugger: Debugger) -> dict[str, bytes]:
    """All there is of a core, with its registers."""
    state, target = debugger.state, debugger.target
    arrays = core_arrays(target.program, state, target.hbms[0])
    found = {name: array.tobytes() for name, array in arrays.items()}
    words = state.words.copy()
    for name in ("until", "until_call", "mrf_ready"):
        at, count = _field(name)
        words[at : at + count] = 0
    found["words"] = words.tobytes()
    found["vregs"] = b"".join(state.vregs[n].tobytes() for n in sorted(state.vregs))
    del found["results"]  # what was popped may be anything
    return found


def _field(name: str) -> tuple[int, int]:
    return OFFSETS[name], next(field.count for field in SCHEMA if field.name == name)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_run_that_stops_often_gives_what_one_without_stops_gives(
    exe: Executable, arrays: list[npt.NDArray[np.generic]], machine: str
) -> None:
    (want,) = exe(*arrays)
    assert exe.report is not None
    debugger = Debugger(exe, arrays, machine)
    debugger.step("bundle", 40)
    debugger.step("block", 3)
    debugger.step("grid", 2)
    debugger.reverse_step("block", 2)
    debugger.step("kernel", 2)
    debugger.reverse_step("bundle", 3)
    stop = debugger.cont()
    assert stop.reason == "end of the program" and debugger.is_done
    assert stop.where.cycle == exe.report.cycles
    np.testing.assert_array_equal(debugger.outputs()[0], want)


@pytest.mark.parametrize("machine", MACHINES)
def test_going_back_gives_the_same_state(
    exe: Executable, arrays: list[npt.NDArray[np.generic]], machine: str
) -> None:
    debugger = Debugger(exe, arrays, machine)
    debugger.step("kernel", 2)
    seen = []
    for _ in range(6):
        debugger.step("bundle", 3)
        seen.append((debugger.where(), held(debugger)))
    for where, state in reversed(seen[:-1]):
        debugger.reverse_step("bundle", 3)
        assert debugger.where() == where
        assert held(debugger) == state
    debugger.step("kernel")
    debugger.reverse_step("kernel", 2)
    debugger.step("kernel")
    debugger.step("bundle", 3)
    assert (debugger.where(), held(debugger)) == seen[0]


def test_both_machines_stop_at_the_same_places(
    exe: Executable, arrays: list[npt.NDArray[np.generic]]
) -> None:
    found = []
    for machine in MACHINES:
        debugger = Debugger(exe, arrays, machine)
        last = debugger.target.map.sites[-1]
        debugger.break_at(f"after {last}")
        debugger.break_at(f"{last}:30")
        debugger.break_at("cycle 1000")
        stops = [debugger.cont()]
        while not debugger.is_done:
            stops.append(debugger.cont())
        back = [debugger.reverse_cont().where for _ in stops[1:]]
        assert back == [stop.where for stop in reversed(stops[:-1])]
        found.append([(stop.where, stop.breakpoint) for stop in stops])
    assert found[0] == found[1] and len(found[0]) > 2


def test_values_are_read_where_they_lie_while_they_are_there(
    exe: Executable, arrays: list[npt.NDArray[np.generic]]
) -> None:
    debugger = Debugger(exe, arrays)
    sites = debugger.target.map.sites
    np.testing.assert_array_equal(debugger.value("w"), arrays[1])
    with pytest.raises(NoValueError, match="not computed yet"):
        debugger.value(sites[-1])
    debugger.break_at(f"after {sites[-1]}")
    debugger.cont()
    np.testing.assert_array_equal(debugger.value(sites[-1]), exe(*arrays)[0])


@pytest.mark.parametrize("machine", MACHINES)
def test_who_made_an_infinity_is_found_and_who_has_one_is_not(machine: str) -> None:
    """`y` has an infinity too, but it was given one."""
    exe = tpuc.compile(
        """HloModule m
        ENTRY e {
          x = f32[8,128] parameter(0)
          w = f32[128,128] parameter(1)
          s = f32[8,128] sine(x)
          r = f32[8,128] divide(x, s)
          d = f32[8,128] dot(r, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
          ROOT y = f32[8,128] exponential(d)
        }"""
    )
    x, w = np.ones((8, 128), np.float32), np.eye(128, dtype=np.float32)
    w[5, 5] = 200.0
    debugger = Debugger(exe, [x, w], machine)
    debugger.break_at("inf")
    stop = debugger.cont()
    assert "first infinity made by %" in stop.reason and "exponential" in stop.reason
    assert debugger.cont().reason == "end of the program"
    assert np.isinf(debugger.outputs()[0]).sum() == 8


def test_conditions() -> None:
    assert BreakpointCondition.parse("step == 3 and s2 > 0").holds(
        {"step": 3, "s2": 1}, lambda f, n: 0
    )
    assert not BreakpointCondition.parse("not 1 < cycle <= 4").holds({"cycle": 4}, lambda f, n: 0)
    assert BreakpointCondition.parse('max("a") >= 2 * 3').holds({}, lambda f, n: 6.0)
    for text in ("step =", "__import__('os')", "step in [1]", "x.y", "foo > 1", "step if 1 else 2"):
        with pytest.raises(DebuggerError):
            BreakpointCondition.parse(text).holds({"step": 1}, lambda f, n: 0)


def test_help_fits_a_terminal_and_has_no_line_without_an_end(
    exe: Executable, arrays: list[npt.NDArray[np.generic]]
) -> None:
    commands = CommandLoop(Debugger(exe, arrays))
    lines = commands.execute("help").splitlines()
    assert len(lines) == len(COMMANDS) and not any(
        line.rstrip().endswith((":", ",")) for line in lines
    )
    for command in COMMANDS:
        more = commands.execute(f"help {command.name}").splitlines()
        assert more[0].startswith(command.usage) and command.about in more[1]
        lines += more
    assert max(map(len, lines)) <= 80
    assert "  break nan " in commands.execute("help b")


def test_completion(exe: Executable, arrays: list[npt.NDArray[np.generic]]) -> None:
    debugger = Debugger(exe, arrays)
    assert "break" in list(completions(debugger, "br"))
    assert list(completions(debugger, "step gr")) == ["grid"]
    assert "registers" in list(completions(debugger, "info "))
    assert debugger.target.map.sites[0] in list(completions(debugger, "break "))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("print {site}[0,", "want NAME, or a part of it"),
        ("print {site}[0]+x[1]", "want one pair of brackets"),
        ("evaluate {site}[0][1]", "want one pair of brackets"),
        ("print [3]", "want NAME"),
        ("print s9999", "no register s9999"),
        ("print v999", "there are v0 to v63"),
        ("print m99", "no register m99"),
        ("tbreak cycle -1", "counted from 0"),
        ("break {site} step -1", "counted from 0"),
        ("watch", "want an HLO instruction or a range of memory"),
        ("enable 3", "no breakpoint 3"),
        ("disable 3", "no breakpoint 3"),
    ],
)
def test_what_there_is_not_is_refused_by_name(
    exe: Executable, arrays: list[npt.NDArray[np.generic]], command: str, message: str
) -> None:
    """Open brackets were an internal error, registers that the chip has not were said to be empty.

    The run never came to a cycle below 0.
    """
    debugger = Debugger(exe, arrays)
    debugger.cont()
    text = command.format(site=debugger.target.map.sites[-1])
    with pytest.raises(DebuggerError) as caught:
        CommandLoop(debugger).execute(text)
    assert message in str(caught.value)


def test_the_prompt_repeats_steps_and_goes_on_behind_errors(
    exe: Executable,
    arrays: list[npt.NDArray[np.generic]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    debugger = Debugger(exe, arrays)
    start = debugger.where()
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("step\r\rprint nope\rreverse-st\rquit\r")
        interact(CommandLoop(debugger))
    debugger.reverse_step()
    assert debugger.where() == start
    assert "no HLO instruction 'nope'" in capsys.readouterr().err
    assert "+print nope" in (tmp_path / "tpuc" / "debug_history").read_text()


def test_a_fault_leaves_the_run_before_the_bundle_that_faults() -> None:
    exe = tpuc.compile(str(EXAMPLES / "dot_bias_relu.hlo"))
    debugger = Debugger(exe, list(randoms(exe.argument_shapes, 0)))
    debugger.break_at("fusion step 1")
    debugger.cont()
    kernel = debugger.target.map.bodies[1].kernel
    before = kernel.windows[1]
    kernel.windows[1] = type(before)(before.name, before.base_row, 8)
    try:
        numpy = Debugger(exe, list(randoms(exe.argument_shapes, 0)), "numpy")
        stop = numpy.cont()
    finally:
        kernel.windows[1] = before
    assert stop.reason.startswith("fault: ") and "window in.param_1" in stop.reason
    assert stop.where.site == "fusion" and stop.where.bundle is not None


SHARED = """HloModule m, num_partitions=8
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main_spmd {
  x = f32[2048,512] parameter(0)
  ROOT r = f32[256,512] reduce-scatter(x), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0},
    to_apply=add, channel_id=1, use_global_device_ids=true
}
"""


def test_kernels_that_cores_share_are_refused_with_the_way_out() -> None:
    executable = tpuc.compile(SHARED, target="v5p:8x1x1")
    arguments = [np.zeros(port.shape.dims, np.float32) for port in executable.inputs]
    with pytest.raises(
        tpuc.CompileError, match=r"is shared by the cores .* --set cores_per_device=1"
    ):
        Debugger(executable, arguments)
