"""Dots and convolutions."""

from __future__ import annotations

import math

from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.movement import listed
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.makers.windows import Along, window_text
from benchmarks.fuzz.scope import Scope, Value

_TYPES = (
    "f32", "f32", "f32", "bf16", "f16", "s8", "u8", "s32", "u32", "s16", "s4", "u4", "c64",
    "f8e4m3fn", "f8e5m2", "s64", "pred", *kinds.NARROW_FLOATS, *kinds.TINY_FLOATS, "u64", "u16", "s2",
    "u2",
)  # fmt: skip


def result_type(scope: Scope, dtype: str) -> str:
    """The type a product is summed into: its own, or a wider one that XLA allows."""
    rng = scope.rng
    if dtype in kinds.FLOATS and dtype != "f32":
        return rng.choice((dtype, "f32", "f32"))
    if dtype == "f32" and rng.random() < 0.05:
        return rng.choice(("bf16", "f16"))
    if dtype in ("s8", "s4", "s16"):
        return rng.choice((dtype, "s32", "s32"))
    if dtype in ("u8", "u4", "u16"):
        return rng.choice((dtype, "u32", "s32"))
    return dtype


def other_type(scope: Scope, dtype: str) -> str:
    """The type of the other operand: mostly the same, sometimes another that XLA multiplies with."""
    if scope.rng.random() > 0.15 or kinds.is_complex(dtype) or dtype == "pred":
        return dtype
    draw = scope.rng.random()
    floats = kinds.FLOATS if draw < 0.9 else ("s8", "s4", "u8", "s32")
    integers = kinds.INTEGERS if draw < 0.9 else ("f32", "bf16")
    return kinds.dtype(scope.rng, floats if kinds.is_float(dtype) else integers)


def product_type(scope: Scope, left: str, right: str) -> str:
    """The type of products of two types."""
    if left == right:
        return result_type(scope, left)
    if kinds.is_float(left) != kinds.is_float(right):
        return "f32"
    if kinds.is_float(left):
        return scope.rng.choice(("f32", "f32", "bf16"))
    return "s64" if max(kinds.bits(left), kinds.bits(right)) > 32 else "s32"


@maker("dot", weight=3)
def dot(scope: Scope) -> Value | None:
    """Any dimensions contracted or batched, in any order."""
    rng = scope.rng
    x = scope.pick(_TYPES, most_rank=6, tame=True, accept=lambda v: v.count <= scope.room(4000))
    order = rng.sample(range(x.rank), x.rank)
    contracting = order[: rng.choice((0, 1, 1, 1, 2, 3)) if x.rank else 0]
    rest = [d for d in order if d not in contracting]
    batch = rest[: rng.choice((0, 0, 1, 2, 3))]
    free = [d for d in range(x.rank) if d not in contracting and d not in batch]
    fresh = [scope.size() for _ in range(rng.choice((0, 1, 1, 1, 2)))]
    roles = [(x.dims[d], "b", d) for d in batch] + [(x.dims[d], "c", d) for d in contracting]
    roles += [(n, "f", -1) for n in fresh]
    rng.shuffle(roles)
    dims = tuple(n for n, _, _ in roles)
    result = [x.dims[d] for d in batch + free] + [n for n, role, _ in roles if role == "f"]
    depth = math.prod(x.dims[d] for d in contracting)
    room = scope.program.most_elements
    if len(dims) > 8 or math.prod(dims) > room or math.prod(result) > room or len(result) > 8:
        return None
    if depth * math.prod(result) > 3e6 and not scope.program.is_real:
        return None
    dtype = other_type(scope, x.dtype)
    y = scope.like(dtype, dims, scope.tame_kind(dtype) if dtype != "pred" else "")
    place = {d: i for i, (_, _, d) in enumerate(roles) if d >= 0}
    parts = []
    if batch:
        parts.append(f"lhs_batch_dims={{{listed(batch)}}}")
        parts.append(f"rhs_batch_dims={{{listed(place[d] for d in batch)}}}")
    if contracting:
        parts.append(f"lhs_contracting_dims={{{listed(contracting)}}}")
        parts.append(f"rhs_contracting_dims={{{listed(place[d] for d in contracting)}}}")
    if rng.random() < 0.1 and x.dtype == "f32":
        wanted = ("operand_precision={highest,highest}", "algorithm=dot_f32_f32_f32")
        parts.append(rng.choice(wanted[: 1 + (y.dtype == "f32")]))
    call = ", ".join([f"dot({x.name}, {y.name})", *parts])
    wide = product_type(scope, x.dtype, y.dtype)
    return scope.add(call, wide, result, max(1, depth) * x.most * y.most)


