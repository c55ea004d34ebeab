"""Random modules of one operation, written as text: those whose attributes no planner makes."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.rule_fuzz.generator import Generator, Impossible
from benchmarks.rule_fuzz.planners import identity
from benchmarks.rule_fuzz.values import Array, Dims, edge_values, random_array
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.ir import HloModule
from compiler.hlo.literal_text import print_literal
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape


def shape(dtype: str, dims: Dims) -> str:
    """``f32[2,3]``."""
    return f"{dtype}[{','.join(map(str, dims))}]"


class Text:
    """Inputs and computations of a module, and its one operation."""

    def __init__(self, g: Generator) -> None:
        self.g = g
        self.lines: list[str] = []
        self.before: list[str] = []

    def input(self, dtype: str, dims: Dims, values: Array | None = None, edges: float = 0.2) -> str:
        """The name of a new parameter."""
        if values is None:
            values = random_array(self.g.rng, BY_NAME[dtype], dims, edges)
        number = len(self.g.inputs)
        self.g.inputs.append(np.asarray(values).astype(BY_NAME[dtype].numpy))
        self.lines.append(f"  p{number} = {shape(dtype, dims)} parameter({number})")
        return f"p{number}"

    def constant(self, dtype: str, value: object) -> str:
        """The name of a scalar constant."""
        literal, of = np.asarray(value).astype(BY_NAME[dtype].numpy), ArrayShape(BY_NAME[dtype], ())
        name = f"c{len(self.lines)}"
        self.lines.append(f"  {name} = {dtype}[] constant({print_literal(literal, of)})")
        return name

    def scalar(self, dtype: str, body: str, result: str = "") -> str:
        """The name of a computation of two scalars a and b."""
        name = f"f{len(self.before)}"
        one = shape(dtype, ())
        self.before.append(
            f"{name} {{\n  a = {one} parameter(0)\n  b = {one} parameter(1)\n"
            f"  ROOT r = {shape(result or dtype, ())} {body}\n}}\n"
        )
        return name

    def module(self, result: str) -> HloModule:
        """``ROOT r = {result}`` as a module."""
        body = "\n".join([*self.lines, f"  ROOT r = {result}"])
        return parse_module("\n".join([*self.before, f"ENTRY e {{\n{body}\n}}\n"]))


def _list(values: Dims) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def fft(g: Generator) -> HloModule:
    """Any kind, lengths that are prime, powers of two or one, up to three dimensions."""
    t = Text(g)
    kind = g.choose(("FFT", "IFFT", "RFFT", "IRFFT"))
    lengths = (1, 2, 3, 4, 5, 7, 8, 12, 31, 64, 100, 127, 128, 129, 130, 257)
    rank = g.choose((1, 1, 1, 2, 3))
    sizes = tuple(g.choose(lengths if rank == 1 else (1, 2, 3, 5, 8, 16)) for _ in range(rank))
    batch = g.dims(0, 2, 12)
    half = (*sizes[:-1], sizes[-1] // 2 + 1)
    given = half if kind == "IRFFT" else sizes
    made = half if kind == "RFFT" else sizes
    x = t.input("f32" if kind == "RFFT" else "c64", (*batch, *given), edges=0.0)
    result = shape("f32" if kind == "IRFFT" else "c64", (*batch, *made))
    return t.module(f"{result} fft({x}), fft_type={kind}, fft_length={_list(sizes)}")


SORTED = ("f32", "s32", "u8", "bf16", "s8", "u32", "f16", "s16")


def sort(
    g: Generator, dtypes: tuple[str, ...] = SORTED, least: int = 1, most: int = 400
) -> HloModule:
    """One to three operands; ties; NaN and zeros of both signs where the order is total."""
    t = Text(g)
    dtype = g.choose(dtypes)
    is_total = BY_NAME[dtype].is_float and g.chance(0.5)
    dims = g.dims(1, 3, most) if least == 1 else (g.integer(1, 2), g.integer(least, most))
    dim = g.integer(0, len(dims) - 1) if least == 1 else 1
    others = [g.choose(("f32", "s32", "u8", "bf16", "pred")) for _ in range(g.choose((0, 0, 1, 2)))]
    direction = g.choose(("LT", "GT"))
    names = [t.input(dtype, dims, edges=0.4 if is_total or not BY_NAME[dtype].is_float else 0.0)]
    names += [t.input(other, dims) for other in others]
    parameters = [
        f"  {side}{n} = {shape(kind, ())} parameter({2 * n + s})"
        for n, kind in enumerate((dtype, *others))
        for s, side in enumerate("ab")
    ]
    order = ", type=TOTALORDER" if is_total else ""
    test = f"  ROOT r = pred[] compare(a0, b0), direction={direction}{order}"
    t.before.append("\n".join(["less {", *parameters, test, "}\n"]))
    shapes = [shape(kind, dims) for kind in (dtype, *others)]
    result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    return t.module(
        f"{result} sort({', '.join(names)}), dimensions={{{dim}}}, is_stable=true, to_apply=less"
    )


def topk(g: Generator) -> HloModule:
    """With ties and, among floats, every edge value."""
    t = Text(g)
    dtype = g.choose(("f32", "s32", "bf16", "s8", "u8", "f16", "u32", "s16"))
    dims = (*g.dims(0, 2, 20), g.choose((1, 2, 7, 128, 129, 300)))
    k = g.integer(1, min(dims[-1], 20))
    made = (*dims[:-1], k)
    x = t.input(dtype, dims, edges=0.5)
    result = f"({shape(dtype, made)}, {shape('s32', made)})"
    return t.module(f"{result} topk({x}), k={k}, largest=true")


def first_of_sort(g: Generator) -> HloModule:
    """A sort with places, both ways, of which the first elements are read; ties, NaN where it is total."""
    t = Text(g)
    dtype = g.choose(("f32", "s32", "bf16", "s8", "u8", "f16", "u32", "s16"))
    is_total = BY_NAME[dtype].is_float and g.chance(0.5)
    dims = (*g.dims(0, 2, 20), g.choose((300, 700, 1030)))
    edges = 0.4 if is_total or not BY_NAME[dtype].is_float else 0.0
    x, last, k = t.input(dtype, dims, edges=edges), len(dims) - 1, g.integer(1, 16)
    direction, order = g.choose(("LT", "GT")), ", type=TOTALORDER" if is_total else ""
    parameters = [
        f"  {n} = {kind}[] parameter({i})"
        for i, (n, kind) in enumerate(zip("abcd", (dtype, dtype, "s32", "s32"), strict=True))
    ]
    test = f"  ROOT r = pred[] compare(a, b), direction={direction}{order}"
    t.before.append("\n".join(["before {", *parameters, test, "}\n"]))
    values, places = shape(dtype, dims), shape("s32", dims)
    cut = (*dims[:-1], k)
    bounds = ", ".join(f"[0:{n}]" for n in cut)
    t.lines += [
        f"  n = {places} iota(), iota_dimension={last}",
        f"  s = ({values}, {places}) sort({x}, n), dimensions={{{last}}}, is_stable=true, to_apply=before",
        f"  v = {values} get-tuple-element(s), index=0",
        f"  w = {places} get-tuple-element(s), index=1",
        f"  best = {shape(dtype, cut)} slice(v), slice={{{bounds}}}",
        f"  where = {shape('s32', cut)} slice(w), slice={{{bounds}}}",
    ]
    return t.module(f"({shape(dtype, cut)}, {shape('s32', cut)}) tuple(best, where)")


def random_bits(g: Generator) -> HloModule:
    """Both algorithms, odd counts, counters about to wrap."""
    t = Text(g)
    algorithm = g.choose(("rng_three_fry", "rng_philox", "rng_default"))
    words = 2 if algorithm == "rng_three_fry" or g.chance(0.5) else 3
    dtype = g.choose(("u8", "u16", "u32", "u64"))
    dims = g.dims(0, 3, 300)
    state = t.input("u64", (words,), edges=0.6)
    result = f"(u64[{words}], {shape(dtype, dims)})"
    return t.module(f"{result} rng-bit-generator({state}), algorithm={algorithm}")


def _well_conditioned(g: Generator, dtype: str, batch: Dims, n: int, triangle: str = "") -> Array:
    x = g.rng.standard_normal((*batch, n, n))
    if dtype == "c64":
        x = x + 1j * g.rng.standard_normal((*batch, n, n))
    x = x / max(n, 1)
    if not triangle:
        return x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(n)
    return x + 2 * np.eye(n)


def cholesky(g: Generator) -> HloModule:
    """Real and complex, either triangle, batches."""
    t = Text(g)
    dtype = g.choose(("f32", "f32", "c64", "bf16"))
    n = g.choose((0, 1, 2, 3, 7, 8, 9, 17))
    batch = g.dims(0, 2, 6)
    x = t.input(dtype, (*batch, n, n), _well_conditioned(g, dtype, batch, n))
    lower = g.choose(("true", "false"))
    return t.module(f"{shape(dtype, (*batch, n, n))} cholesky({x}), lower={lower}")


def triangular_solve(g: Generator) -> HloModule:
    """Every option."""
    t = Text(g)
    dtype = g.choose(("f32", "f32", "c64"))
    n, columns = g.choose((1, 2, 3, 7, 8, 9, 17)), g.choose((1, 2, 5, 8))
    batch = g.dims(0, 2, 6)
    is_left = g.chance(0.5)
    a = t.input(dtype, (*batch, n, n), _well_conditioned(g, dtype, batch, n, "any"))
    sizes = (n, columns) if is_left else (columns, n)
    b = t.input(dtype, (*batch, *sizes), edges=0.0)
    options = [("left_side", is_left), ("lower", g.chance(0.5)), ("unit_diagonal", g.chance(0.5))]
    words = ", ".join(f"{name}={str(value).lower()}" for name, value in options)
    turn = g.choose(("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))
    result = shape(dtype, (*batch, *sizes))
    return t.module(f"{result} triangular-solve({a}, {b}), {words}, transpose_a={turn}")


def _window(g: Generator, dims: Dims, *, dilated: bool) -> tuple[str, Dims]:
    """The text of a window over `dims`, and how many places it has."""
    parts: dict[str, list[str]] = {n: [] for n in ("size", "stride", "pad", "lhs", "rhs")}
    counts = []
    for n in dims:
        size, stride = g.choose((1, 2, 2, 3)), g.choose((1, 1, 2, 3))
        low, high = g.integer(0, size - 1), g.integer(0, size - 1)
        base = g.choose((1, 1, 1, 2)) if dilated else 1
        spread = g.choose((1, 1, 1, 2)) if dilated else 1
        reach = (size - 1) * spread + 1
        room = (n - 1) * base + 1 + low + high if n else low + high
        counts.append((room - reach) // stride + 1 if room >= reach else 0)
        for name, value in zip(parts, (size, stride, f"{low}_{high}", base, spread), strict=True):
            parts[name].append(str(value))
    if 0 in counts:
        raise Impossible
    words = [f"{n}={'x'.join(parts[n])}" for n in ("size", "stride", "pad")]
    if dilated:
        words += [f"lhs_dilate={'x'.join(parts['lhs'])}", f"rhs_dilate={'x'.join(parts['rhs'])}"]
    return "{" + " ".join(words) + "}", tuple(counts)


WINDOWED = ("f32", "s32", "s8", "bf16", "u8", "pred", "f8e4m3fn")


def reduce_window(g: Generator, dtypes: tuple[str, ...] = WINDOWED) -> HloModule:
    """Strides, padding, dilations; start values that are no identity."""
    t = Text(g)
    dtype = g.choose(dtypes)
    kinds = ("and", "or") if dtype == "pred" else ("add", "maximum", "minimum", "multiply")
    kind = g.choose(kinds)
    dims = g.dims(1, 3, 300)
    window, counts = _window(g, dims, dilated=g.chance(0.5))
    is_sum = kind in ("add", "multiply")
    x = t.input(dtype, dims, edges=0.0 if is_sum and BY_NAME[dtype].is_float else 0.4)
    start = g.choose(edge_values(BY_NAME[dtype])) if not is_sum else 1
    if g.chance(0.5):
        start = identity(kind, BY_NAME[dtype])
    init = t.constant(dtype, start) if g.chance(0.6) else t.input(dtype, (), np.asarray(start))
    f = t.scalar(dtype, f"{kind}(a, b)")
    result = shape(dtype, counts)
    return t.module(f"{result} reduce-window({x}, {init}), window={window}, to_apply={f}")


def running_total(g: Generator) -> HloModule:
    """All before, or behind, along one dimension of an array of some hundred registers."""
    t = Text(g)
    dtype = g.choose(("f32", "s32", "u32", "bf16", "s8", "u16"))
    is_float = BY_NAME[dtype].is_float
    kind = g.choose(("add", "maximum", "minimum") if is_float else ("add", "maximum", "and", "xor"))
    along, beside = g.integer(200, 600), g.integer(500, 900)
    dims, dim = g.choose((((along, beside), 0), ((beside, along), 1), ((2, along, beside // 2), 1)))
    is_reverse = g.chance(0.5)
    words = {"size": [1] * len(dims), "pad": ["0_0"] * len(dims)}
    words["size"][dim] = dims[dim]
    words["pad"][dim] = f"0_{dims[dim] - 1}" if is_reverse else f"{dims[dim] - 1}_0"
    window = " ".join(f"{name}={'x'.join(map(str, values))}" for name, values in words.items())
    x = t.input(dtype, dims, edges=0.0 if kind == "add" and is_float else 0.1)
    init = t.constant(dtype, identity(kind, BY_NAME[dtype]) if kind != "add" else 0)
    f = t.scalar(dtype, f"{kind}(a, b)")
    result = shape(dtype, dims)
    return t.module(f"{result} reduce-window({x}, {init}), window={{{window}}}, to_apply={f}")


def widened_window(g: Generator) -> HloModule:
    """Narrow numbers, summed in a wider type."""
    t = Text(g)
    dtype, wide = g.choose((("bf16", "f32"), ("f16", "f32"), ("s8", "s32")))
    dims = g.dims(1, 3, 300)
    window, counts = _window(g, dims, dilated=g.chance(0.5))
    x = t.input(dtype, dims, edges=0.0)
    init = t.constant(g.choose((dtype, wide)), g.integer(0, 2))
    f = t.scalar(wide, f"{g.choose(('add', 'maximum'))}(a, b)")
    return t.module(
        f"{shape(wide, counts)} reduce-window({x}, {init}), window={window}, to_apply={f}"
    )


def select_and_scatter(g: Generator) -> HloModule:
    """Pooling's gradient, with ties and overlapping windows."""
    t = Text(g)
    dtype = g.choose(("f32", "s32", "bf16"))
    dims = g.dims(1, 3, 200)
    window, counts = _window(g, dims, dilated=False)
    x = t.input(dtype, dims, edges=0.0)
    source = t.input(dtype, counts, edges=0.0)
    init = t.input(dtype, (), np.asarray(g.integer(0, 2)))
    select = t.scalar(dtype, f"compare(a, b), direction={g.choose(('GE', 'LE'))}", "pred")
    scatter = t.scalar(dtype, "add(a, b)")
    return t.module(
        f"{shape(dtype, dims)} select-and-scatter({x}, {source}, {init}), window={window}, "
        f"select={select}, scatter={scatter}"
    )


