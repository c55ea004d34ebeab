"""`tpuc.jit`: trees, statics, the cache, scalars, device arrays."""

from __future__ import annotations

import dataclasses
import inspect
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from compiler.diagnostics import CompileError
from runtime.api import device_put
from runtime.buffer import Array
from runtime.jit import JitFunction, RecompileWarning, jit

X = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.float32([10, 20, 30])


class Layer(NamedTuple):
    w: np.ndarray
    b: np.ndarray


def counted(function):
    """The function, and the list that grows by one whenever its body runs."""
    runs: list[int] = []

    def body(*args, **kwargs):
        runs.append(1)
        return function(*args, **kwargs)

    body.__signature__ = inspect.signature(function)
    return body, runs


def test_nested_trees_in_and_out() -> None:
    @jit
    def model(params, x):
        first, second = params["layers"]
        hidden = x * first.w + first.b
        return {"out": (hidden + second.b, None), "parts": [hidden, second.w * 2]}

    layers = [Layer(X, B), Layer(X + 1, B + 1)]
    result = model({"layers": layers}, X)
    assert isinstance(result, dict) and sorted(result) == ["out", "parts"]
    hidden = X * X + B
    assert (result["out"][0] == hidden + B + 1).all()
    assert result["out"][1] is None
    assert isinstance(result["parts"], list)
    assert (result["parts"][0] == hidden).all() and (result["parts"][1] == 2 * X + 2).all()


def test_named_tuples_come_back_as_themselves() -> None:
    swap = jit(lambda layer: Layer(layer.b + 0, layer.w + 0))
    result = swap(Layer(X, B))
    assert isinstance(result, Layer)
    assert (result.w == B).all() and (result.b == X).all()


def test_one_trace_per_signature() -> None:
    body, runs = counted(lambda x: x + 1)
    function = JitFunction(body)
    for argument in (X, X * 2, np.ones((2, 3), np.float32)):
        assert (function(argument) == argument + 1).all()
    assert len(runs) == 1
    function(X[:1])
    function(X.astype(np.int32))
    function(X.astype(ml_dtypes.bfloat16))
    assert len(runs) == 4
    function(X)
    assert len(runs) == 4


def test_keywords_share_the_cache_and_defaults_are_constants() -> None:
    body, runs = counted(lambda x, bias=2.0: x + bias)
    function = JitFunction(body)
    for result in (function(X, 2.0), function(bias=2.0, x=X)):
        assert (result == X + 2).all()
    assert (function(X, bias=5.0) == X + 5).all()
    assert len(runs) == 1
    for result in (function(X), function(x=X)):
        assert (result == X + 2).all()
    assert len(runs) == 2


def test_defaults_that_are_no_arrays_are_the_functions_own() -> None:
    assert np.allclose(jit(np.tanh)(X), np.tanh(X), atol=1e-6)
    assert (jit(lambda x, mode="twice": x * 2 if mode == "twice" else x)(X) == X * 2).all()


def test_statics_choose_the_program() -> None:
    body, runs = counted(lambda x, times, name="add": x + times if name == "add" else x * times)
    function = JitFunction(body, static_argnames=("times", "name"))
    assert (function(X, 3) == X + 3).all()
    assert (function(X, times=3) == X + 3).all()
    assert (function(X, 4) == X + 4).all()
    assert (function(X, 4, name="mul") == X * 4).all()
    assert len(runs) == 3
    assert [function(X.astype(np.int32), n).dtype for n in (1, 1.0)] == [np.int32, np.float32]
    with pytest.raises(ValueError, match="static argument 'depth' is no parameter"):
        jit(lambda x: x, static_argnames=("depth",))
    with pytest.raises(CompileError, match=r"static argument 'times' must be hashable"):
        function(X, [3])


def test_scalars_are_weak_and_results_of_rank_zero_are_arrays() -> None:
    function = jit(lambda x, s: (x * s, s + 1, np.sum(x)))
    for scalar in (2, 2.0, np.float32(2)):
        scaled, one_more, total = function(X.astype(ml_dtypes.bfloat16), scalar)
        want = np.float32 if isinstance(scalar, np.float32) else ml_dtypes.bfloat16
        assert scaled.dtype == want
        assert (scaled.astype(np.float32) == X * 2).all()
        assert one_more.shape == () and float(one_more) == 3
        assert float(total) == 15


def test_true_and_one_are_different_signatures() -> None:
    function = jit(lambda x, flag: np.where(flag, x, -x))
    assert (function(X, True) == X).all()
    assert (function(X, np.bool_(False)) == -X).all()


def test_device_arrays_in_device_arrays_out() -> None:
    function = jit(lambda p, x: {"y": x * p["w"] + p["b"], "x": x})
    params = {"w": device_put(X), "b": device_put(B)}
    result = function(params, device_put(X))
    assert all(isinstance(leaf, Array) for leaf in result.values())
    assert (np.asarray(result["y"]) == X * X + B).all()
    assert (np.asarray(result["x"]) == X).all()
    again = function(params, result["y"])
    assert (np.asarray(again["y"]) == (X * X + B) * X + B).all()
    mixed = function({"w": X, "b": params["b"]}, result["x"])
    assert isinstance(mixed["y"], np.ndarray)


