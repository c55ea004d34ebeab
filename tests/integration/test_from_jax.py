"""`tpuc.from_jax`: JAX functions on the emulated chip while JAX itself stays on the CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tpuc


def layer(params: dict[str, object], x: object, *, scale: float) -> dict[str, object]:
    hidden = jnp.tanh(jnp.dot(x, params["w"], precision="highest")) * scale
    return {"out": hidden, "total": jnp.sum(hidden)}


def test_values_text_and_report_in_one_call() -> None:
    rng = np.random.default_rng(0)
    params = {
        "w": rng.standard_normal((8, 4)).astype(np.float32),
        "unused": np.zeros(3, np.float32),
    }
    x = rng.standard_normal((3, 8)).astype(np.float32)
    made = tpuc.from_jax(layer, params, x, scale=2.0)
    assert made.report.assumed_trips is not None  # an estimate: nothing has run
    got = made(params, x, scale=3.0)
    want = layer(params, x, scale=3.0)
    np.testing.assert_allclose(got["out"], want["out"], rtol=1e-5)
    np.testing.assert_allclose(got["total"], want["total"], rtol=1e-5)
    assert made.report.assumed_trips is None
    assert made.report.cycles > 0
    assert made.text("stablehlo").startswith("module @jit_layer")
    assert made.text("hlo").startswith("HloModule jit_layer")
    assert 'kernel "fusion' in made.text("tpu")


def test_shapes_and_keys_are_enough_to_compile() -> None:
    made = tpuc.from_jax(
        lambda key, x: x + jax.random.normal(key, x.shape),
        jax.random.key(0),
        jax.ShapeDtypeStruct((5,), np.float32),
    )
    got = made(jax.random.key(3), np.ones(5, np.float32))
    np.testing.assert_allclose(got, 1 + jax.random.normal(jax.random.key(3), (5,)), rtol=1e-5)


def test_other_arguments_are_refused() -> None:
    made = tpuc.from_jax(lambda x: x + 1, np.ones(3, np.float32))
    with pytest.raises(TypeError, match="compiled for arguments"):
        made([np.ones(3, np.float32)])
    with pytest.raises(tpuc.CompileError, match=r"found float32\[4\], want float32\[3\]"):
        made(np.ones(4, np.float32))


def test_static_arguments_of_a_jitted_function_stay_static() -> None:
    def scaled(x: jax.Array, unused: jax.Array, *, times: int) -> dict[str, jax.Array]:
        return {"all": jnp.concatenate([x] * times)}

    x = np.arange(3, dtype=np.float32)
    made = tpuc.from_jax(jax.jit(scaled, static_argnames="times"), x, x, times=2)
    assert made(x + 1, x)["all"].tolist() == [1, 2, 3, 1, 2, 3]
    assert made.text("stablehlo").startswith("module @jit_scaled")


def test_reports_and_errors_name_lines_of_the_function() -> None:
    def line(x: jax.Array) -> jax.Array:
        return jax.lax.reduce_precision(jnp.sin(x), 5, 5)

    made = tpuc.from_jax(line, np.ones(5, np.float32))
    place = f"{__file__}:{line.__code__.co_firstlineno + 1}"
    assert {origin.place for origin in made.report.origin_costs} == {place}

    def refused(x: jax.Array) -> jax.Array:
        return jax.ffi.ffi_call("mine", x)(x)

    number = refused.__code__.co_firstlineno + 1
    with pytest.raises(tpuc.CompileError, match=rf"\n  from .*test_from_jax.py:{number} \(jit"):
        tpuc.from_jax(refused, np.ones(5, np.float32))
