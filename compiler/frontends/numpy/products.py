"""Products that contract dimensions, all as HLO dots: matmul, dot, tensordot, einsum, outer."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.ops import (
    as_tracer,
    broadcast_to,
    common_shape,
    common_type,
    convert,
    expand,
    is_complex,
    reshape,
    transpose,
    wrap,
)
from compiler.frontends.numpy.reductions import fold, normal_axis
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer
from compiler.frontends.numpy.ufuncs import conjugate

Axes = Sequence[int]


def contract(
    x: Tracer, y: Tracer, contracting: tuple[Axes, Axes], batch: tuple[Axes, Axes] = ((), ())
) -> Tracer:
    """One HLO dot in the promoted type; booleans contract with or of ands."""
    dtype = common_type((x, y)).dtype
    for a, b in zip(*contracting, strict=True):
        if x.shape[a] != y.shape[b]:
            raise CompileError(f"{x!r} and {y!r}: cannot contract {x.shape[a]} with {y.shape[b]}")
    if dtype == np.bool_:
        counts = contract(convert(x, np.int32), convert(y, np.int32), contracting, batch)
        return convert(counts, np.bool_)
    left, right = convert(x, dtype), convert(y, dtype)
    return wrap(left, x.owner.builder.dot(left.instr, right.instr, contracting, batch))


def matmul(trace: Trace, a: object, b: object) -> Tracer:
    """np.matmul: the last two axes, leading ones broadcast."""
    x, y = as_tracer(trace, a), as_tracer(trace, b)
    if x.ndim == 0 or y.ndim == 0:
        raise CompileError("np.matmul: operands must have at least one dimension; use *")
    if y.ndim <= 2:
        return contract(x, y, ((x.ndim - 1,), (0,)))
    row = x.ndim == 1
    x = expand(x, 0) if row else x
    lead = common_shape(x.shape[:-2], y.shape[:-2])
    x = broadcast_to(x, (*lead, *x.shape[-2:]))
    y = broadcast_to(y, (*lead, *y.shape[-2:]))
    rank = len(lead)
    axes = tuple(range(rank))
    result = contract(x, y, ((rank + 1,), (rank,)), (axes, axes))
    return reshape(result, (*lead, result.shape[-1])) if row else result


def dot(trace: Trace, a: object, b: object) -> Tracer:
    """np.dot: the last axis of `a` with the second last of `b`."""
    x, y = as_tracer(trace, a), as_tracer(trace, b)
    if x.ndim == 0 or y.ndim == 0:
        return as_tracer(trace, x * y)
    return contract(x, y, ((x.ndim - 1,), (max(0, y.ndim - 2),)))


def _tensordot(trace: Trace, a: object, b: object, axes: Any = 2) -> Tracer:
    x, y = as_tracer(trace, a), as_tracer(trace, b)
    if isinstance(axes, int):
        left, right = range(x.ndim - axes, x.ndim), range(axes)
        return contract(x, y, (tuple(left), tuple(right)))
    pair = [[side] if isinstance(side, int) else list(side) for side in axes]
    left_axes = tuple(normal_axis(axis, x.ndim) for axis in pair[0])
    return contract(x, y, (left_axes, tuple(normal_axis(axis, y.ndim) for axis in pair[1])))


def _inner(trace: Trace, a: object, b: object) -> Tracer:
    x, y = as_tracer(trace, a), as_tracer(trace, b)
    if x.ndim == 0 or y.ndim == 0:
        return dot(trace, x, y)
    return contract(x, y, ((x.ndim - 1,), (y.ndim - 1,)))


def _outer(trace: Trace, a: object, b: object) -> Tracer:
    x, y = as_tracer(trace, a), as_tracer(trace, b)
    return as_tracer(trace, reshape(x, (x.size, 1)) * reshape(y, (1, y.size)))


def _vdot(trace: Trace, a: object, b: object) -> Tracer:
    x, y = as_tracer(trace, a), as_tracer(trace, b)
    left = conjugate(trace, reshape(x, (x.size,))) if is_complex(x) else reshape(x, (x.size,))
    return contract(left, reshape(y, (y.size,)), ((0,), (0,)))


def _einsum(trace: Trace, subscripts: object, *operands: Any, **options: object) -> Tracer:
    """np.einsum: operands are contracted from left to right."""
    if set(options) - {"optimize"}:
        raise UnsupportedError(f"np.einsum: options {sorted(options)}; only optimize=")
    if not isinstance(subscripts, str):
        subscripts, operands = _as_text((subscripts, *operands))
    arrays = [as_tracer(trace, operand) for operand in operands]
    inputs, output = _parse_subscripts(subscripts, [x.ndim for x in arrays])
    terms = [_Term(x, labels).without_repeats() for x, labels in zip(arrays, inputs, strict=True)]
    terms = [term.without_ones(terms) for term in terms]
    while len(terms) > 1:
        later = set(output).union(*(term.labels for term in terms[2:]))
        terms = [_contract_pair(terms[0], terms[1], later), *terms[2:]]
    result = terms[0].reduced_to(set(output))
    return transpose(result.array, [result.labels.index(label) for label in output])


def _as_text(arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The form of operands each followed by the numbers of its axes, as text."""

    def letters(numbers: Sequence[Any]) -> str:
        return "".join("..." if n is Ellipsis else string.ascii_letters[n] for n in numbers)

    pairs = len(arguments) // 2
    text = ",".join(letters(arguments[2 * i + 1]) for i in range(pairs))
    if len(arguments) % 2:
        text += "->" + letters(arguments[-1])
    return text, tuple(arguments[2 * i] for i in range(pairs))


