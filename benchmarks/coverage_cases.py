"""For each opcode the smallest module of one element type: what `benchmarks.coverage` runs.

`case(opcode, dtype, dims)` is None where XLA's shape inference admits no such operand. ``T`` in a
text stands for the type, ``A`` for an array of it, ``Z`` for its zero, ``M`` and ``N`` for its
dimensions (see `_words` and `_sizes` for the rest). The cases of a few opcodes have fixed dimensions.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY, OPCODES, Op
from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_inference import infer_shape

DIMS = "M,N"
_ANY, _NUMBER, _REAL, _FLOAT = "PSUFC", "SUFC", "PSUF", "F"
_ORDERS = {
    "pred": "UNSIGNED", "unsigned": "UNSIGNED", "signed": "SIGNED", "float": "TOTALORDER",
    "complex": "FLOAT",
}  # fmt: skip
_EXAMPLES = {"P": "pred", "S": "s32", "U": "u32", "F": "f32", "C": "c64"}
_LETTERS = {"pred": "P", "signed": "S", "unsigned": "U", "float": "F", "complex": "C"}


@dataclass(frozen=True)
class Case:
    """A module's text; `inputs` says of which kind its arguments are (see `coverage`)."""

    text: str
    inputs: str = "plain"


@dataclass(frozen=True)
class _Row:
    """The entry's lines for the types in `kinds` (letters of P S U F C) or named in `only`."""

    kinds: str
    lines: str
    computations: str = ""
    inputs: str = "plain"
    only: tuple[str, ...] = ()


_ADD = "add_T { x = T[] parameter(0) y = T[] parameter(1) ROOT r = T[] add(x, y) }\n"
_TWICE = f"twice {{ x = T[{DIMS}] parameter(0) ROOT r = T[{DIMS}] add(x, x) }}\n"
_SAME = f"same {{ x = T[{DIMS}] parameter(0) ROOT r = T[{DIMS}] copy(x) }}\n"
_ORDER = "order { x = T[] parameter(0) y = T[] parameter(1) ROOT r = pred[] compare(x, y), "
_LESS = _ORDER + "direction=LT, type=ORDER }\n"
_GREATER = _ORDER + "direction=GE }\n"
_LOOP = (
    "test { s = (s32[], A) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] "
    "constant(3) ROOT r = pred[] compare(i, n), direction=LT }\n"
    "body { s = (s32[], A) parameter(0) i = s32[] get-tuple-element(s), index=0 one = s32[] "
    "constant(1) j = s32[] add(i, one) x = A get-tuple-element(s), index=1 y = A add(x, x) "
    "ROOT r = (s32[], A) tuple(j, y) }\n"
)
_P = "p = A parameter(0) "
_PQ = _P + "q = A parameter(1) "
_INDEX = "i = s32[] parameter(1) j = s32[] constant(2) "
_ROWS_AT = "at = s32[3,1] constant({{0},{4},{2}}) "
_ALONE = "replica_groups={{0}}"
_TOKEN = "t = token[] after-all() "
_NORM = "p = T[3,M,N] parameter(0) a = T[N] parameter(1) b = T[N] parameter(2) "
_NORM_5 = _NORM + "c = T[N] parameter(3) "
_NORM_ATTRS = "epsilon=0.01, feature_index=2"
_WHERE = ", update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}"
_ASYNC = "s = ((A), A, s32[]) async-start(p), calls=same u = ((A), A, s32[]) async-update(s)"


def _own_kinds(op: Op) -> str:
    """Letters of the kinds of types that the opcode's shape rule takes and gives, all the same."""
    found = ""
    for letter, dtype in _EXAMPLES.items():
        array = ArrayShape(BY_NAME[dtype], (5, 7))
        try:
            found += letter if infer_shape(op.name, [array] * op.arity) == array else ""
        except CompileError:
            continue
    return found