def test_scalars_beside_device_arrays_leave_the_result_on_the_device() -> None:
    function = jit(lambda x, rate: x - rate * x)
    result = function(device_put(X), 0.5)
    assert isinstance(result, Array)
    assert (result.numpy() == X * 0.5).all()


def test_a_function_without_arguments_and_one_that_returns_its_input() -> None:
    assert jit(lambda: np.float32(2) + np.float32(3))() == 5
    same = jit(lambda x: x)(X)
    assert (same == X).all() and same is not X


def test_what_cannot_be_traced_says_so() -> None:
    with pytest.raises(CompileError, match="argument of type str"):
        jit(lambda x: x)("text")
    with pytest.raises(TypeError, match=r"missing a required argument: 'x'"):
        jit(lambda x: x)()
    with pytest.raises(CompileError, match=r"a condition .* needs the value of .*use np.where"):
        jit(lambda x: x if x[0, 0] else -x)(X)


def test_the_decorator_keeps_name_and_options() -> None:
    @jit(precision="highest")
    def product(a, b):
        """A product."""
        return a @ b

    assert product.__name__ == "product" and product.__doc__ == "A product."
    a = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    assert np.abs(product(a, a.T) - a @ a.T).max() < 1e-4
    assert product.executable is not None
    assert product.executable.program.metadata["precision"] == "highest"


@dataclasses.dataclass
class Affine:
    w: np.ndarray
    b: np.ndarray
    times: int = dataclasses.field(default=1, metadata={"static": True})

    @jit
    def __call__(self, x):
        return x * self.w * self.times + self.b


def test_dataclasses_are_trees_and_methods_take_their_object() -> None:
    twice = jit(lambda layer: dataclasses.replace(layer, w=layer.w + 1))(Affine(X, B, 3))
    assert isinstance(twice, Affine) and twice.times == 3
    assert (twice.w == X + 1).all() and (twice.b == B).all()
    assert (twice(X) == X * (X + 1) * 3 + B).all()


def test_parameters_are_named_after_arguments_and_in_their_order() -> None:
    lowered = jit(lambda z, a: z["w"] - a).lower({"w": X}, B)
    assert "(z_w: f32[2,3], a: f32[3])" in lowered.as_text()


def test_lowering_compiles_once_for_one_signature() -> None:
    lowered = jit(lambda x, n: x * n, static_argnums=1).lower(X, 3)
    assert lowered.as_text().startswith("HloModule")
    assert lowered.estimate().cycles > 0
    compiled = lowered.compile()
    assert (compiled(X, 3) == X * 3).all()
    assert compiled.report is not None and compiled.report.cycles == lowered.estimate().cycles
    assert "ENTRY" in compiled.as_text() and "sst s0" in compiled.as_text("tpu")
    with pytest.raises(CompileError, match=r"static argument 'n' was 3, now 4"):
        compiled(X, 4)
    with pytest.raises(CompileError, match=r"x was float32\[2, 3\], now float32\[1, 3\]"):
        compiled(X[:1], 3)
    with pytest.raises(ValueError, match=r"static argument 2: .* has 1 parameters"):
        jit(lambda x: x, static_argnums=2)


def test_what_is_compiled_takes_static_arguments_or_leaves_them_out_as_in_jax() -> None:
    def function(n: int, x: np.ndarray, *, act: bool = False) -> np.ndarray:
        return x * n if act else x

    compiled = jit(function, static_argnames=("n", "act")).lower(3, X, act=True).compile()
    assert (compiled(X) == X * 3).all() and (compiled(x=X) == X * 3).all()
    assert (compiled(3, X, act=True) == X * 3).all()
    with pytest.raises(CompileError, match=r"x was float32\[2, 3\], now float32\[1, 3\]"):
        compiled(X[:1])
    with pytest.raises(CompileError, match=r"static argument 'act' was True, now False"):
        compiled(3, X, act=False)
    with pytest.raises(TypeError, match="missing a required argument"):
        compiled()


def test_a_donated_argument_is_given_up_for_a_result_that_fits() -> None:
    step = jit(lambda state, x: (np.sum(x), state + x), donate_argnums=0)
    assert "input_output_alias={ {1}: (0, {}, may-alias) }" in step.lower(X, X).as_text()
    state, x = device_put(X), device_put(X + 1)
    _, after = step(state, x)
    assert state.is_deleted() and not x.is_deleted()
    assert (after.numpy() == X + X + 1).all()
    assert "input_output_alias" not in jit(lambda s: s[0], donate_argnums=0).lower(X).as_text()
    by_name = jit(lambda state, x: state + x, donate_argnames="x")
    assert "{}: (1, {}, may-alias)" in by_name.lower(X, X).as_text()
    with pytest.raises(ValueError, match="donated argument 'y' is no parameter"):
        jit(lambda x: x, donate_argnames="y")


def test_a_jitted_function_inside_of_one_is_part_of_it() -> None:
    inner = jit(lambda x: x * 2)
    outer = jit(lambda x: inner(x) + 1)
    assert (outer(X) == X * 2 + 1).all()
    assert inner.executable is None


def test_many_programs_of_one_function_are_reported_with_the_reason() -> None:
    function = jit(lambda x, n: x, static_argnames="n", target="v5e")
    with pytest.warns(
        RecompileWarning, match="for the 17th time: static argument 'n' was 15, now 16"
    ):
        for n in range(17):
            function(X, n)
