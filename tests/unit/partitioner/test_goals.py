"""An operation is done in the cut in which its result is needed in the end."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate, evaluate_devices
from compiler.hlo.parser import parse_module
from compiler.partitioner.partitioner import partition_module
from compiler.partitioner.traffic import collectives_of
from compiler.passes.context import PassContext
from tpu_sim.isa import chips

TEXT = """HloModule m, num_partitions=4

ENTRY main {{
  x = f32[16,5] parameter(0), sharding={{devices=[4,1]<=[4]}}
  y = f32[12,5] parameter(1), sharding={{devices=[4,1]<=[4]}}
  z = f32[28,5] concatenate(x, y), dimensions={{0}}, sharding={{devices=[4,1]<=[4]}}
  ROOT r = f32[28,5] {root}
}}
"""


@pytest.mark.parametrize(
    ("root", "kinds"),
    [
        ("copy(z), sharding={replicated}", {"all-gather"}),
        ("negate(z), sharding={devices=[4,1]<=[4]}", {"collective-permute"}),
    ],
)
def test_rows_that_are_wanted_whole_are_not_moved_first(root: str, kinds: set[str]) -> None:
    module, whole = (parse_module(TEXT.format(root=root)) for _ in range(2))
    partition_module(module, PassContext(chips.load_chip("v5e")))
    assert {traffic.kind for traffic in collectives_of(module)} == kinds
    x = np.arange(80, dtype=np.float32).reshape(16, 5)
    y = -np.arange(60, dtype=np.float32).reshape(12, 5)
    rows = [[x[4 * k : 4 * k + 4], y[3 * k : 3 * k + 3]] for k in range(4)]
    found = [np.asarray(row[0]) for row in evaluate_devices(module, rows)]
    want = np.asarray(evaluate(whole, [x, y])[0])
    got = found[0] if "replicated" in root else np.concatenate(found)
    np.testing.assert_array_equal(got, want)


SCORES = """HloModule m, num_partitions=4

ENTRY main {
  k = bf16[8,512,2,64] parameter(0), sharding={devices=[1,1,2,1,2]<=[4] last_tile_dim_replicate}
  q = bf16[8,512,2,4,64] parameter(1), sharding={devices=[1,4,1,1,1]<=[4]}
  s = f32[8,2,512,512,4] dot(k, q), lhs_batch_dims={0,2}, lhs_contracting_dims={3},
    rhs_batch_dims={0,2}, rhs_contracting_dims={4}, sharding={devices=[1,2,1,1,2]<=[4]}
  t = f32[8,2,4,512,512] transpose(s), dimensions={0,1,4,3,2}, sharding={devices=[1,2,2,1,1]<=[4]}
  ROOT r = f32[8,2,4,512,512] exponential(t), sharding={devices=[1,2,2,1,1]<=[4]}
}
"""


def test_lanes_that_only_a_transpose_reads_are_no_reason_to_move_the_result() -> None:
    module = parse_module(SCORES)
    partition_module(module, PassContext(chips.load_chip("v5e")))
    largest = 2 * 512 * 8 * 64 * 4
    assert all(traffic.operand_bytes <= largest for traffic in collectives_of(module))