def _parse_subscripts(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; letters of their own stand for an ellipsis."""
    text = subscripts.replace(" ", "")
    if wrong := set(text) - {*string.ascii_letters, *",.->"}:
        raise BadValueError(f"np.einsum({subscripts!r}): {min(wrong)!r} is no letter")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise CompileError(f"np.einsum({subscripts!r}): found {len(ranks)} operands")
    extra = [
        rank - len(labels.replace("...", "")) for labels, rank in zip(inputs, ranks, strict=True)
    ]
    hidden = max((n for n, labels in zip(extra, inputs, strict=True) if "..." in labels), default=0)
    free = [c for c in string.ascii_letters if c not in text][:hidden]
    spread = "".join(free)
    inputs = [
        labels.replace("...", spread[hidden - n :] if n > 0 else "")
        for labels, n in zip(inputs, extra, strict=True)
    ]
    if not arrow:
        letters = "".join(inputs)
        named = sorted(c for c in set(letters) if letters.count(c) == 1 and c not in spread)
        output = "..." + "".join(named)
    output = output.replace("...", spread)
    if not set(output) <= set("".join(inputs)) or len(set(output)) != len(output):
        raise CompileError(
            f"np.einsum({subscripts!r}): the output names an axis that there is not, or twice"
        )
    return inputs, output


class _Term:
    """An operand with a letter for each axis."""

    def __init__(self, array: Tracer, labels: str) -> None:
        if array.ndim != len(labels):
            raise CompileError(f"np.einsum: {array!r} has not the axes {labels!r}")
        self.array = array
        self.labels = labels

    def without_repeats(self) -> _Term:
        """A letter that stands for several axes stands for their diagonal."""
        array, labels = self.array, self.labels
        for label in set(labels):
            while labels.count(label) > 1:
                first = labels.index(label)
                second = labels.index(label, first + 1)
                diagonal: Any = np.diagonal
                array = diagonal(array, 0, first, second)
                labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
        return _Term(array, labels)

    def without_ones(self, terms: Sequence[_Term]) -> _Term:
        """Axes of size 1 that are longer elsewhere go: the other operands have their elements."""
        sizes: dict[str, int] = {}
        for term in terms:
            for label, size in zip(term.labels, term.array.shape, strict=True):
                sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
        kept = [i for i, c in enumerate(self.labels) if self.array.shape[i] in (sizes[c], 0)]
        lost = [c for i, c in enumerate(self.labels) if i not in kept and self.array.shape[i] != 1]
        if lost:
            raise CompileError(f"np.einsum: {self.array!r}, want {sizes[lost[0]]} for {lost[0]!r}")
        labels = "".join(self.labels[i] for i in kept)
        return _Term(reshape(self.array, [self.array.shape[i] for i in kept]), labels)

    def reduced_to(self, wanted: set[str]) -> _Term:
        """Sum over the axes that nobody wants."""
        axes = [i for i, label in enumerate(self.labels) if label not in wanted]
        kept = "".join(label for label in self.labels if label in wanted)
        return _Term(fold("add", self.array, axes), kept) if axes else self


def _contract_pair(a: _Term, b: _Term, later: set[str]) -> _Term:
    a = a.reduced_to(later | set(b.labels))
    b = b.reduced_to(later | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in later]
    summed = [label for label in shared if label not in later]
    result = contract(
        a.array,
        b.array,
        ([a.labels.index(c) for c in summed], [b.labels.index(c) for c in summed]),
        ([a.labels.index(c) for c in batch], [b.labels.index(c) for c in batch]),
    )
    free = [c for c in a.labels if c not in shared] + [c for c in b.labels if c not in shared]
    return _Term(result, "".join(batch + free))


PRODUCT_FUNCTIONS: dict[object, Rule] = {
    np.dot: dot,
    np.einsum: _einsum,
    np.inner: _inner,
    np.outer: _outer,
    np.tensordot: _tensordot,
    np.vdot: _vdot,
}

PRODUCT_UFUNCS: dict[np.ufunc, Rule] = {np.matmul: matmul}