def convolution(
    g: Generator, batch_groups: bool = False, dtypes: tuple[str, ...] = ("f32", "f32", "bf16")
) -> HloModule:
    """One or two spatial dimensions, every window, groups of features or of the batch."""
    t = Text(g)
    dtype = g.choose(dtypes)
    spatial = g.integer(1, 2)
    groups = g.choose((1, 1, 2, 3))
    features, batch, out = g.choose((1, 2, 3)), g.choose((1, 2, 8)), groups * g.choose((1, 2, 3))
    sizes = tuple(g.choose((1, 3, 7, 8, 12)) for _ in range(spatial))
    window, counts = _window(g, sizes, dilated=g.chance(0.5))
    taps = tuple(int(n) for n in window[len("{size=") :].split(" ")[0].split("x"))
    places = "01"[:spatial]
    rows, depth = (batch * groups, features) if batch_groups else (batch, features * groups)
    image = t.input(dtype, (rows, *sizes, depth), edges=0.0)
    kernel = t.input(dtype, (*taps, features, out), edges=0.0)
    word = "batch_group_count" if batch_groups else "feature_group_count"
    labels = f"b{places}f_{places}io->b{places}f"
    return t.module(
        f"{shape(dtype, (batch, *counts, out))} convolution({image}, {kernel}), window={window}, "
        f"dim_labels={labels}, {word}={groups}, operand_precision={{highest,highest}}"
    )


