"""Factorisations, triangular systems and Fourier transforms."""

from __future__ import annotations

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.movement import listed
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value

_TYPES = ("f32", "f32", "f32", "bf16", "f16", "c64")
_LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 64, 127, 128, 129, 130, 256, 257)


def _batch(scope: Scope) -> tuple[int, ...]:
    return scope.rng.choice(((), (), (), (2,), (3,), (1, 2), (2, 3)))


@maker("cholesky", weight=0.4, entry_only=True)
def cholesky(scope: Scope) -> Value:
    """Of a positive definite matrix; the other triangle is not defined, so it is cut off."""
    rng = scope.rng
    n = scope.choose((1, 2, 3, 5, 8, 9, 17, 33), (64, 128, 300, 512, 1024))
    dtype = rng.choice(_TYPES)
    dims = (*_batch(scope), n, n)
    x = scope.new(dtype, dims, "definite")
    lower = rng.choice(("true", "false"))
    y = scope.add(f"cholesky({x.name}), lower={lower}", dtype, dims, 64.0)
    row = scope.add(f"iota(), iota_dimension={len(dims) - 2}", "s32", dims)
    column = scope.add(f"iota(), iota_dimension={len(dims) - 1}", "s32", dims)
    direction = "GE" if lower == "true" else "LE"
    kept = scope.add(f"compare({row.name}, {column.name}), direction={direction}", "pred", dims)
    scope.values.remove(y)
    zero = scope.zero(dtype)
    zeros = scope.add(f"broadcast({zero.name}), dimensions={{}}", dtype, dims, 0.0)
    return scope.add(f"select({kept.name}, {y.name}, {zeros.name})", dtype, dims, 64.0)


@maker("triangular-solve", weight=0.4, entry_only=True)
def triangular_solve(scope: Scope) -> Value:
    """From either side, transposed or not."""
    rng = scope.rng
    n = scope.choose((1, 2, 3, 5, 8, 17, 33), (64, 128, 300, 512, 1024))
    k, dtype = scope.choose((1, 2, 5, 130), (1, 64, 1000)), rng.choice(_TYPES)
    batch, left = _batch(scope), rng.random() < 0.5
    a = scope.new(dtype, (*batch, n, n), "definite")
    b = scope.like(dtype, (*batch, n, k) if left else (*batch, k, n), "tame")
    turned = rng.choice(("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))
    lower, unit = (rng.choice(("true", "false")) for _ in range(2))
    call = (
        f"triangular-solve({a.name}, {b.name}), left_side={str(left).lower()}, lower={lower}, "
        f"unit_diagonal={unit}, transpose_a={turned}"
    )
    return scope.add(call, dtype, b.dims)


@maker("fft", weight=0.7)
def fft(scope: Scope) -> Value | None:
    """All four kinds, of one to three dimensions."""
    rng = scope.rng
    rank = rng.choice((1, 1, 1, 2, 3))
    lengths_of = (_LENGTHS, (1, 2, 3, 4, 5, 8, 16))
    if scope.program.is_real:
        lengths_of = ((128, 256, 1000, 1024, 4096, 1023), (32, 64, 100, 128, 256))
    lengths = [rng.choice(lengths_of[rank > 1]) for _ in range(rank)]
    lead = rng.choice(((), (1,), (3,), (2, 3)))
    if scope.program.is_real:
        lead = rng.choice(((), (8,), (100,), (16, 64)))
    kind = rng.choice(("FFT", "IFFT", "RFFT", "IRFFT"))
    half = (*lead, *lengths[:-1], lengths[-1] // 2 + 1)
    whole = (*lead, *lengths)
    dims, result = {"RFFT": (whole, half), "IRFFT": (half, whole)}.get(kind, (whole, whole))
    x = scope.like("f32" if kind == "RFFT" else "c64", dims, "tame")
    dtype = "f32" if kind == "IRFFT" else "c64"
    call = f"fft({x.name}), fft_type={kind}, fft_length={{{listed(lengths)}}}"
    return scope.add(call, dtype, result, 8.0 * x.count if kind in ("FFT", "RFFT") else 16.0)


@maker("custom-call", weight=0.3)
def known_custom_call(scope: Scope) -> Value:
    """Targets that frameworks emit: annotations, and the largest elements."""
    rng = scope.rng
    if rng.random() < 0.4:
        x = scope.pick(("f32", "s32", "bf16"), least_rank=1, tame=True)
        count = rng.randint(min(1, x.dims[-1]), x.dims[-1])
        dims = (*x.dims[:-1], count)
        shape = f"({kinds.text(x.dtype, dims)}, {kinds.text('s32', dims)})"
        name = scope.raw(shape, f'custom-call({x.name}), custom_call_target="TopK"')
        return scope.element(name, 0, x.dtype, dims, x.most)
    x = scope.pick()
    target = rng.choice(
        ("Sharding", "MoveToHost", "MoveToDevice", "annotate_device_placement", "LayoutConstraint")
    )
    more = ", sharding={replicated}" if target == "Sharding" else ""
    call = f'custom-call({x.name}), custom_call_target="{target}"{more}'
    return scope.add(call, x.dtype, x.dims, x.most)
