"""Batched modules against the module of one example, run for each: the evaluator runs both.

JAX writes the modules (as StableHLO) and is skipped where it is not installed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from compiler.autodiff.values import array_of
from compiler.batching.batch import Batcher
from compiler.batching.step import everywhere, force, with_batch
from compiler.batching.table import BATCHING
from compiler.frontends.models import parse_model
from compiler.hlo.builder import HloBuilder
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.verifier import verify
from compiler.rewrite.emitter import Emitter

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

Array = np.ndarray[Any, Any]
SIZE = 3


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).uniform(-2, 2, shape).astype(np.float32)


def places(*shape: int, limit: int = 5) -> Array:
    return np.random.default_rng(shape).integers(-1, limit + 2, shape).astype(np.int32)


def batched(module: HloModule, flags: Sequence[bool]) -> HloModule:
    """The module of `SIZE` examples; parameters with a flag get a batch dimension."""
    entry = module.entry
    b = HloBuilder("batched", module)
    given = [
        b.parameter(with_batch(p.shape, SIZE) if flag else p.shape)
        for p, flag in zip(entry.parameters, flags, strict=True)
    ]
    found, made = Batcher(b.computation, SIZE).run(entry, given, list(flags))
    e = Emitter(entry.root_instruction, b.computation)
    whole = force(e, found, made, everywhere(entry.root_instruction.shape), SIZE)
    parts = whole if isinstance(whole, tuple) else (whole,)
    return b.build_entry(b.tuple([array_of(part) for part in parts]))


def check(function: Callable[..., Any], *args: Array, tolerance: float = 1e-5) -> None:
    """With every choice of batched arguments."""
    for flags in itertools.product((True, False), repeat=len(args)):
        if not any(flags):
            continue
        lowered = jax.jit(function).trace(*args).lower(lowering_platforms=("tpu",)).as_text()
        module = batched(parse_model(lowered), flags)
        verify(module)
        many = [
            np.stack([a, np.flip(a), np.roll(a, 1)]) if flag else a
            for a, flag in zip(args, flags, strict=True)
        ]
        with np.errstate(all="ignore"):
            found = evaluate(module, many, "highest")
            for k in range(SIZE):
                mine = [a[k] if flag else a for a, flag in zip(many, flags, strict=True)]
                want = evaluate(parse_model(lowered), mine, "highest")
                for got, right in zip(found, want, strict=True):
                    np.testing.assert_allclose(
                        got[k], right, tolerance, tolerance, err_msg=f"{flags}"
                    )


def test_every_opcode_has_a_rule() -> None:
    assert BATCHING.keys() == OPCODES.keys()


def test_elementwise_and_movement() -> None:
    x, y = numbers(4, 5), numbers(4, 5, seed=1)
    check(
        lambda x, y: [jnp.where(x > y, jnp.sin(x), y), lax.clamp(x, y, x + 1), x.T, x[::-1, 1:4:2]],
        x,
        y,
    )
    check(
        lambda x, low: [lax.clamp(low, x, low + 1), lax.pad(x, low, ((1, 0, 1), (0, -2, 0)))],
        x,
        numbers(),
    )
    check(
        lambda x, y: [jnp.concatenate([x, y]), x.reshape(-1)[:7], jnp.broadcast_to(x, (2, 4, 5))],
        x,
        y,
    )
    check(lambda p, x, y: lax.select(p > 0, x, y), numbers(), x, y)


def test_indices() -> None:
    x, i = numbers(5, 4), places(2, 3)
    check(lambda x, i: [x[i], x[i, 1], jnp.take_along_axis(x, i[:, :1], 0)], x, i)
    check(lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 3)), x, places())
    check(lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1)), x, numbers(2, 2), places())
    check(lambda x, u, i: x.at[i].add(u, mode="drop"), x, numbers(2, 3, 4), i)
    check(lambda x, u, i: x.at[i, 1].set(u), x, numbers(3), np.array([0, 4, 2], np.int32))


def test_products() -> None:
    check(lambda x, y: x @ y, numbers(3, 4), numbers(4, 5))
    dims = (((2,), (1,)), ((0,), (2,)))
    check(lambda x, y: lax.dot_general(x, y, dims), numbers(2, 3, 4), numbers(5, 4, 2))
    image, kernel = numbers(2, 4, 6, 5), numbers(6, 2, 3, 2)
    for options in ({"feature_group_count": 2}, {"batch_group_count": 2}):
        groups = options.get("feature_group_count", 1)
        k = kernel if groups == 2 else numbers(6, 4, 3, 2)
        check(
            lambda x, k, o=options: lax.conv_general_dilated(x, k, (1, 2), "SAME", **o),
            image, k, tolerance=1e-4,
        )  # fmt: skip
    layout = ("NHWC", "HWIO", "NHWC")
    check(
        lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=layout),
        numbers(2, 5, 4, 3), numbers(2, 2, 3, 4), tolerance=1e-4,
    )  # fmt: skip
    counts = np.array([2, 1], np.int32)
    check(lambda x, y: lax.ragged_dot(x, y, counts), numbers(3, 4), numbers(2, 4, 5))


def test_reductions_and_sorts() -> None:
    x = numbers(3, 6)
    check(lambda x, s: [lax.reduce(x, s, lax.add, (1,)), x.max(0), jnp.argmax(x, 1)], x, numbers())
    check(lambda x: [jnp.cumsum(x, 1), jnp.sort(x, 0), *lax.top_k(x, 2)], x)
    check(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 2), "SAME"), x)
    check(lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), x, numbers(3, 6, seed=1))


def test_linear_algebra() -> None:
    a = numbers(4, 4)
    check(
        lambda a, b: lax.linalg.triangular_solve(a + 5 * jnp.eye(4), b, left_side=True),
        a,
        numbers(4, 2),
    )
    check(lambda a: jnp.linalg.cholesky(a @ a.T + 4 * jnp.eye(4)), a, tolerance=1e-4)
    check(lambda a: [jnp.fft.rfft(a).real, jnp.fft.fft2(a).imag], a, tolerance=1e-4)


def test_loops_and_branches() -> None:
    x, n = numbers(3), np.int32(2)
    check(lambda x, w: lax.scan(lambda c, w: (jnp.tanh(c * w), c.sum()), x, w), x, numbers(4, 3))
    check(
        lambda x, y: lax.fori_loop(0, 3, lambda i, z: z * jnp.sin(x) + i, y), x, numbers(3, seed=1)
    )
    check(lambda x, n: lax.fori_loop(0, n % 4, lambda i, z: z * 2 + x, x), x, np.asarray(n))
    check(lambda x: lax.while_loop(lambda s: s.sum() < 20, lambda s: s + abs(s) + 1, x), x)
    branches = [lambda x, y: x * y, lambda x, y: jnp.sin(x), lambda x, y: y]
    y = numbers(3, seed=1)
    for number in (0, 1, 2, 7):
        check(lambda x, y, i: lax.switch(i, branches, x, y), x, y, np.asarray(np.int32(number)))
    check(lambda x: lax.cond(x[0] > 0, lambda x: (x, 1.0), lambda x: (x * 3, x[1]), x), x)


def test_what_has_no_form_for_many_goes_one_by_one() -> None:
    state = np.array([3, 4, 5, 6], np.uint32)
    check(
        lambda s: lax.rng_bit_generator(
            s, (4,), jnp.uint32, algorithm=lax.RandomAlgorithm.RNG_THREE_FRY
        ),
        state,
    )