def _elementwise() -> dict[str, _Row]:
    """What a shape rule says of an opcode without attributes is its row; others are written out."""
    rows = {}
    for name in sorted(ELEMENTWISE_UNARY | ELEMENTWISE_BINARY):
        op, operands = OPCODES[name], "p" if name in ELEMENTWISE_UNARY else "p, q"
        if kinds := "" if op.attrs else _own_kinds(op):
            rows[name] = _Row(
                kinds, f"{_PQ if op.arity == 2 else _P} ROOT r = A {name}({operands})"
            )
    return rows | {
        "abs": _Row("SFC", f"{_P} ROOT r = R abs(p)"),
        "clamp": _Row(_REAL, f"{_PQ} l = A parameter(2) ROOT r = A clamp(l, p, q)"),
        "compare": _Row(_ANY, f"{_PQ} ROOT r = pred[{DIMS}] compare(p, q), direction=DIR"),
        "complex": _Row("", f"{_PQ} ROOT r = c64[{DIMS}] complex(p, q)", only=("f32",)),
        "convert": _Row(
            _ANY,
            f"{_P} n = s32[{DIMS}] parameter(1) a = W convert(p) b = A convert(n) "
            f"ROOT r = (W, A) tuple(a, b)",
        ),
        "imag": _Row("FC", f"{_P} ROOT r = R imag(p)"),
        "is-finite": _Row(_FLOAT, f"{_P} ROOT r = pred[{DIMS}] is-finite(p)"),
        **{op: _Row(_REAL, f"{_PQ} ROOT r = A {op}(p, q)") for op in ("maximum", "minimum")},
        "multiply-add": _Row(
            "", f"{_PQ} c = A parameter(2) ROOT r = A multiply-add(p, q, c)", only=("f32",)
        ),
        "network-sort": _Row(
            "",
            "p = s32[1,128,3] parameter(0) ROOT r = s32[1,128,3] network-sort(p), num_keys=1, "
            "results={0}",
            only=("s32",),
        ),
        "pair-fft": _Row(
            "",
            "z = f32[] constant(0) o = f32[1,1] constant({{1}}) "
            "t = f32[1,128] pad(o, z), padding=0_0x0_127 "
            "p = f32[3,2,5] parameter(0) s = (f32[3,2,5], f32[3,2,5]) pair-fft(t, p), "
            "fft_type=FFT, fft_length={2}, dimensions={1} "
            "ROOT r = f32[3,2,5] get-tuple-element(s), index=0",
            only=("f32",),
        ),
        "real": _Row("FC", f"{_P} ROOT r = R real(p)"),
        "reduce-precision": _Row(
            _FLOAT, f"{_P} ROOT r = A reduce-precision(p), exponent_bits=4, mantissa_bits=1"
        ),
        "running-total": _Row(
            "",
            "p = f32[1,4,8,128] parameter(0) ROOT r = f32[1,4,8,128] running-total(p), "
            "dimensions={2}, kind=maximum",
            only=("f32",),
        ),
        "select": _Row(_ANY, f"{_PQ} c = pred[{DIMS}] parameter(2) ROOT r = A select(c, p, q)"),
        "sign": _Row("SFC", f"{_P} ROOT r = A sign(p)"),
        "stochastic-convert": _Row(
            _FLOAT, f"{_P} n = B parameter(1) ROOT r = s8[{DIMS}] stochastic-convert(p, n)"
        ),
    }


