"""What is moved is the narrower of two types; what is computed counts in whole tiles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate_devices
from compiler.hlo.parser import parse_module
from compiler.partitioner.partitioner import partition_module
from compiler.partitioner.sizes import padding, seen_padding
from compiler.partitioner.traffic import collectives_of
from compiler.passes.context import PassContext
from tpu_sim.isa import chips

WIDENED = """HloModule m, num_partitions=4

ENTRY main {
  x = bf16[16,8] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[16,8] convert(x), sharding={devices=[4,1]<=[4]}
  ROOT r = f32[16,8] copy(y), sharding={replicated}
}
"""


def test_a_widened_array_is_gathered_before_it_is_widened() -> None:
    module = parse_module(WIDENED)
    partition_module(module, PassContext(chips.load_chip("v5e")))
    (gather,) = collectives_of(module)
    assert (gather.kind, gather.result_bytes) == ("all-gather", 16 * 8 * 2)
    x = np.arange(128, dtype=np.float32).reshape(16, 8)
    rows = [[x[4 * k : 4 * k + 4].astype(ml_dtypes.bfloat16)] for k in range(4)]
    for (found,) in evaluate_devices(module, rows):
        assert np.asarray(found).dtype == np.float32
        np.testing.assert_array_equal(np.asarray(found), x)


def test_a_narrowed_array_is_gathered_after_it_was_narrowed() -> None:
    text = WIDENED.replace("bf16", "f64").replace("f32", "bf16").replace("f64", "f32")
    module = parse_module(text)
    partition_module(module, PassContext(chips.load_chip("v5e")))
    (gather,) = collectives_of(module)
    assert gather.result_bytes == 16 * 8 * 2


@pytest.mark.parametrize(
    ("dims", "width", "bytes_of_padding"),
    [
        ((4096, 128), 4, 0),
        ((4096, 16), 4, 4096 * 112 * 4),
        ((3, 100, 128), 4, 3 * 4 * 128 * 4),
        ((3, 128), 4, 128 * 4),
        ((40, 128), 1, 24 * 128),
    ],
)
def test_padding_is_that_of_default_tiles(
    dims: tuple[int, ...], width: int, bytes_of_padding: int
) -> None:
    assert padding(dims, width) == bytes_of_padding


def test_little_padding_is_not_seen() -> None:
    assert seen_padding((64, 16), 4) == 0
    assert seen_padding((4096, 16), 4) == 4096 * 112 * 4