def batch_groups(g: Generator) -> HloModule:
    """A convolution whose batch is cut into groups, or its features for the gradient of a kernel."""
    return convolution(g, batch_groups=g.chance(0.6))


def batch_norm(g: Generator, kind: str) -> HloModule:
    """Any feature dimension."""
    t = Text(g)
    dims = tuple(max(n, 1) for n in g.dims(1, 4, 60))
    feature = g.integer(0, len(dims) - 1)
    one = (dims[feature],)
    x = t.input("f32", dims, edges=0.0)
    count = {"training": 2, "inference": 4, "grad": 3}[kind]
    vectors = [t.input("f32", one, np.abs(g.rng.standard_normal(one)) + 0.5) for _ in range(count)]
    names = [x, *vectors]
    if kind == "grad":
        names.append(t.input("f32", dims, edges=0.0))
    made = shape("f32", dims)
    result = made if kind == "inference" else f"({made}, {', '.join([shape('f32', one)] * 2)})"
    attrs = f"epsilon=0.01, feature_index={feature}"
    return t.module(f"{result} batch-norm-{kind}({', '.join(names)}), {attrs}")


def bit_cast(g: Generator) -> HloModule:
    """Between types of one width, and to more or fewer elements."""
    t = Text(g)
    of_width = {8: ("s8", "u8", "f8e4m3fn"), 16: ("s16", "bf16", "f16"), 32: ("s32", "f32", "u32")}
    source, target = g.choose(sorted(of_width)), g.choose(sorted(of_width))
    dims = g.dims(0, 3, 300)
    factor = max(source, target) // min(source, target)
    given = (*dims, factor) if target > source else dims
    made = (*dims, factor) if source > target else dims
    integers = {8: "u8", 16: "u16", 32: "u32"}
    x = t.input(integers[source], given, edges=0.3)
    dtype = g.choose(of_width[target])
    is_float = BY_NAME[dtype].is_float
    result = shape(integers[target] if is_float else dtype, made)  # bits of a NaN are the host's
    return t.module(f"{result} bitcast-convert({x})")


