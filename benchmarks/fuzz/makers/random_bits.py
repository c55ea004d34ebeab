"""The generators whose bits are defined."""

from __future__ import annotations

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value


@maker("rng-bit-generator", weight=0.5)
def rng_bit_generator(scope: Scope) -> Value:
    """ThreeFry and Philox, any number of bits of any width."""
    rng = scope.rng
    algorithm = rng.choice(("rng_three_fry", "rng_three_fry", "rng_philox"))
    words = 2 if algorithm == "rng_three_fry" else rng.choice((2, 3))
    state = scope.like("u64", (words,), "any")
    dtype = rng.choice(("u32", "u32", "u64", "u8", "u16", "s32"))
    dims = scope.dims(most=scope.room(2000))
    shape = f"({state.shape}, {kinds.text(dtype, dims)})"
    name = scope.raw(shape, f"rng-bit-generator({state.name}), algorithm={algorithm}")
    scope.element(name, 0, "u64", (words,))
    return scope.element(name, 1, dtype, dims)
