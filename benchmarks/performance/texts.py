"""HLO text of the small workloads: both sides compile the same text."""

from __future__ import annotations

SIZE = 4096
_ADD = "add_f32 {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}\n\n"
_MAX = (
    "max_f32 {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n"
    "  ROOT m = f32[] maximum(x, y)\n}\n\n"
)
_MATRIX = f"f32[{SIZE},{SIZE}]{{1,0}}"
_ROW = f"f32[{SIZE}]{{0}}"


def _module(name: str, reducers: str, lines: str) -> str:
    body = "\n".join("  " + line.strip() for line in lines.strip().splitlines())
    return f"HloModule {name}\n\n{reducers}ENTRY main {{\n{body}\n}}\n"


def dot(dtype: str, m: int, k: int, n: int, precision: str = "") -> str:
    """``[m, k] x [k, n]`` in `dtype`; `precision` of both operands, if given."""
    chosen = f", operand_precision={{{precision},{precision}}}" if precision else ""
    return _module(
        f"dot_{dtype}_{m}x{k}x{n}",
        "",
        f"""a = {dtype}[{m},{k}]{{1,0}} parameter(0)
        b = {dtype}[{k},{n}]{{1,0}} parameter(1)
        ROOT d = {dtype}[{m},{n}]{{1,0}} dot(a, b), lhs_contracting_dims={{1}}, \
rhs_contracting_dims={{0}}{chosen}""",
    )


def softmax() -> str:
    """Softmax over the rows of a matrix."""
    return _module(
        "softmax",
        _MAX + _ADD,
        f"""x = {_MATRIX} parameter(0)
        low = f32[] constant(-inf)
        zero = f32[] constant(0)
        m = {_ROW} reduce(x, low), dimensions={{1}}, to_apply=max_f32
        mb = {_MATRIX} broadcast(m), dimensions={{0}}
        c = {_MATRIX} subtract(x, mb)
        e = {_MATRIX} exponential(c)
        s = {_ROW} reduce(e, zero), dimensions={{1}}, to_apply=add_f32
        sb = {_MATRIX} broadcast(s), dimensions={{0}}
        ROOT y = {_MATRIX} divide(e, sb)""",
    )


def layernorm() -> str:
    """Layer normalisation of the rows of a matrix, with scale and bias."""
    return _module(
        "layernorm",
        _ADD,
        f"""x = {_MATRIX} parameter(0)
        scale = {_ROW} parameter(1)
        bias = {_ROW} parameter(2)
        zero = f32[] constant(0)
        share = f32[] constant({1 / SIZE!r})
        small = f32[] constant(1e-05)
        shares = {_ROW} broadcast(share), dimensions={{}}
        smalls = {_ROW} broadcast(small), dimensions={{}}
        sum = {_ROW} reduce(x, zero), dimensions={{1}}, to_apply=add_f32
        mean = {_ROW} multiply(sum, shares)
        means = {_MATRIX} broadcast(mean), dimensions={{0}}
        c = {_MATRIX} subtract(x, means)
        sq = {_MATRIX} multiply(c, c)
        sumsq = {_ROW} reduce(sq, zero), dimensions={{1}}, to_apply=add_f32
        var = {_ROW} multiply(sumsq, shares)
        safe = {_ROW} add(var, smalls)
        inv = {_ROW} rsqrt(safe)
        invs = {_MATRIX} broadcast(inv), dimensions={{0}}
        n = {_MATRIX} multiply(c, invs)
        scales = {_MATRIX} broadcast(scale), dimensions={{1}}
        biases = {_MATRIX} broadcast(bias), dimensions={{1}}
        scaled = {_MATRIX} multiply(n, scales)
        ROOT y = {_MATRIX} add(scaled, biases)""",
    )


def gelu() -> str:
    """The tanh form of GELU."""
    return _module(
        "gelu",
        "",
        f"""x = {_MATRIX} parameter(0)
        cubic = f32[] constant(0.044715)
        outer = f32[] constant(0.7978845608)
        one = f32[] constant(1)
        half = f32[] constant(0.5)
        cubics = {_MATRIX} broadcast(cubic), dimensions={{}}
        outers = {_MATRIX} broadcast(outer), dimensions={{}}
        ones = {_MATRIX} broadcast(one), dimensions={{}}
        halves = {_MATRIX} broadcast(half), dimensions={{}}
        x2 = {_MATRIX} multiply(x, x)
        x3 = {_MATRIX} multiply(x2, x)
        cx3 = {_MATRIX} multiply(x3, cubics)
        sum = {_MATRIX} add(x, cx3)
        inner = {_MATRIX} multiply(sum, outers)
        t = {_MATRIX} tanh(inner)
        t1 = {_MATRIX} add(t, ones)
        hx = {_MATRIX} multiply(x, halves)
        ROOT y = {_MATRIX} multiply(hx, t1)""",
    )


def reduce() -> str:
    """Sums of the rows of a matrix."""
    return _module(
        "reduce",
        _ADD,
        f"""x = {_MATRIX} parameter(0)
        zero = f32[] constant(0)
        ROOT s = {_ROW} reduce(x, zero), dimensions={{1}}, to_apply=add_f32""",
    )


def transpose() -> str:
    """A transposed copy of a matrix."""
    return _module(
        "transpose",
        "",
        f"""x = {_MATRIX} parameter(0)
        ROOT t = {_MATRIX} transpose(x), dimensions={{1,0}}""",
    )


def gather() -> str:
    """Rows of a matrix by index."""
    return _module(
        "gather",
        "",
        f"""x = {_MATRIX} parameter(0)
        rows = s32[{SIZE},1]{{1,0}} parameter(1)
        ROOT g = {_MATRIX} gather(x, rows), offset_dims={{1}}, collapsed_slice_dims={{0}}, \
start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{SIZE}}}""",
    )