def mapped(g: Generator) -> HloModule:
    """A computation of two scalars on whole arrays."""
    t = Text(g)
    dtype = g.choose(("f32", "s32", "u8"))
    dims = g.dims(0, 3, 300)
    names = [t.input(dtype, dims, edges=0.4) for _ in "ab"]
    f = t.scalar(dtype, f"{g.choose(('add', 'maximum', 'subtract'))}(a, b)")
    order = _list(tuple(range(len(dims))))
    return t.module(
        f"{shape(dtype, dims)} map({', '.join(names)}), dimensions={order}, to_apply={f}"
    )


def real_part(g: Generator, opcode: str) -> HloModule:
    """The parts of what is no complex number."""
    t = Text(g)
    dims = g.dims(0, 3, 300)
    dtype = g.choose(("f32", "bf16", "f16"))
    return t.module(f"{shape(dtype, dims)} {opcode}({t.input(dtype, dims, edges=0.4)})")


def stochastic_convert(g: Generator) -> HloModule:
    """To narrower types, with random bits of every width."""
    t = Text(g)
    dims = g.dims(0, 3, 300)
    x = t.input("f32", dims, edges=0.0)
    bits = t.input("u32", dims, edges=0.4)
    return t.module(
        f"{shape(g.choose(('bf16', 'f16', 's8', 's32')), dims)} stochastic-convert({x}, {bits})"
    )


