"""JAX on one emulated chip."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from runtime.pjrt.quick import QuickProgram
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


def check_small_arrays_are_read_by_native_code() -> None:
    """Of each width and rank, with rows and lanes that are not full."""
    called: list[str] = []
    for dtype in (np.float32, np.int8, np.uint16, jnp.bfloat16, np.bool_, np.int32):
        for dims in ((7,), (300,), (3, 5), (2, 3, 130), (2, 3, 4, 1)):
            host = (normal(*dims) > 0).astype(dtype)
            there = jax.device_put(host)
            sys.setprofile(lambda frame, *_: called.append(frame.f_code.co_name))
            found = np.asarray(there)
            sys.setprofile(None)
            np.testing.assert_array_equal(found, host, strict=True)
            assert "to_host" not in called, (dtype, dims)
    assert float(jax.device_put(np.float32(2.5))) == 2.5
    wide = jax.device_put(normal(8, 128) + 1j)
    np.testing.assert_array_equal(np.asarray(wide * 2), 2 * np.asarray(wide))


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


def check_types_come_back_as_they_went() -> None:
    names = "bool int8 uint8 int16 uint16 int32 uint32 float16 bfloat16 float32 complex64"
    names += " int4 uint4 int2 uint2"
    floats = (
        "float8_e4m3fn float8_e5m2 float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2fnuz float4_e2m1fn"
    )
    for name in [*names.split(), *floats.split()]:
        x = np.array([[0, 1], [1, 0], [1, 1]]).astype(jnp.dtype(name))
        y = jax.device_put(x)
        assert y.dtype == x.dtype, name
        np.testing.assert_array_equal(np.asarray(y).astype(np.float32), x.real.astype(np.float32))
    z = jax.jit(lambda a, b: (a[::-1], b * 2))(x, np.array([1 + 2j], np.complex64))
    np.testing.assert_array_equal(np.asarray(z[0]), x[::-1])
    np.testing.assert_array_equal(z[1], [2 + 4j])


def check_arrays_of_any_strides() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (x.T, x[::-1, ::2], np.asfortranarray(x), x[:0], np.float32(3)):
        np.testing.assert_array_equal(np.asarray(jax.device_put(view)), view)


def check_small_programs_called_often() -> None:
    """Their results lie in buffers that are used again: none that somebody holds is written over."""
    add = jax.jit(lambda x, y: (x + y, x * y))
    one, held = jnp.ones(8), [jnp.zeros(8)]
    ordinary, went = QuickProgram.run, []
    with patch.object(QuickProgram, "run", lambda *a: went.append(ordinary(*a)) or went[-1]):
        while len(held) <= 100 or (went.count(True) <= 50 and len(held) < 2000):  # a slow host
            held.append(add(held[-1], one)[0])
    assert went.count(True) > 50, "native code runs them once it is known that they are short"
    for number, array in enumerate(held):
        np.testing.assert_array_equal(array, np.full(8, float(number)))
    step = jax.jit(lambda x: x - 1, donate_argnums=0)  # takes one of them away
    taken = step(held[50])
    assert held[50].is_deleted()
    raises(Exception, "deleted", lambda: add(held[50], one))
    held[60].delete()
    total = jax.jit(lambda xs: sum(x.sum() for x in xs))(held[:50])  # and one holds on to them
    del held[:50]
    again = [add(taken, one)[0] for _ in range(100)]
    np.testing.assert_array_equal(again[-1], np.full(8, 50.0))
    np.testing.assert_array_equal(held[1], np.full(8, 51.0))
    assert float(total) == 8 * sum(range(50))


def check_small_programs_of_several_threads() -> None:
    add = jax.jit(lambda x, y: x + y)
    one = jnp.ones(8)
    for _ in range(5):
        add(one, one)

    def count(_: int) -> float:
        x = one
        for _ in range(200):
            x = add(x, one)
        return float(x[0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, range(8))) == [201.0] * 8


def check_wide_integers() -> None:
    with jax.enable_x64(True):
        x = jax.device_put(np.array([1 << 40, -3], np.int64))
        assert x.dtype == np.int64
        np.testing.assert_array_equal(np.asarray(x + 1), [(1 << 40) + 1, -2])


def check_f64_is_refused_by_name() -> None:
    with jax.enable_x64(True):
        raises(jax.errors.JaxRuntimeError, "TPUC_F64=narrow", lambda: jnp.asarray(np.ones(3)))
        raises(jax.errors.JaxRuntimeError, "f64", lambda: jnp.arange(3.0))


def check_loops_scans_vmap_and_random() -> None:
    def body(c: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return c + x, c * x

    carry, ys = jax.jit(lambda x: jax.lax.scan(body, 0.0, x))(jnp.arange(5.0))
    assert float(carry) == 10
    np.testing.assert_array_equal(ys, [0, 0, 2, 9, 24])
    count = jax.jit(lambda n: jax.lax.while_loop(lambda s: s < n, lambda s: 2 * s, 1))(100)
    assert int(count) == 128
    np.testing.assert_array_equal(
        jax.vmap(lambda a, b: a + b, (0, None))(jnp.arange(3), 4), [4, 5, 6]
    )
    with jax.default_device(jax.devices("cpu")[0]):
        want = np.asarray(jax.random.bits(jax.random.key(7), (5,)))
    np.testing.assert_array_equal(jax.random.bits(jax.random.key(7), (5,)), want)


def check_donation() -> None:
    step = jax.jit(lambda state, x: (state + x, x.sum()), donate_argnums=0)
    state = first = jnp.zeros(8)
    for _ in range(3):
        state, _ = step(state, jnp.ones(8))
    assert first.is_deleted()
    np.testing.assert_array_equal(state, np.full(8, 3.0))
    raises(RuntimeError, "deleted", lambda: first + 1)


def check_tokens_go_in_and_come_out() -> None:
    """Programs without callbacks, whose code on the chip has no tokens."""
    token = jax.jit(jax.lax.create_token)()
    assert type(token).__name__ == "Token"
    first = jax.jit(lambda token, x, y: (x + 1, token, x * y), donate_argnums=2)
    x, y = jnp.arange(4.0), jnp.full(4, 3.0)
    for _ in range(3):  # quick calls are not for these
        more, token, product = first(token, x, y + 0)
        np.testing.assert_array_equal(more, [1, 2, 3, 4])
        np.testing.assert_array_equal(product, [0, 3, 6, 9])
        assert type(token).__name__ == "Token"
    assert first.lower(token, x, y).compile().as_text()


def check_memory_of_the_host() -> None:
    (device,) = jax.devices()
    assert {memory.kind for memory in device.addressable_memories()} == {
        "device", "pinned_host", "unpinned_host",
    }  # fmt: skip
    own, host = (
        jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
        for kind in ("device", "pinned_host")
    )
    x = normal(300, 130)
    before = device.memory_stats()["bytes_in_use"]
    away = jax.device_put(x, host)
    assert device.memory_stats()["bytes_in_use"] == before
    assert away.sharding.memory_kind == "pinned_host"
    np.testing.assert_array_equal(away, x)
    np.testing.assert_array_equal(jax.device_put(away, own), x)
    step = jax.jit(lambda a: (jax.device_put(a, own) * 2, a), out_shardings=(host, own))
    for _ in range(3):
        doubled, same = step(away)
    assert (doubled.sharding.memory_kind, same.sharding.memory_kind) == ("pinned_host", "device")
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(same, x)
    seen: list[int] = []

    def told(a: jax.Array) -> jax.Array:
        jax.debug.callback(lambda _: seen.append(1), a)
        return a + 1

    spoken = jax.jit(told, out_shardings=host)(x)
    jax.effects_barrier()
    assert spoken.sharding.memory_kind == "pinned_host" and seen == [1]
    kept = jax.jit(lambda a: a + 1, donate_argnums=0, in_shardings=host, out_shardings=host)
    np.testing.assert_array_equal(kept(away), x + 1)
    raises(ValueError, "hbm", lambda: jax.sharding.SingleDeviceSharding(device, memory_kind="hbm"))


def check_ahead_of_time() -> None:
    compiled = jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((16, 16), np.float32)).compile()
    np.testing.assert_array_equal(compiled(np.eye(16, dtype=np.float32)), np.eye(16))
    assert "HloModule jit__lambda" in compiled.as_text()
    assert compiled.cost_analysis()["flops"] == 2 * 16**3
    added = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((16, 16), jnp.float32)).compile()
    assert added.cost_analysis()["flops"] == 16**2
    assert compiled.cost_analysis()["cycles"] > 0
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == memory.output_size_in_bytes == 16 * 128 * 4


def check_compiler_options() -> None:
    lowered = jax.jit(lambda x: x + 1).lower(1.0)
    for known in ({"xla_embed_ir_in_executable": True}, {"exec_time_optimization_effort": 0.0}):
        assert float(lowered.compile(compiler_options=known)(1.0)) == 2
    error = jax.errors.JaxRuntimeError
    raises(error, "No such compile option: 'x'", lambda: lowered.compile(compiler_options={"x": 1}))


def check_calls_return_before_they_have_ended() -> None:
    """Donation and order are as if they had; what fails is told to whoever waits."""

    @jax.jit
    def slow(x: jax.Array, count: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, count, lambda _, y: y * 0.5 + 1, x)

    x = jnp.ones((64, 128))
    slow(x, 2).block_until_ready()
    made = slow(x, 3000)
    for _ in range(3):
        made = slow(made, 3000)
    was_ready = made.is_ready()
    np.testing.assert_allclose(made + 1, np.full((64, 128), 3.0))
    assert made.is_ready() and not was_ready
    step = jax.jit(lambda x: slow(x, 2000) + 1, donate_argnums=0)
    state = jnp.zeros((64, 128))
    for _ in range(3):
        given, state = state, step(state)
        assert given.is_deleted()
    np.testing.assert_allclose(state, np.full((64, 128), 3.0))


def check_serialised_executables() -> None:
    compiled = jax.jit(lambda x: {"y": jnp.cos(x) * 3}).lower(jnp.ones(5)).compile()
    loaded = deserialize_and_load(*serialize(compiled))
    x = normal(5)
    np.testing.assert_array_equal(loaded(x)["y"], compiled(x)["y"])
    assert "jit__lambda" in loaded.as_text()


def check_the_persistent_cache() -> None:
    with TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        hits: list[str] = []
        jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
        for _ in range(2):
            assert float(jax.jit(lambda x: jnp.exp(x) * 0 + 5)(jnp.float32(1))) == 5
            jax.clear_caches()
        jax.config.update("jax_compilation_cache_dir", None)
    assert "/jax/compilation_cache/cache_hits" in hits


def check_linear_algebra() -> None:
    a = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]], np.float32)
    np.testing.assert_allclose(
        jnp.linalg.solve(a, jnp.ones(3)), np.linalg.solve(a, np.ones(3)), rtol=1e-4
    )
    q, r = jnp.linalg.qr(a)
    np.testing.assert_allclose(np.asarray(q) @ np.asarray(r), a, atol=1e-5)
    np.testing.assert_allclose(jnp.linalg.eigvalsh(a), np.linalg.eigvalsh(a), rtol=1e-4)


def check_what_does_not_fit_is_resource_exhausted() -> None:
    raises(
        jax.errors.JaxRuntimeError,
        "RESOURCE_EXHAUSTED",
        lambda: jax.jit(lambda: jnp.zeros((1 << 20, 1 << 20), jnp.int8))(),
    )


def check_a_trace_has_what_the_device_ran() -> None:
    twice, call = 2, jax.jit(lambda x: jnp.tanh(x @ x))
    x = jnp.asarray(normal(64, 64))
    call(x).block_until_ready()
    with TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(twice):
                call(x).block_until_ready()
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(file)).planes
        (device,) = (plane for plane in planes if plane.name == "/device:TPU:0")
        lines = {line.name: list(line.events) for line in device.lines}
    runs = lines["XLA Modules"]
    assert [run.name.split("(")[0] for run in runs] == ["jit__lambda"] * twice
    assert runs[1].start_ns >= runs[0].end_ns > runs[0].start_ns
    assert any("fusion" in event.name for event in lines["XLA Ops"])


def check_dlpack_says_what_to_do() -> None:
    raises(Exception, "jax.device_put", lambda: np.from_dlpack(jnp.ones(3) + 1))


def check_callbacks() -> None:
    seen: list[object] = []

    def function(x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct((3,), np.float32)
        jax.debug.callback(lambda v: seen.append(np.asarray(v).tolist()), x, ordered=True)
        y = jax.pure_callback(lambda v, w: np.asarray(v) * 2 + w, shape, jnp.abs(x), 1.0)
        z = io_callback(lambda v: np.asarray(v) + 1, shape, y, ordered=True)
        io_callback(lambda: seen.append("end"), None, ordered=True)
        return y + z

    got = jax.jit(function)(jnp.array([-1.0, 2, 3]))
    np.testing.assert_array_equal(got, [7, 11, 15])
    jax.effects_barrier()
    assert seen == [[-1, 2, 3], "end"]


def check_errors_of_callbacks_are_the_callers() -> None:
    def wrong(_: object) -> None:
        raise ValueError("what the callback says")

    call = jax.jit(lambda x: jax.pure_callback(wrong, jax.ShapeDtypeStruct((), np.float32), x))
    raises(Exception, "what the callback says", lambda: call(1.0).block_until_ready())


def check_callbacks_in_loops_and_branches() -> None:
    seen: list[object] = []
    shape = jax.ShapeDtypeStruct((), np.float32)

    def twice(x: jax.Array, i: jax.Array) -> jax.Array:
        jax.debug.callback(lambda i, x: seen.append((int(i), float(x))), i, x, ordered=True)
        return 2 * x

    def more(x: jax.Array, i: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(
            0, i, lambda j, y: y + jax.pure_callback(lambda y, j: y * 0 + j, shape, y, j), x
        )

    def body(x: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = jax.lax.cond(i % 2 == 0, twice, more, x, i)
        return x, x

    last, all_of_them = jax.jit(lambda x: jax.lax.scan(body, x, jnp.arange(5)))(1.0)
    jax.effects_barrier()
    np.testing.assert_array_equal(all_of_them, [2, 2, 4, 7, 14])
    assert float(last) == 14 and seen == [(0, 1), (2, 2), (4, 7)]


if __name__ == "__main__":
    run_checks(dict(globals()))
