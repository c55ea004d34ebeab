"""What several products of one kind read is moved for all of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate_devices
from compiler.hlo.parser import parse_module
from compiler.partitioner.partitioner import partition_module
from compiler.partitioner.traffic import collectives_of
from compiler.passes.context import PassContext
from tpu_sim.isa import chips

K, N = 64, 64


def text(count: int) -> str:
    """`count` products of x, cut along what is contracted as the weights are; wanted in columns."""
    cut = "sharding={devices=[1,4]<=[4]}"
    lines = [f"  x = f32[64,{K}] parameter(0), {cut}"]
    for k in range(count):
        lines += [
            f"  w{k} = f32[{K},{N}] parameter({k + 1}), sharding={{devices=[4,1]<=[4]}}",
            f"  y{k} = f32[64,{N}] dot(x, w{k}), lhs_contracting_dims={{1}}, "
            f"rhs_contracting_dims={{0}}, {cut}",
        ]
    shapes = ", ".join([f"f32[64,{N}]"] * count)
    parts = ", ".join("{devices=[1,4]<=[4]}" for _ in range(count))
    operands = ", ".join(f"y{k}" for k in range(count))
    lines.append(f"  ROOT r = ({shapes}) tuple({operands}), sharding={{{parts}}}")
    return "HloModule m, num_partitions=4\n\nENTRY main {\n" + "\n".join(lines) + "\n}\n"


@pytest.mark.parametrize(
    ("count", "kinds"),
    [(1, {"reduce-scatter": 1}), (3, {"all-gather": 1, "all-to-all": 3})],
)
def test_one_gather_serves_products_with_several_weights(count: int, kinds: dict[str, int]) -> None:
    module = parse_module(text(count))
    partition_module(module, PassContext(chips.load_chip("v5e")))
    assert Counter(traffic.kind for traffic in collectives_of(module)) == kinds
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 4, (64, K)).astype(np.float32)
    weights = [rng.integers(-4, 4, (K, N)).astype(np.float32) for _ in range(count)]
    rows = [
        [x[:, 16 * d : 16 * d + 16], *(w[16 * d : 16 * d + 16] for w in weights)] for d in range(4)
    ]
    found = evaluate_devices(module, rows)
    for k, weight in enumerate(weights):
        got = np.concatenate([np.asarray(row[k]) for row in found], axis=1)
        np.testing.assert_array_equal(got, x @ weight)