def two_reduces(g: Generator) -> HloModule:
    """Several reductions in one instruction that have nothing to do with each other."""
    t = Text(g)
    dims = tuple(max(n, 1) for n in g.dims(1, 3, 300))
    over = g.integer(0, len(dims) - 1)
    kept = (*dims[:over], *dims[over + 1 :])
    names = [t.input(k, dims, edges=0.3) for k in ("s32", "f32")]
    names += [t.input("s32", (), np.asarray(2)), t.input("f32", (), np.asarray(-1.5))]
    t.before.append(
        "both {\n  a = s32[] parameter(0)\n  b = f32[] parameter(1)\n  c = s32[] parameter(2)\n"
        "  d = f32[] parameter(3)\n  s = s32[] add(a, c)\n  m = f32[] maximum(b, d)\n"
        "  ROOT t = (s32[], f32[]) tuple(s, m)\n}\n"
    )
    result = f"({shape('s32', kept)}, {shape('f32', kept)})"
    return t.module(f"{result} reduce({', '.join(names)}), dimensions={{{over}}}, to_apply=both")


def mixed_dot(g: Generator) -> HloModule:
    """Operands of different types."""
    t = Text(g)
    m, k, n = (g.choose((1, 2, 7, 8, 130)) for _ in range(3))
    left, right, made = g.choose(
        (
            ("s8", "f32", "f32"),
            ("f32", "u16", "f32"),
            ("s32", "bf16", "f32"),
            ("pred", "f32", "f32"),
        )
    )
    names = [t.input(left, (m, k), edges=0.0), t.input(right, (k, n), edges=0.0)]
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return t.module(f"{shape(made, (m, n))} dot({', '.join(names)}), {dims}")


