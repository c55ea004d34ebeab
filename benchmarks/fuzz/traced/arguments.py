"""Arguments by the names of parameters: arrays where nothing else is said."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.fuzz.traced import catalogue, draw
from benchmarks.fuzz.traced.program import Function, NotAddedError, Program, Spec

_NEVER = frozenset({
    "out", "out_sharding", "device", "copy", "order", "accuracy", "impl", "use_magma",
    "implementation", "axis_name", "axis_index_groups", "inplace", "numpy_resid", "sharding",
    "optimize", "promote_integers", "object", "kwargs", "kwds", "kw", "_dot_general",
    "init_func",
})  # fmt: skip
_SEVERAL = frozenset({
    "arrays", "tup", "operands", "choices", "choicelist", "condlist", "arys", "args", "xi",
    "arrs", "varargs",
})  # fmt: skip
_INTEGERS = frozenset({
    "indices", "segment_ids", "start_indices", "index", "start_index", "multi_index", "ind",
    "repeats", "sections", "labels", "group_sizes", "counts", "shift", "shifts",
    "scatter_indices",
})  # fmt: skip
_SCALARS = frozenset({
    "start", "stop", "step", "start_index", "index", "low", "high",
})  # fmt: skip
_CHANCE = 0.22


class Call:
    """The arguments of one call while they are drawn."""

    def __init__(self, program: Program, name: str) -> None:
        self.program = program
        self.rng = program.rng
        self.name = name
        self.numbers: list[int] = []
        self.lead: Spec | None = None

    def array(self, accept: Callable[[Spec], bool] | None = None) -> int:
        """A value as an argument; its place among the arrays of the call."""
        number = None
        if accept is not None:
            number = self.program.pick(accept)
        elif self.lead is not None and self.rng.random() < 0.85:
            number = self._companion(self.lead)
        elif self.rng.random() < 0.7:
            number = self.program.pick()
        if number is None:
            dims = draw.dims(self.rng, self.program.most, self.program.real)
            number = self.program.give(draw.dtype(self.rng), dims)
        return self._taken(number)

    def _companion(self, lead: Spec) -> int:
        """A value that goes with the first one: its type, its dimensions or ones that broadcast."""
        draw_ = self.rng.random()
        dims = lead.shape if draw_ < 0.6 else draw.broadcast_of(self.rng, lead.shape)
        if lead.shape and draw_ > 0.85:
            dims = lead.shape[-1:]
        same = self.program.pick(lambda s: s.dtype == lead.dtype and s.shape == dims)
        if same is not None and self.rng.random() < 0.6:
            return same
        return self.program.give(lead.dtype.name, dims)

    def _taken(self, number: int) -> int:
        if self.lead is None:
            self.lead = self.program.specs[number]
        self.numbers.append(number)
        return len(self.numbers) - 1

    def fresh(self, dtype: str, dims: Sequence[int], kind: str) -> int:
        """A new parameter as an argument."""
        return self._taken(self.program.give(dtype, dims, kind))


class Place:
    """An array's place in a call; also several."""

    def __init__(self, at: int | list[int]) -> None:
        self.at = at

    def filled(self, arrays: Sequence[Any]) -> Any:
        """With the arrays of a call."""
        return [arrays[n] for n in self.at] if isinstance(self.at, list) else arrays[self.at]


class Key:
    """A key made of an array of two words, or of a number."""

    def __init__(self, seed: int | Place) -> None:
        self.seed = seed

    def filled(self, arrays: Sequence[Any]) -> Any:
        """With the arrays of a call."""
        if isinstance(self.seed, int):
            return jax.random.key(self.seed)
        return jax.random.wrap_key_data(self.seed.filled(arrays), impl="threefry2x32")


def drawn_call(program: Program, name: str, function: Function) -> tuple[Function, list[int]]:
    """A call of a function found in a namespace, as a function of arrays alone."""
    call = Call(program, name)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in catalogue.parameters(function):
        needed = parameter.default is inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.VAR_KEYWORD or parameter.name in _NEVER:
            if needed and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                raise NotAddedError(parameter.name)
            continue
        is_size = parameter.name == "size" and call.name.startswith("jax.numpy")
        if not needed and not is_size and program.rng.random() > _CHANCE:
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional += [Place(call.array()) for _ in range(program.rng.randint(1, 3))]
            continue
        value = _value(call, parameter.name, needed)
        if parameter.kind in (parameter.KEYWORD_ONLY,) or not needed:
            named[parameter.name] = value
        else:
            positional.append(value)

    def run(*arrays: Any) -> Any:
        return function(
            *(_filled(v, arrays) for v in positional),
            **{k: _filled(v, arrays) for k, v in named.items()},
        )

    return run, call.numbers