_ARRAYS = {
    "bitcast": _Row(_ANY, f"{_P} ROOT r = T[MN] bitcast(p)"),
    "bitcast-convert": _Row("SUF", f"{_P} ROOT r = B bitcast-convert(p)"),
    "broadcast": _Row(_ANY, "p = T[N] parameter(0) ROOT r = A broadcast(p), dimensions={1}"),
    "concatenate": _Row(_ANY, f"{_PQ} ROOT r = T[M,NN] concatenate(p, q), dimensions={{1}}"),
    "constant": _Row(_ANY, "ROOT r = T[2,3] constant({{0,1,1},{1,0,1}})"),
    "copy": _Row(_ANY, f"{_P} ROOT r = A copy(p)"),
    "dynamic-reshape": _Row(
        _ANY, f"{_P} i = s32[] parameter(1) ROOT r = T[<=M,N] dynamic-reshape(p, i, i)"
    ),
    "dynamic-slice": _Row(
        _ANY,
        f"{_P} {_INDEX} ROOT r = T[MS,NS] dynamic-slice(p, i, j), dynamic_slice_sizes={{MS,NS}}",
    ),
    "dynamic-update-slice": _Row(
        _ANY, f"{_P} {_INDEX} u = T[MS,NS] parameter(2) ROOT r = A dynamic-update-slice(p, u, i, j)"
    ),
    "gather": _Row(
        _ANY,
        f"{_P} {_ROWS_AT} ROOT r = T[3,N] gather(p, at), offset_dims={{1}}, "
        "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,N}",
    ),
    "get-dimension-size": _Row(
        _ANY, f"{_P} ROOT r = s32[] get-dimension-size(p), dimensions={{0}}"
    ),
    "iota": _Row(_NUMBER, "ROOT r = A iota(), iota_dimension=1"),
    "pad": _Row(_ANY, f"{_P} z = T[] constant(Z) ROOT r = T[MP,NP] pad(p, z), padding=1_2_1x0_-1"),
    "parameter": _Row(_ANY, "ROOT p = A parameter(0)"),
    "reshape": _Row(_ANY, f"{_P} ROOT r = T[N,M] reshape(p)"),
    "reverse": _Row(_ANY, f"{_P} ROOT r = A reverse(p), dimensions={{0,1}}"),
    "set-dimension-size": _Row(
        _ANY,
        f"{_P} i = s32[] parameter(1) ROOT r = T[<=M,N] set-dimension-size(p, i), dimensions={{0}}",
    ),
    "shuffle": _Row(_ANY, f"{_P} ROOT r = A shuffle(p)"),
    "slice": _Row(_ANY, f"{_P} ROOT r = T[MH,NT] slice(p), slice={{[M1:M:2], [NS:N]}}"),
    "transpose": _Row(_ANY, f"{_P} ROOT r = T[N,M] transpose(p), dimensions={{1,0}}"),
}

