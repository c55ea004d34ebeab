"""The generators whose bits are defined."""

from __future__ import annotations

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value


@maker("rng-bit-generator", weight=0.5)
def rng_bit_generator(scope: Scope) -> Value:
    """ThreeFry and Philox, any number of bits of any width."""
    rng = scope.rng
    algorithm = rng.choice(("rng_three_fry", "rng_three_fry", "rng_philox", "rng_default"))
    words = 2 if algorithm != "rng_philox" else rng.choice((2, 3))
    state = scope.like("u64", (words,), "any")
    dtype = rng.choice(("u32", "u32", "u64", "u8", "u16", "s32"))
    dims = scope.dims(most=scope.room(2000))
    shape = f"({state.shape}, {kinds.text(dtype, dims)})"
    name = scope.raw(shape, f"rng-bit-generator({state.name}), algorithm={algorithm}")
    scope.element(name, 0, "u64", (words,))
    return scope.element(name, 1, dtype, dims)


@maker("rng", weight=0.2)
def rng(scope: Scope) -> Value:
    """Numbers that the implementation chooses: all one can say is in which range they lie."""
    dtype = kinds.dtype(
        scope.rng, tuple(t for t in kinds.ALL if t not in ("pred", "c64", "s2", "u2"))
    )
    dims = scope.dims()
    least = "-3" if dtype[0] != "u" and kinds.has_zero(dtype) else "2"
    low, high = (scope.constant(dtype, (), text) for text in (least, "4"))
    if dtype in kinds.WIDE_FLOATS and scope.rng.random() < 0.4:  # 8 bits may overflow
        call = f"rng({low.name}, {high.name}), distribution=rng_normal"
        drawn = scope.hidden(call, dtype, dims)
        return scope.add(f"is-finite({drawn.name})", "pred", dims)
    drawn = scope.hidden(f"rng({low.name}, {high.name}), distribution=rng_uniform", dtype, dims)
    ends = []
    for end in (low, high):
        ends.append(scope.hidden(f"broadcast({end.name}), dimensions={{}}", dtype, dims).name)
    above = scope.hidden(f"compare({drawn.name}, {ends[0]}), direction=GE", "pred", dims)
    below = scope.hidden(f"compare({drawn.name}, {ends[1]}), direction=LE", "pred", dims)
    return scope.add(f"and({above.name}, {below.name})", "pred", dims)


@maker("rng-get-and-update-state", weight=0.05, entry_only=True)
def rng_state(scope: Scope) -> Value:
    """A state that the implementation chooses: it equals itself."""
    state = scope.hidden("rng-get-and-update-state(), delta=1", "u64", (2,))
    return scope.add(f"compare({state.name}, {state.name}), direction=EQ", "pred", (2,))
