"""Random scatters and gathers: any rank, dimension numbers, types, and indices that lie outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tests.support.run_hlo import Array
from tpu_sim.isa.cached_property import cached_property

_NUMPY = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "s32": np.dtype(np.int32),
    "s8": np.dtype(np.int8),
    "u16": np.dtype(np.uint16),
    "pred": np.dtype(np.bool_),
}
_COMBINERS = {
    "add": "ROOT %r = {t}[] add(%p, %q)",
    "maximum": "ROOT %r = {t}[] maximum(%p, %q)",
    "second": "ROOT %r = {t}[] copy(%q)",
    "mixed": "%n = {t}[] maximum(%p, %q)\n  ROOT %r = {t}[] subtract(%n, %p)",
}


@dataclass(frozen=True)
class Case:
    """HLO text, and what makes its inputs."""

    text: str
    make: Callable[[], tuple[Array, ...]]

    @cached_property
    def inputs(self) -> tuple[Array, ...]:
        """Values for the parameters."""
        return self.make()


def braces(values: tuple[int, ...]) -> str:
    """``{1,2}``."""
    return "{" + ",".join(map(str, values)) + "}"


def shaped(dtype: str, dims: tuple[int, ...]) -> str:
    """``f32[2,3]``."""
    return f"{dtype}[{','.join(map(str, dims))}]"


class Numbers:
    """Random dimension numbers that a gather and a scatter have in common.

    `window`: sizes per operand dimension of what is read or combined; `gone`: the operand
    dimensions of size 1 that windows have not; `batches`: operand dimensions that go with one of
    the indices. `is_flat`: indices and slices are numbered by one first dimension, the form that
    kernels take.
    """

    def __init__(
        self, source: np.random.Generator, dims: tuple[int, ...], most: int, *, is_flat: bool
    ) -> None:
        self.source = source
        rank = len(dims)
        batched = [d for d in range(rank) if source.random() < 0.15 and dims[d] < 10]
        if is_flat:
            batched = []
        self.batches = tuple(batched[:2])
        self.window = tuple(
            1 if d in self.batches or source.random() < 0.4 else int(source.integers(1, n + 1))
            for d, n in enumerate(dims)
        )
        ones = [d for d in range(rank) if self.window[d] == 1 and d not in self.batches]
        self.gone = tuple(d for d in ones if source.random() < 0.8)
        free = [d for d in range(rank) if d not in self.batches]
        indexed = [d for d in free if source.random() < 0.7 or d in self.gone]
        source.shuffle(indexed)
        self.index_map = tuple(indexed)
        counts = [int(source.integers(1, most + 1)) for _ in range(source.integers(0, 3))]
        if is_flat:
            counts = [int(source.integers(1, most * most + 1))]
        self.places = []  # of the batch dimensions among the counts
        for d in self.batches:
            place = int(source.integers(0, len(counts) + 1))
            self.places = [p + (p >= place) for p in self.places]
            counts.insert(place, dims[d])
            self.places.append(place)
        self.counts = tuple(counts)
        components = len(self.index_map)
        self.vector_dim = 0 if is_flat else int(source.integers(0, len(counts) + 1))
        if components == 1 and (is_flat or source.random() < 0.5):
            self.vector_dim = len(counts)
            self.index_dims = self.counts
        else:
            index = list(counts)
            index.insert(self.vector_dim, components)
            self.index_dims = tuple(index)
        self.indices_batch = tuple(
            p + (p >= self.vector_dim and len(self.index_dims) > len(counts)) for p in self.places
        )
        kept = [d for d in range(rank) if d not in self.batches and d not in self.gone]
        self.window_dims_sizes = tuple(self.window[d] for d in kept)
        total = len(counts) + len(kept)
        self.offset_dims = tuple(sorted(source.permutation(total)[: len(kept)].tolist()))
        if is_flat:
            self.offset_dims = tuple(range(1, total))
        result = iter(self.counts)
        windows = iter(self.window_dims_sizes)
        self.result = tuple(
            next(windows) if d in self.offset_dims else next(result) for d in range(total)
        )

    def indices(self, dims: tuple[int, ...]) -> Array:
        """Mostly inside, some outside."""
        high = max([1, *(dims[d] - self.window[d] + 2 for d in self.index_map)])
        size = math.prod(self.index_dims)
        values = self.source.integers(-1, high, size)
        if self.index_map and self.index_dims:
            limits = [dims[d] - self.window[d] + 2 for d in self.index_map]
            grid = np.ones(self.index_dims, np.int64)
            if len(self.index_dims) > len(self.counts):
                shape = [1] * len(self.index_dims)
                shape[self.vector_dim] = len(limits)
                grid = grid * np.array(limits).reshape(shape)
            else:
                grid = grid * limits[0]
            values = np.where(values < 0, -1, values % grid.reshape(-1))
        return values.reshape(self.index_dims).astype(np.int32)


def data(source: np.random.Generator, dtype: str, dims: tuple[int, ...]) -> Array:
    """Small whole numbers, so that sums are exact in any order."""
    low = 0 if dtype in ("u16", "pred") else -3
    high = 2 if dtype == "pred" else 4
    return source.integers(low, high, dims).astype(_NUMPY[dtype])


def random_dims(source: np.random.Generator, most: int) -> tuple[int, ...]:
    """Dimensions of an operand of up to `most` elements."""
    rank = int(source.integers(1, 6))
    dims: list[int] = []
    for _ in range(rank):
        left = max(1, most // math.prod(dims or [1]))
        sizes = [3, 9, 40, 300, 3000] if most < 1 << 20 else [3, 40, 300, 3000, 100_000, most]
        top = min(left, int(source.choice(sizes)))
        dims.append(int(source.integers(1, top + 1)))
    source.shuffle(dims)
    return tuple(dims)


def random_scatter(
    seed: int,
    elements: int = 20000,
    most: int = 40,
    *,
    is_flat: bool = False,
    has_order: bool = True,
) -> Case:
    """A scatter of a random kind; not `has_order`: the order of the updates does not matter."""
    source = np.random.default_rng(seed)
    while True:
        dims = random_dims(source, elements)
        numbers = Numbers(source, dims, most, is_flat=is_flat)
        if 0 < math.prod(numbers.result) <= elements and 0 not in numbers.index_dims:
            break
    dtype = str(source.choice(list(_NUMPY)))
    combiners = ["maximum"] if dtype == "pred" else ["add", "maximum"]
    if has_order:
        combiners = ["second", "maximum"] if dtype == "pred" else list(_COMBINERS)
    combiner = str(source.choice(combiners))
    operand, index = shaped(dtype, dims), shaped("s32", numbers.index_dims)
    updates = shaped(dtype, numbers.result)
    body = _COMBINERS[combiner].format(t=dtype)
    text = f"""HloModule m