_COMPUTE = {
    "batch-norm-grad": _Row(
        _FLOAT,
        f"{_NORM_5} g = T[3,M,N] parameter(4) "
        f"ROOT r = (T[3,M,N], T[N], T[N]) batch-norm-grad(p, a, b, c, g), {_NORM_ATTRS}",
        inputs="positive",
    ),
    "batch-norm-inference": _Row(
        _FLOAT,
        f"{_NORM_5} d = T[N] parameter(4) "
        f"ROOT r = T[3,M,N] batch-norm-inference(p, a, b, c, d), {_NORM_ATTRS}",
        inputs="positive",
    ),
    "batch-norm-training": _Row(
        _FLOAT,
        f"{_NORM} ROOT r = (T[3,M,N], T[N], T[N]) batch-norm-training(p, a, b), {_NORM_ATTRS}",
        inputs="positive",
    ),
    "cholesky": _Row(
        "FC", "p = T[4,4] parameter(0) ROOT r = T[4,4] cholesky(p), lower=true", inputs="definite"
    ),
    "convolution": _Row(
        _NUMBER,
        "p = T[1,M,N,2] parameter(0) q = T[3,3,2,4] parameter(1) ROOT r = T[1,M,N,4] "
        "convolution(p, q), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
        inputs="small",
    ),
    "dot": _Row(
        _ANY,
        "p = A parameter(0) q = T[N,3] parameter(1) ROOT r = T[M,3] dot(p, q), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        inputs="small",
    ),
    "fft": _Row(
        "",
        "p = A parameter(0) ROOT r = c64[M,FFT_RESULT",
        inputs="small",
        only=("f32", "c64"),
    ),
    "map": _Row(_ANY, f"{_PQ} ROOT r = A map(p, q), dimensions={{0,1}}, to_apply=add_T", _ADD),
    "ragged-dot": _Row(
        _NUMBER,
        "p = T[6,4] parameter(0) q = T[2,4,3] parameter(1) n = s32[2] constant({2,4}) "
        "ROOT r = T[6,3] ragged-dot(p, q, n), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
        "lhs_ragged_dims={0}, rhs_group_dims={0}",
        inputs="small",
    ),
    "reduce": _Row(
        _ANY,
        f"{_P} z = T[] constant(Z) ROOT r = T[M] reduce(p, z), dimensions={{1}}, to_apply=add_T",
        _ADD,
        "small",
    ),
    "reduce-window": _Row(
        _ANY,
        f"{_P} z = T[] constant(Z) ROOT r = T[M,NW] reduce-window(p, z), window={{size=1x3}}, "
        "to_apply=add_T",
        _ADD,
        "small",
    ),
    "rng": _Row(
        "PSUF",
        "a = T[] constant(0) b = T[] constant(1) ROOT r = A rng(a, b), distribution=rng_uniform",
        inputs="random",
    ),
    "rng-bit-generator": _Row(
        "",
        "p = u64[2] parameter(0) "
        "ROOT r = (u64[2], A) rng-bit-generator(p), algorithm=rng_three_fry",
        only=("u8", "u16", "u32", "u64"),
    ),
    "rng-get-and-update-state": _Row(
        "", "ROOT r = u64[2] rng-get-and-update-state(), delta=1", inputs="random", only=("u64",)
    ),
    "scaled-dot": _Row(
        _FLOAT,
        "p = T[4,8] parameter(0) q = T[8,4] parameter(1) a = bf16[4,2] parameter(2) b = bf16[2,4] "
        "parameter(3) ROOT r = f32[4,4] scaled-dot(p, q, a, b), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}",
        inputs="small",
    ),
    "scan": _Row(
        _ANY,
        f"{_P} z = T[N] parameter(1) ROOT r = (A, T[N]) scan(p, z), dimensions={{0}}, "
        "is_reverse=false, num_carries=1, to_apply=step",
        "step { x = T[N] parameter(0) c = T[N] parameter(1) y = T[N] add(x, c) "
        "ROOT r = (T[N], T[N]) tuple(y, y) }\n",
    ),
    "scatter": _Row(
        _ANY,
        f"{_P} {_ROWS_AT} u = T[3,N] parameter(1) ROOT r = A scatter(p, at, u)"
        f"{_WHERE}, index_vector_dim=1, to_apply=add_T",
        _ADD,
        "small",
    ),
    "select-and-scatter": _Row(
        "SUF",
        "p = A parameter(0) q = T[M,NH] parameter(1) z = T[] constant(0) ROOT r = A "
        "select-and-scatter(p, q, z), window={size=1x2 stride=1x2}, select=order, scatter=add_T",
        _ADD + _GREATER,
        "small",
    ),
    "sort": _Row(_REAL, f"{_P} ROOT r = A sort(p), dimensions={{1}}, to_apply=order", _LESS),
    "topk": _Row(
        "SUF", f"{_P} ROOT r = (T[M,NS], s32[M,NS]) topk(p), k=NS, largest=true", inputs="ordered"
    ),
    "triangular-solve": _Row(
        "FC",
        "p = T[4,4] parameter(0) q = T[4,3] parameter(1) ROOT r = T[4,3] triangular-solve(p, q), "
        "left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE",
        inputs="definite",
    ),
}

_TOKENS = f"{_P} {_TOKEN} ROOT r = A add-dependency(p, t)"
_STARTED = f"{_P} {_ASYNC} ROOT r = A async-done(u)"
_COPIED = f"{_P} s = (A, A, u32[]) copy-start(p) ROOT r = A copy-done(s)"
_SENT = f"{_P} {_TOKEN} s = (A, u32[], token[]) send(p, t), channel_id=1 d = token[] "
_SENT += "send-done(s), channel_id=1 ROOT r = A add-dependency(p, d)"
_RECEIVED = f"{_TOKEN} s = (A, u32[], token[]) recv(t), channel_id=1 d = (A, token[]) "
_RECEIVED += "recv-done(s), channel_id=1 ROOT r = A get-tuple-element(d), index=0"