def _filled(value: Any, arrays: Sequence[Any]) -> Any:
    return value.filled(arrays) if isinstance(value, Place | Key) else value


def _value(call: Call, name: str, needed: bool) -> Any:
    if name in _STATIC:
        return _STATIC[name](call.rng, call.lead)
    if name in ("key", "keys", "rng"):
        if call.rng.random() < 0.4:
            return Key(call.rng.randrange(1000))
        return Key(Place(call.fresh("uint32", (2,), "any")))
    if name in ("shape", "new_shape", "newshape"):
        return _shape(call)
    if name in _SEVERAL:
        return Place([call.array() for _ in range(call.rng.randint(1, 4))])
    if name in _INTEGERS and not call.name.startswith("jax.scipy"):
        return _indices(call, name)
    if name in ("where", "pred", "condition", "which", "mask"):
        dims = draw.broadcast_of(call.rng, call.lead.shape) if call.lead is not None else (4,)
        return Place(call.fresh("bool", dims, "tame"))
    if not needed and name not in _ARRAYS:
        raise NotAddedError(f"nothing known of {name}")
    return Place(call.array())


_ARRAYS = frozenset({
    "a", "b", "x", "y", "y0", "weights", "initial", "loc", "scale", "bias", "lower", "upper",
    "minval", "maxval", "init",
})  # fmt: skip


def _indices(call: Call, name: str) -> Any:
    rng, lead = call.rng, call.lead
    if name in ("repeats", "shift", "shifts") and rng.random() < 0.7:
        return rng.randint(-3, 6)
    if name in _SCALARS:
        return Place(call.fresh(rng.choice(("int32", "uint8", "int8", "int32")), (), "index"))
    if name == "segment_ids":
        length = lead.shape[:1] if lead is not None else (5,)
        return Place(call.fresh(rng.choice(("int32", "int32", "uint8", "int8")), length, "index"))
    name_ = rng.choice(("int32", "int32", "int32", "uint8", "int8", "uint32", "int16"))
    if lead is not None and lead.shape and rng.random() < 0.4:
        return Place(call.fresh(name_, lead.shape, "index"))
    return Place(call.fresh(name_, draw.dims(rng, 300, rank=rng.randint(0, 2)), "index"))


def _shape(call: Call) -> tuple[int, ...]:
    rng, lead = call.rng, call.lead
    if lead is not None and "broadcast" in call.name:
        extra = draw.dims(rng, 6, rank=rng.randint(0, 2))
        return (*extra, *(rng.randint(2, 5) if n == 1 else n for n in lead.shape))
    if lead is not None and "random" not in call.name:
        return draw.factored(rng, lead.size, rng.randint(1, 5))
    return draw.dims(rng, call.program.most, call.program.real)


Static = Callable[[random.Random, Spec | None], Any]


def _rank(lead: Spec | None) -> int:
    return len(lead.shape) if lead is not None else 2


def _axis(rng: random.Random, lead: Spec | None) -> Any:
    draw_ = rng.random()
    if draw_ < 0.1:
        return None
    return draw.axes(rng, _rank(lead)) if draw_ < 0.25 else draw.axis(rng, _rank(lead))


def _one_of(*choices: Any) -> Static:
    return lambda rng, lead: rng.choice(choices)


def _between(low: int, high: int) -> Static:
    return lambda rng, lead: rng.randint(low, high)


def _axes(rng: random.Random, lead: Spec | None) -> Any:
    return draw.axes(rng, _rank(lead))


def _permutation(rng: random.Random, lead: Spec | None) -> Any:
    return tuple(rng.sample(range(_rank(lead)), _rank(lead)))


def _one_axis(rng: random.Random, lead: Spec | None) -> Any:
    return draw.axis(rng, _rank(lead))


def _per_dim(low: int, high: int) -> Static:
    return lambda rng, lead: tuple(rng.randint(low, high) for _ in range(_rank(lead)))


