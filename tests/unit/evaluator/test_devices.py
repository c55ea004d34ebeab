"""Programs that several devices run together: groups, transfers, control flow, standstills."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.hlo.attributes import RawText
from compiler.hlo.evaluator import evaluate_devices
from compiler.hlo.evaluator.context import Array
from compiler.hlo.parser import parse_module
from compiler.hlo.replica_groups import DeviceCounts, device_groups, explicit_groups

ADD = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }"


def run(header: str, body: str, *rows: list[Array]) -> list[list[Array]]:
    return evaluate_devices(parse_module(f"HloModule m, {header}\n{ADD}\n{body}"), rows)


def numbered(count: int, size: int = 2) -> list[list[Array]]:
    return [[np.full(size, 10.0**d, np.float32)] for d in range(count)]


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        ("replica_groups={{0,1}}", [101, 1010, 101, 1010]),
        ("channel_id=1, replica_groups={{0},{1}}", [11, 11, 1100, 1100]),
        (
            "channel_id=1, replica_groups={{0,3},{1,2}}, use_global_device_ids=true",
            [1001, 110, 110, 1001],
        ),
    ],
)
def test_groups_name_replicas_or_devices(attributes: str, want: list[int]) -> None:
    body = f"ENTRY e {{ a = f32[2] parameter(0) ROOT r = f32[2] all-reduce(a), {attributes}, to_apply=add }}"
    got = run("replica_count=2, num_partitions=2", body, *numbered(4))
    assert [int(row[0][0]) for row in got] == want


def test_a_channel_of_an_all_to_all_names_partitions() -> None:
    body = """ENTRY e { a = f32[2] parameter(0)
      ROOT r = f32[2] all-to-all(a), channel_id=1, replica_groups={{1,0}}, dimensions={0} }"""
    got = run("num_partitions=2, replica_count=2", body, *numbered(4))
    assert [row[0].tolist() for row in got] == [[10, 1], [10, 1], [1000, 100], [1000, 100]]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("mesh['x'=2,'y'=2] {'x'}", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2] {'y','x'}", ((0, 2, 1, 3),)),
        ("mesh['x'=8] {'x':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}", ((0, 1), (2, 3))),
        ("mesh['x'=3], device_ids=(2,0,1) {'x'}", ((2, 0, 1),)),
    ],
)
def test_groups_over_the_axes_of_a_mesh(text: str, want: tuple[tuple[int, ...], ...]) -> None:
    assert explicit_groups(RawText(text)) == want


def test_groups_of_all_devices_need_not_be_listed() -> None:
    module = parse_module(
        f"{ADD} ENTRY e {{ a = f32[2] parameter(0) "
        "ROOT r = f32[2] all-reduce(a), replica_groups={}, to_apply=add }"
    )
    root = module.entry.root_instruction
    assert device_groups(root, DeviceCounts(3, 2)) == ((0, 2, 4), (1, 3, 5))


def test_who_receives_nothing_gets_zeros() -> None:
    body = """ENTRY e { a = f32[2] parameter(0)
      p = f32[2] collective-permute(a), source_target_pairs={{0,1},{1,2}}
      b = f32[2] collective-broadcast(a), replica_groups={{2,1}}
      ROOT t = (f32[2], f32[2]) tuple(p, b) }"""
    got = run("replica_count=3", body, *numbered(3))
    assert [[int(leaf[0]) for leaf in row] for row in got] == [[0, 0], [1, 100], [10, 100]]


def test_sends_arrive_in_order_without_waiting() -> None:
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}'
    body = f"""ENTRY e {{ a = f32[2] parameter(0) k = token[] after-all()
      s = (f32[2], u32[], token[]) send(a, k), channel_id=1, {pairs}
      d = token[] send-done(s), channel_id=1
      b = f32[2] negate(a)
      t = (f32[2], u32[], token[]) send(b, d), channel_id=1, {pairs}
      r = (f32[2], u32[], token[]) recv(k), channel_id=1, {pairs}
      f = (f32[2], token[]) recv-done(r), channel_id=1
      g = token[] get-tuple-element(f), index=1
      r2 = (f32[2], u32[], token[]) recv(g), channel_id=1, {pairs}
      f2 = (f32[2], token[]) recv-done(r2), channel_id=1
      x = f32[2] get-tuple-element(f), index=0  y = f32[2] get-tuple-element(f2), index=0
      ROOT z = (f32[2], f32[2]) tuple(x, y) }}"""
    got = run("replica_count=2", body, *numbered(2))
    assert [[int(leaf[0]) for leaf in row] for row in got] == [[0, 0], [1, -1]]


def test_a_send_that_does_not_say_to_whom_is_refused() -> None:
    body = """ENTRY e { a = f32[2] parameter(0) k = token[] after-all()
      s = (f32[2], u32[], token[]) send(a, k), channel_id=1
      ROOT d = token[] send-done(s), channel_id=1 }"""
    with pytest.raises(UnsupportedError, match=r"%s\.1: send is not evaluated: want frontend_attr"):
        run("replica_count=2", body, *numbered(2))


LOOP = """
condition { s = (s32[], s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1 ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1 x = f32[2] get-tuple-element(s), index=2
  one = s32[] constant(1) j = s32[] add(i, one) y = f32[2] BODY
  ROOT t = (s32[], s32[], f32[2]) tuple(j, n, y) }
ENTRY e { a = f32[2] parameter(0) z = s32[] constant(0) one = s32[] constant(1)
  u = u32[] partition-id() p = s32[] convert(u) n = s32[] add(p, one)
  t = (s32[], s32[], f32[2]) tuple(z, n, a)
  w = (s32[], s32[], f32[2]) while(t), condition=condition, body=body
  x = f32[2] get-tuple-element(w), index=2
  ROOT r = f32[2] all-reduce(x), channel_id=1, replica_groups={{0},{1}}, to_apply=add }
"""


def test_loops_diverge_where_no_collective_is_inside() -> None:
    body = LOOP.replace("BODY", "add(x, x)").replace("{{0},{1}}", "{{0}}")
    got = run("num_partitions=3", body, *numbered(3))
    assert [row[0].tolist() for row in got] == [[842, 842]] * 3


def test_a_standstill_names_where_each_device_stands() -> None:
    inner = "all-reduce(x), channel_id=2, replica_groups={{0}}, to_apply=add"
    body = LOOP.replace("BODY", inner).replace("{{0},{1}}", "{{0}}")
    with pytest.raises(CompileError, match=r"device 0 waits in %r \(all-reduce\) for device 1"):
        run("num_partitions=2", body, *numbered(2))


def test_a_ragged_exchange_places_rows_where_the_sender_says() -> None:
    body = """ENTRY e { a = s32[4] parameter(0) o = s32[4] parameter(1) i = s32[2] parameter(2)
      n = s32[2] parameter(3) p = s32[2] parameter(4) m = s32[2] parameter(5)
      ROOT r = s32[4] ragged-all-to-all(a, o, i, n, p, m), replica_groups={{0,1}} }"""
    empty = np.full(4, -1, np.int32)

    def row(*lists: list[int]) -> list[Array]:
        rows = [np.array(values, np.int32) for values in lists]
        return [rows[0], empty, *rows[1:]]

    first = row([1, 2, 3, 4], [0, 1], [1, 3], [0, 0], [1, 2])
    second = row([5, 6, 7, 8], [2, 0], [2, 1], [1, 3], [3, 1])
    got = run("replica_count=2", body, first, second)
    assert [r[0].tolist() for r in got] == [[1, 7, 8, -1], [2, 3, 4, 5]]