_CONTROL = {
    "add-dependency": _Row(_ANY, _TOKENS),
    "after-all": _Row(_ANY, _TOKENS),
    **dict.fromkeys(("async-done", "async-start", "async-update"), _Row(_ANY, _STARTED, _SAME)),
    "call": _Row(_ANY, f"{_P} ROOT r = A call(p), to_apply=twice", _TWICE, "small"),
    "conditional": _Row(
        _ANY,
        f"{_P} c = pred[] parameter(1) ROOT r = A conditional(c, p, p), true_computation=twice, "
        "false_computation=same",
        _TWICE + _SAME,
        "small",
    ),
    **dict.fromkeys(("copy-done", "copy-start"), _Row(_ANY, _COPIED)),
    "custom-call": _Row(
        _ANY,
        f'{_P} ROOT r = A custom-call(p), custom_call_target="Sharding", sharding={{replicated}}',
    ),
    "domain": _Row(
        _ANY,
        f'{_P} ROOT r = A domain(p), domain={{kind="sharding", entry={{maximal device=0}}, '
        "exit={maximal device=0}}",
    ),
    "fusion": _Row(_ANY, f"{_P} ROOT r = A fusion(p), kind=kLoop, calls=twice", _TWICE, "small"),
    "get-tuple-element": _Row(
        _ANY, "p = (f32[3], A) parameter(0) ROOT r = A get-tuple-element(p), index=1"
    ),
    "infeed": _Row(
        _ANY, f"{_TOKEN} s = (A, token[]) infeed(t) ROOT r = A get-tuple-element(s), index=0"
    ),
    "opt-barrier": _Row(_ANY, f"{_P} ROOT r = A opt-barrier(p)"),
    "outfeed": _Row(
        _ANY,
        f"{_P} {_TOKEN} o = token[] outfeed(p, t), outfeed_shape=A ROOT r = A add-dependency(p, o)",
    ),
    **dict.fromkeys(("recv", "recv-done"), _Row(_ANY, _RECEIVED)),
    **dict.fromkeys(("send", "send-done"), _Row(_ANY, _SENT)),
    "tuple": _Row(_ANY, f"{_PQ} ROOT r = (A, A) tuple(q, p)"),
    "while": _Row(
        _ANY,
        f"{_P} i = s32[] constant(0) s = (s32[], A) tuple(i, p) "
        "w = (s32[], A) while(s), condition=test, body=body "
        "ROOT r = A get-tuple-element(w), index=1",
        _LOOP,
        "small",
    ),
}

_GATHERED = f"{_P} s = (A, A) all-gather-start(p), {_ALONE}, dimensions={{0}} "
_GATHERED += "ROOT r = A all-gather-done(s)"
_REDUCED = f"{_P} s = A all-reduce-start(p), {_ALONE}, to_apply=add_T ROOT r = A all-reduce-done(s)"
_PERMUTED = f"{_P} s = (A, A, u32[], u32[]) collective-permute-start(p), "
_PERMUTED += "source_target_pairs={{0,0}} ROOT r = A collective-permute-done(s)"

_COLLECTIVES = {
    "all-gather": _Row(_ANY, f"{_P} ROOT r = A all-gather(p), {_ALONE}, dimensions={{0}}"),
    **dict.fromkeys(("all-gather-done", "all-gather-start"), _Row(_ANY, _GATHERED)),
    "all-reduce": _Row(_ANY, f"{_P} ROOT r = A all-reduce(p), {_ALONE}, to_apply=add_T", _ADD),
    **dict.fromkeys(("all-reduce-done", "all-reduce-start"), _Row(_ANY, _REDUCED, _ADD)),
    "all-to-all": _Row(_ANY, f"{_P} ROOT r = A all-to-all(p), {_ALONE}, dimensions={{0}}"),
    "collective-broadcast": _Row(_ANY, f"{_P} ROOT r = A collective-broadcast(p), {_ALONE}"),
    "collective-permute": _Row(
        _ANY, f"{_P} ROOT r = A collective-permute(p), source_target_pairs={{{{0,0}}}}"
    ),
    **dict.fromkeys(("collective-permute-done", "collective-permute-start"), _Row(_ANY, _PERMUTED)),
    "collective-reduce": _Row(
        _ANY, f"{_P} ROOT r = A collective-reduce(p), {_ALONE}, to_apply=add_T", _ADD
    ),
    "partition-id": _Row("", "ROOT r = u32[] partition-id()", only=("u32",)),
    "ragged-all-to-all": _Row(
        _ANY,
        f"{_PQ} z = s32[1] constant({{0}}) n = s32[1] constant({{5}}) "
        f"ROOT r = A ragged-all-to-all(p, q, z, n, z, n), {_ALONE}",
    ),
    "reduce-scatter": _Row(
        _ANY, f"{_P} ROOT r = A reduce-scatter(p), {_ALONE}, dimensions={{0}}, to_apply=add_T", _ADD
    ),
    "replica-id": _Row("", "ROOT r = u32[] replica-id()", only=("u32",)),
}