def _pads(rng: random.Random, lead: Spec | None) -> Any:
    if rng.random() < 0.3:
        return rng.randint(0, 3)
    return tuple((rng.randint(0, 3), rng.randint(0, 4)) for _ in range(_rank(lead)))


def _padding_config(rng: random.Random, lead: Spec | None) -> Any:
    return tuple(
        (rng.randint(-2, 3), rng.randint(-2, 3), rng.choice((0, 0, 1, 2)))
        for _ in range(_rank(lead))
    )


def _bins(rng: random.Random, lead: Spec | None) -> Any:
    edges = sorted(rng.uniform(-4, 4) for _ in range(rng.randint(1, 6)))
    return jnp.asarray(edges, jnp.float32)


def _subset(rng: random.Random, lead: Spec | None) -> Any:
    return tuple(sorted(rng.randint(0, n) for n in ((lead.shape if lead else ()) or (1,))))


def _resized(rng: random.Random, lead: Spec | None) -> Any:
    shape = lead.shape if lead is not None else (4, 4)
    return tuple(rng.choice((n, n, rng.randint(1, 20), 2 * n)) for n in shape)


def _bounds(rng: random.Random, lead: Spec | None, least: bool) -> Any:
    shape = lead.shape if lead is not None else ()
    return tuple(rng.randint(0, n // 2) if least else rng.randint((n + 1) // 2, n) for n in shape)


def _dtype(rng: random.Random, lead: Spec | None) -> Any:
    return jnp.dtype(draw.dtype(rng))


_STATIC: dict[str, Static] = {
    "axis": _axis, "axes": _axes, "permutation": _permutation, "dimension": _one_axis,
    "dimensions": _axes, "axis1": _one_axis, "axis2": _one_axis, "source": _one_axis,
    "destination": _one_axis, "dim": _one_axis, "dims": _axes, "start_dimension": _between(0, 2),
    "stop_dimension": _between(1, 4), "keepdims": _one_of(True, False),
    "keep_dims": _one_of(True, False), "k": _between(-2, 4), "kth": _between(0, 3),
    "offset": _between(-2, 3), "n": _between(1, 9), "N": _between(1, 20), "M": _between(1, 20),
    "m": _between(1, 9), "d": _between(1, 3), "num": _between(1, 20), "length": _between(1, 20),
    "size": _between(1, 12), "num_segments": _between(1, 40), "num_classes": _between(1, 150),
    "fill_value": _one_of(0, 1, -1), "dtype": _dtype, "new_dtype": _dtype, "index_dtype": _one_of(
        jnp.dtype("int32"), jnp.dtype("int8"), jnp.dtype("uint16"), jnp.dtype("uint8")
    ),
    "preferred_element_type": _one_of("float32", "int32", "bfloat16", "float16", None),
    "precision": _one_of("highest", "default", "high", None, "bfloat16"),
    "side": _one_of("left", "right"), "method": _one_of(
        "linear", "nearest", "cubic", "lanczos3", "lanczos5", "scan", "sort", "compare_all", "direct",
        "fft", "bilinear", "median_unbiased", "lower", "higher", "midpoint", "trapezoid",
    ),
    "mode": _one_of(
        "full", "same", "valid", "clip", "wrap", "fill", "constant", "nearest", "mirror", "reflect",
        "edge", "symmetric", "linear_ramp", "maximum", "mean", "median", "minimum", "promise_in_bounds",
        "drop", "complete", "reduced", "r", "raw", "economic",
    ),
    "order": _one_of(0, 1, "constant", 2, 3), "kind": _one_of("stable", "quicksort"),
    "stable": _one_of(True, False), "is_stable": _one_of(True, False),
    "descending": _one_of(True, False), "reverse": _one_of(True, False),
    "exclusive": _one_of(True, False), "indices_are_sorted": _one_of(False),
    "unique_indices": _one_of(False), "unique_keys": _one_of(False), "assume_unique": _one_of(False),
    "return_index": _one_of(True, False), "return_inverse": _one_of(True, False),
    "return_counts": _one_of(True, False), "indices_or_sections": _between(1, 4),
    "sections": _between(1, 4), "pad_width": _pads, "padding_config": _padding_config,
    "reps": _per_dim(1, 3), "shift": _between(-9, 9), "ord": _one_of(None, 1, 2, "fro", "nuc", 3, 0),
    "decimals": _between(-1, 3), "correction": _one_of(0, 1, 2), "ddof": _one_of(0, 1),
    "deg": _between(0, 3), "bins": _bins, "range": _one_of((-3, 3), (0, 5)),
    "full_matrices": _one_of(True, False), "compute_uv": _one_of(True, False),
    "hermitian": _one_of(True, False), "symmetrize_input": _one_of(True, False),
    "lower": _one_of(True, False), "left_side": _one_of(True, False),
    "unit_diagonal": _one_of(True, False), "transpose_a": _one_of(True, False),
    "conjugate_a": _one_of(True, False), "overwrite_a": _one_of(False), "trans": _one_of(0, 1, 2),
    "check_finite": _one_of(False), "exponent_bits": _between(1, 8), "mantissa_bits": _between(0, 23),
    "strides": _per_dim(1, 3), "start_indices": lambda rng, lead: _bounds(rng, lead, True),
    "limit_indices": lambda rng, lead: _bounds(rng, lead, False),
    "window_dimensions": _per_dim(1, 3), "window_strides": _per_dim(1, 3),
    "padding": _one_of("SAME", "VALID", "SAME_LOWER"), "negative_slope": _one_of(0.1, 0.01),
    "approximate": _one_of(True, False), "endpoint": _one_of(True, False),
    "retstep": _one_of(False), "base": _one_of(10.0, 2.0), "sparse": _one_of(True, False),
    "indexing": _one_of("ij", "xy"), "wrap": _one_of(True, False), "antialias": _one_of(True, False),
    "include_initial": _one_of(True, False), "trim_leading_zeros": _one_of(False),
    "nbins": _between(1, 9), "subset_by_index": _one_of(None), "broadcast_sizes": _per_dim(1, 3),
    "sizes": _per_dim(1, 3), "rank": _between(0, 5), "limit_index": _between(1, 9),
    "slice_size": _between(1, 9), "slice_sizes": _subset, "stride": _between(1, 3),
    "num_keys": _between(1, 2), "is_max_k": _one_of(True, False), "equal_nan": _one_of(True, False),
    "rtol": _one_of(0.1, 1e-3), "atol": _one_of(0.1, 1e-3), "nan": _one_of(0.0, 7.0),
    "posinf": _one_of(None, 9.0), "neginf": _one_of(None, -9.0), "unroll": _one_of(1, 2),
    "bitorder": _one_of("big", "little"), "count": _between(1, 9), "edge_order": _one_of(1),
    "norm": _one_of(None, "ortho", "forward", "backward"), "type": _one_of(2),
    "nperseg": _between(2, 16), "noverlap": _between(0, 1), "fs": _one_of(1.0, 2.0),
    "wrap_negative_indices": _one_of(True, False), "is_causal": _one_of(True, False),
    "replace": _one_of(True, False), "pool_size": _between(1, 9), "rowvar": _one_of(True, False),
    "bias": _one_of(True, False), "returned": _one_of(True, False), "nfft": _between(2, 33),
    "allow_negative_indices": _one_of(True, False), "max_iterations": _between(1, 5),
    "total_repeat_length": _between(1, 30), "minlength": _between(0, 20), "spacing": _one_of(1.0),
    "dx": _one_of(1.0, 0.5), "ndmin": _between(0, 4), "iterations": _between(1, 3), "p": _one_of(
        0.1, 0.5, 0.9
    ), "resolution": _between(2, 9), "n_max": _between(1, 4), "fweights": _one_of(None),
    "aweights": _one_of(None), "copy": _one_of(True), "dimension_numbers": _one_of(None),
    "filter_shape": _per_dim(1, 3), "operand_precision": _one_of(None), "boundary": _one_of("fill"),
    "noise_shape": _one_of(None), "alpha_": _one_of(1.0), "broadcast_dimensions": _axes,
    "number_of_dimensions": _between(1, 4), "new_sizes": _resized, "inverse": _one_of(True, False),
    "forward": _one_of(True, False), "normalize": _one_of(True, False), "window": _one_of(
        "hann", "boxcar"
    ), "return_onesided": _one_of(True, False), "detrend": _one_of(False), "hd": _one_of(1),
}  # fmt: skip