%combine (p: {dtype}[], q: {dtype}[]) -> {dtype}[] {{
  %p = {dtype}[] parameter(0)
  %q = {dtype}[] parameter(1)
  {body}
}}
ENTRY %e (a: {operand}, i: {index}, u: {updates}) -> {operand} {{
  %a = {operand} parameter(0)
  %i = {index} parameter(1)
  %u = {updates} parameter(2)
  ROOT %s = {operand} scatter(%a, %i, %u), update_window_dims={braces(numbers.offset_dims)}, \
inserted_window_dims={braces(numbers.gone)}, \
scatter_dims_to_operand_dims={braces(numbers.index_map)}, \
input_batching_dims={braces(numbers.batches)}, \
scatter_indices_batching_dims={braces(numbers.indices_batch)}, \
index_vector_dim={numbers.vector_dim}, to_apply=%combine
}}
"""
    return Case(
        text,
        lambda: (
            data(source, dtype, dims),
            numbers.indices(dims),
            data(source, dtype, numbers.result),
        ),
    )


def random_gather(
    seed: int, elements: int = 20000, most: int = 40, *, is_flat: bool = False
) -> Case:
    """A gather of a random kind."""
    source = np.random.default_rng(seed)
    while True:
        dims = random_dims(source, elements)
        numbers = Numbers(source, dims, most, is_flat=is_flat)
        if 0 < math.prod(numbers.result) <= elements and 0 not in numbers.index_dims:
            break
    dtype = str(source.choice(list(_NUMPY)))
    operand, index = shaped(dtype, dims), shaped("s32", numbers.index_dims)
    result = shaped(dtype, numbers.result)
    text = f"""HloModule m
ENTRY %e (a: {operand}, i: {index}) -> {result} {{
  %a = {operand} parameter(0)
  %i = {index} parameter(1)
  ROOT %g = {result} gather(%a, %i), offset_dims={braces(numbers.offset_dims)}, \
collapsed_slice_dims={braces(numbers.gone)}, start_index_map={braces(numbers.index_map)}, \
operand_batching_dims={braces(numbers.batches)}, \
start_indices_batching_dims={braces(numbers.indices_batch)}, \
index_vector_dim={numbers.vector_dim}, slice_sizes={braces(numbers.window)}
}}
"""
    return Case(text, lambda: (data(source, dtype, dims), numbers.indices(dims)))