def large_dot(g: Generator, dtype: str, precision: str = "") -> HloModule:
    """``[m,k] x [k,n]`` of awkward sizes."""
    t = Text(g)
    m, n = (g.choose((1, 2, 7, 8, 40, 129)) for _ in range(2))
    k = g.choose((1, 2, 7, 16, 32, 33, 128, 300))
    if math.prod((m, n, k)) > 200_000:
        raise Impossible
    is_float = BY_NAME[dtype].is_float
    names = [t.input(dtype, d, edges=0.0 if is_float else 0.4) for d in ((m, k), (k, n))]
    made = dtype if is_float else g.choose((dtype, "s32"))
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}" + precision
    return t.module(f"{shape(made, (m, n))} dot({', '.join(names)}), {dims}")


def dot_of_parts(g: Generator, dtype: str) -> HloModule:
    """A product with a right side of several free dimensions, perhaps around those that are contracted: the
    last one fills most of its tiles of lanes, or few of them, or all."""
    t = Text(g)
    batch, parts = (
        tuple(g.choose((1, 2, 3)) for _ in range(g.choose((0, 1, 2)))) for _ in range(2)
    )
    rows, summed = (tuple(g.choose((1, 2, 5)) for _ in range(g.choose((1, 2)))) for _ in range(2))
    lanes = (g.choose((40, 100, 128, 250)),)
    left = t.input(dtype, batch + rows + summed, edges=0.0)
    right = t.input(dtype, batch + parts + summed + lanes, edges=0.0)
    first, places = len(batch), range(len(summed))
    dims = {
        "lhs_batch_dims": range(first),
        "rhs_batch_dims": range(first),
        "lhs_contracting_dims": [first + len(rows) + i for i in places],
        "rhs_contracting_dims": [first + len(parts) + i for i in places],
    }
    listed = ", ".join(f"{name}={{{','.join(map(str, d))}}}" for name, d in dims.items())
    made = batch + rows + parts + lanes
    dot = f"{shape(dtype, made)} dot({left}, {right}), {listed}"
    if g.chance(0.5):
        return t.module(dot)
    order = g.permutation(len(made))
    t.lines.append(f"%dot = {dot}")
    turned = shape(dtype, tuple(made[d] for d in order))
    return t.module(f"{turned} transpose(%dot), dimensions={{{','.join(map(str, order))}}}")
