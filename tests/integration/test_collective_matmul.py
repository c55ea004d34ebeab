"""Products in pieces round a ring, on a slice: the values of whole ones, quicker where it is said to pay."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.options import CompileOptions
from compiler.passes.collectives import collective_matmul
from runtime.machines import MachineOptions
from runtime.slice_executable import SliceExecutable

MODEL = """HloModule m, replica_count={count}
sum {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] add(a, b)
}}
ENTRY main {{
  x = {t}[{rows},{depth}] parameter(0)
  w = {t}[{depth},{columns}] parameter(1)
  v = {t}[{columns},{depth}] parameter(2)
  g = {t}[{all},{depth}] all-gather(x), replica_groups={{}}, dimensions={{0}}
  h = {t}[{all},{columns}] dot(g, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  a = {t}[{all},{columns}] tanh(h)
  y = {t}[{all},{depth}] dot(a, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT s = {t}[{rows},{depth}] reduce-scatter(y), replica_groups={{}}, dimensions={{0}}, to_apply=sum
}}
"""


def compiled(text: str, target: str, skip: tuple[str, ...] = ()) -> SliceExecutable:
    options = CompileOptions(skip=skip, precision="highest")
    exe = tpuc.compile(text, target=target, machine=MachineOptions(), options=options)
    assert isinstance(exe, SliceExecutable)
    return exe


@pytest.mark.parametrize(
    ("target", "count", "rows"),
    [("v5e:2x2", 4, 64), ("v5e:3x1", 3, 32), ("v5p:2x2x2", 8, 64), ("v5e:2x1", 2, 16)],
)
def test_values_are_those_of_the_whole(
    target: str, count: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective_matmul, "_WORTH", float("inf"))
    sizes = {"rows": rows, "all": rows * count, "depth": 136, "columns": 120, "count": count}
    text = MODEL.format(t="f32", **sizes)
    pieces, plain = compiled(text, target), compiled(text, target, skip=("collective-matmul",))
    assert "all-gather" not in pieces.text("hlo")
    rng = np.random.default_rng(0)
    arguments = [
        rng.normal(size=(count, *dims)).astype(np.float32) / 8
        for dims in ((rows, 136), (136, 120), (120, 136))
    ]
    (got,), (want,) = pieces(*arguments), plain(*arguments)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert np.abs(want).max() > 0.1


def test_products_hide_what_they_read_and_make() -> None:
    sizes = {"rows": 1024, "all": 4096, "depth": 4096, "columns": 2048, "count": 4}
    text = MODEL.format(t="bf16", **sizes)
    pieces = compiled(text, "v5e:2x2").estimate().cycles
    plain = compiled(text, "v5e:2x2", skip=("collective-matmul",)).estimate().cycles
    assert pieces < 0.85 * plain


def test_permutes_the_other_way_round_do_not_wait() -> None:
    text = """HloModule m, replica_count=4
ENTRY main {
  x = f32[1024,1024] parameter(0)
  a = f32[1024,1024] collective-permute(x), source_target_pairs={{0,1},{1,3},{3,2},{2,0}}
  b = f32[1024,1024] collective-permute(x), source_target_pairs={SECOND}
  ROOT r = (f32[1024,1024], f32[1024,1024]) tuple(a, b)
}"""
    back, again = (
        compiled(text.replace("SECOND", pairs), "v5e:2x2").estimate().cycles
        for pairs in ("{1,0},{3,1},{2,3},{0,2}", "{0,1},{1,3},{3,2}")
    )
    assert back < 0.6 * again
