"""JAX on one emulated chip."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.support.jax_programs.harness import raises, run_checks

RNG = np.random.default_rng(0)


def normal(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def check_device() -> None:
    (device,) = jax.devices()
    assert device.platform == "tpu"
    assert device.device_kind == "TPU v5 lite"
    assert tuple(device.coords) == (0, 0, 0)
    assert device.core_on_chip == 0
    assert jax.devices("tpuc") == [device]


def check_elementwise_and_matmul() -> None:
    x, w = normal(37, 129), normal(129, 65)
    got = jax.jit(lambda x, w: jnp.tanh(x @ w) + 1)(x, w)
    want = (
        np.tanh(
            x.astype(jnp.bfloat16).astype(np.float32) @ w.astype(jnp.bfloat16).astype(np.float32)
        )
        + 1
    )
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def check_highest_precision() -> None:
    x, w = normal(37, 129), normal(129, 65)
    with jax.default_matmul_precision("highest"):
        got = jax.jit(jnp.matmul)(x, w)
    np.testing.assert_allclose(got, x @ w, rtol=1e-5, atol=1e-5)


def check_grad() -> None:
    x = normal(5, 7)
    got = jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2)))(x)
    np.testing.assert_allclose(got, np.sin(2 * x), rtol=1e-5, atol=1e-6)


def check_deleted_buffers_are_refused() -> None:
    x = jax.device_put(normal(8))
    x.delete()
    assert x.is_deleted()
    raises(RuntimeError, "deleted", lambda: x + 1)


def check_memory_is_given_back() -> None:
    device = jax.devices()[0]
    x = jax.device_put(np.zeros((1 << 20,), np.float32))
    jax.block_until_ready(x)
    used = device.memory_stats()["bytes_in_use"]
    del x
    jax.device_put(np.zeros(1, np.float32))
    assert device.memory_stats()["bytes_in_use"] <= used - (4 << 20)
    assert device.memory_stats()["bytes_limit"] == 16 << 30


def check_arrays_die_while_exceptions_are_raised() -> None:
    def thrower(z: jax.Array) -> None:
        unused = z + 1
        raise ValueError(unused.shape)

    for k in range(50):
        raises(ValueError, "3", lambda k=k: thrower(jnp.full((3,), float(k))))


if __name__ == "__main__":
    run_checks(dict(globals()))