_NEEDS_ELEMENTS = frozenset({"fft", "gather", "pad"})

_ROWS = {**_elementwise(), **_ARRAYS, **_COMPUTE, **_CONTROL, **_COLLECTIVES}


def case(opcode: str, dtype: str, dims: tuple[int, int] = (5, 7)) -> Case | None:
    """The module of an opcode at an element type, or None where the type does not go with it.

    None, too, for dimensions that the operation does not admit, such as an fft of length 0.
    """
    if opcode not in _ROWS:
        raise LookupError(f"{opcode} has no row in {__name__}")
    row, element = _ROWS[opcode], BY_NAME[dtype]
    if _LETTERS[element.kind] not in row.kinds and dtype not in row.only:
        return None
    if opcode in _NEEDS_ELEMENTS and 0 in dims:
        return None
    words = {**_words(dtype, dims), **_sizes(*dims)}
    text = f"HloModule m\n{row.computations}ENTRY e {{\n  {row.lines}\n}}\n"
    if opcode == "fft":
        kind, half = ("FFT", "N") if element.is_complex else ("RFFT", "NF")
        text = text.replace("FFT_RESULT", f"{half}] fft(p), fft_type={kind}, fft_length={{N}}")
    elif opcode == "constant" and element.kind == "pred":
        text = text.replace("0", "false").replace("1", "true")
    elif opcode == "constant" and element.is_complex:
        text = re.sub(r"(?<=[{,])([01])(?=[,}])", r"(\1,-1)", text)
    elif opcode == "convert" and element.is_complex:
        text = text.replace("a = W convert(p) ", "").replace(
            "(W, A) tuple(a, b)", "(A, A) tuple(p, b)"
        )
    pattern = re.compile(r"\b(?:" + "|".join(words) + r")\b|(?<=_)T\b")
    return Case(pattern.sub(lambda found: words[found[0]], text), row.inputs)


@functools.cache
def types_of(opcode: str, among: tuple[str, ...]) -> tuple[str, ...]:
    """The element types, of these, that an opcode takes."""
    return tuple(dtype for dtype in among if case(opcode, dtype) is not None)


def _sizes(m: int, n: int) -> dict[str, str]:
    """The numbers that follow from the dimensions."""
    sizes = {
        "M": m,
        "N": n,
        "MN": m * n,
        "NN": 2 * n,
        "M1": min(1, m),
        "MS": min(2, m),
        "NS": min(3, n),
        "MP": 2 * m + 2,  # 1_2_1
        "NP": n - 1,
        "MH": m // 2,  # every other row from the second on
        "NT": max(0, n - 3),
        "NF": n // 2 + 1,  # of half a spectrum
        "NH": n // 2,
        "NW": max(0, n - 2),
    }
    return {name: str(size) for name, size in sizes.items()}


def _words(dtype: str, dims: tuple[int, int]) -> dict[str, str]:
    """What the capital letters of a row's text stand for."""
    element = BY_NAME[dtype]
    real = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    text = f"{dims[0]},{dims[1]}"
    zero = {"pred": "false", "complex": "(0,0)"}.get(element.kind, "0")
    return {
        "T": dtype,
        "A": f"{dtype}[{text}]",
        "B": f"u{element.bits}[{text}]",
        "R": f"{real}[{text}]",
        "W": f"f32[{text}]",
        "Z": zero,
        "ORDER": _ORDERS[element.kind],
        "DIR": "EQ" if element.is_complex else "LT",
    }