def _conv_window(scope: Scope, size: int) -> Along:
    rng = scope.rng
    window = rng.choice((1, 1, 2, 3, 3, 4, 5))
    if rng.random() < 0.05:
        window = rng.choice((7, 11, 16, 31))
    stride = rng.choice((1, 1, 1, 2, 3))
    low, high = (rng.choice((0, 0, window // 2, window - 1, window, 1)) for _ in range(2))
    if rng.random() < 0.12:  # edges cut away, or more of them than the window reaches
        low, high = (rng.choice((0, -1, -2, -3, -size // 2, 2, 9, 20)) for _ in range(2))
    base = rng.choice((1, 1, 1, 1, 2, 3))
    dilation = rng.choice((1, 1, 1, 1, 2, 3))
    return Along(window, stride, low, high, base, dilation, rng.random() < 0.1)


@maker("convolution", weight=2.5)
def convolution(scope: Scope) -> Value | None:
    """Zero to three spatial dimensions, dilations, groups, reversal, any labels."""
    rng = scope.rng
    dtype = kinds.dtype(rng, tuple(t for t in _TYPES if t != "pred"))
    spatial = rng.choice((0, 1, 1, 2, 2, 2, 3))
    large = (7, 14, 28, 32, 56, 112, 224, 300)
    sizes = [scope.choose((1, 2, 3, 5, 7, 8, 9, 17), large) for _ in range(spatial)]
    if rng.random() < 0.15 and spatial == 1:
        sizes = [rng.choice((127, 128, 129, 130))]
    window = [_conv_window(scope, n) for n in sizes]
    outputs = [w.output(n) for w, n in zip(window, sizes, strict=True)]
    if 0 in outputs and rng.random() < 0.9:
        return None
    groups, batch_groups = 1, 1
    draw = rng.random()
    if draw < 0.25:
        groups = rng.choice((2, 3, 4, 8))
    elif draw < 0.35:
        batch_groups = rng.choice((2, 3))
    per_group = scope.choose((1, 1, 2, 3, 8), (1, 3, 32, 64, 100, 256))
    features = scope.choose((1, 2, 3, 8, 17), (1, 3, 32, 64, 192, 512)) * groups * batch_groups
    batch = scope.choose((1, 1, 2, 3), (1, 2, 8, 32, 128)) * batch_groups
    room = 2 * scope.program.most_elements
    image = {"b": batch, "f": per_group * groups}
    kernel = {"i": per_group, "o": features}
    result = {"b": batch // batch_groups, "f": features}
    for i in range(spatial):
        image[str(i)], kernel[str(i)], result[str(i)] = sizes[i], window[i].size, outputs[i]
    labels = ["".join(rng.sample(sorted(part), len(part))) for part in (image, kernel, result)]
    if rng.random() < 0.5:
        digits = "".join(str(i) for i in range(spatial))
        labels = [f"b{digits}f", f"{digits}io", f"b{digits}f"]
    shapes = [
        tuple(part[c] for c in label)
        for part, label in zip((image, kernel, result), labels, strict=True)
    ]
    if any(math.prod(s) > room for s in shapes):
        return None
    kind = scope.tame_kind(dtype)
    other = other_type(scope, dtype)
    x, y = scope.like(dtype, shapes[0], kind), scope.like(other, shapes[1], scope.tame_kind(other))
    call = f"convolution({x.name}, {y.name}), "
    if spatial:
        call += window_text(window) + ", "
    call += f"dim_labels={labels[0]}_{labels[1]}->{labels[2]}"
    call += f", feature_group_count={groups}" if groups > 1 else ""
    call += f", batch_group_count={batch_groups}" if batch_groups > 1 else ""
    depth = max(1, math.prod(shapes[1]) // features)
    wide = product_type(scope, dtype, other)
    return scope.add(call, wide, shapes[2], depth * x.most * y.most)


@maker("ragged-dot", weight=0.2)
def ragged_dot(scope: Scope) -> Value:
    """Rows in groups, a matrix for each."""
    rng = scope.rng
    dtype = kinds.dtype(rng, tuple(t for t in kinds.ALL if t != "pred"))
    groups = rng.choice((1, 2, 3, 5))
    sizes = [scope.choose((0, 1, 2, 5, 9), (0, 128, 300, 1000)) for _ in range(groups)]
    m, k, n = (
        sum(sizes) + rng.choice((0, 0, 3)),
        scope.choose((1, 4, 9, 130), (256, 1000)),
        scope.choose((1, 3, 8), (64, 512, 3000)),
    )
    kind = scope.tame_kind(dtype)
    x, y = scope.like(dtype, (m, k), kind), scope.like(dtype, (groups, k, n), kind)
    counts = scope.constant("s32", (groups,), f"{{{', '.join(map(str, sizes))}}}")
    call = (
        f"ragged-dot({x.name}, {y.name}, {counts.name}), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
    )
    return scope.add(call, dtype, (m, n), k * x.most * y.most)


@maker("scaled-dot", weight=0.15)
def scaled_dot(scope: Scope) -> Value:
    """Blocks of the contracted dimension share a scale."""
    rng = scope.rng
    dtype = kinds.dtype(rng, kinds.FLOATS)
    m, n, blocks, width = rng.choice((1, 4, 9)), rng.choice((1, 4, 8)), rng.choice((1, 2, 3)), 4
    k = blocks * width
    x, y = scope.like(dtype, (m, k), "tame"), scope.like(dtype, (k, n), "tame")
    a, b = scope.like("bf16", (m, blocks), "tame"), scope.like("bf16", (blocks, n), "tame")
    call = (
        f"scaled-dot({x.name}, {y.name}, {a.name}, {b.name}), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}"
    )
    return scope.add(call, "f32", (m, n), k * x.most * y.most * a.most * b.most)
