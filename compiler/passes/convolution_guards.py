"""What a folded convolution does about numbers that are not finite.

A band has zeros that no tap put there, and zero times infinity is NaN: one infinity would make a
whole block of positions NaN. So a fold whose result could depend on such zeros becomes

    conditional(a checked number is not finite)
        true     the convolution itself, of the same image
        false    the folded convolution (what an estimate without values takes)

Both branches take the same arrays. The image is already gathered (`convolution_bands.gathered`):
the check reads it where its features fill lanes, and nobody has to store the image once more; the
true branch puts it back in order. What follows on the result alone, elementwise or pooled, goes into
the branches too, so that it is part of the kernels that write the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from compiler.hlo.attributes import WindowDim
from compiler.hlo.cloning import clone
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.convolution_bands import padded
from compiler.passes.convolution_folds import Fold
from compiler.rewrite import make
from compiler.rewrite.dims import inverse
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit

Version = Callable[[HloInstruction, HloInstruction], HloInstruction]
"""Makes a convolution of an image and a kernel, in the computation where these are."""
_REBUILT = frozenset({"broadcast", "constant", "convert"})
"""Operands of a sunk operation that a branch makes again; of constants, those of one element."""
_SUNK = frozenset({"pad", "reduce", "reduce-window", "reshape", "reverse", "slice", "transpose"})
"""What else than elementwise operations may be part of the kernel that writes the result."""
_MOST_SUNK = 32
"""Operations that follow a branch one by one; longer chains are not met (assumed)."""


def needs_finite_image(folds: Sequence[Fold | None]) -> bool:
    """Whether a position of a block multiplies elements that it does not meet."""
    return any(fold is not None and not _is_dense(fold) for fold in folds)


def needs_finite_kernel(window: Sequence[WindowDim], folds: Sequence[Fold | None]) -> bool:
    """Whether taps lie on holes that a fold leaves out."""
    pairs = zip(window, folds, strict=True)
    return any(fold is not None and dim.base_dilation > 1 for dim, fold in pairs)


def _is_dense(fold: Fold) -> bool:
    return all(run is not None and run.size == fold.length for run in fold.runs)


def guarded(
    instr: HloInstruction,
    arrays: tuple[HloInstruction, HloInstruction],
    order: tuple[int, ...],
    checked: Sequence[HloInstruction],
    folded: Version,
    unfolded: Version,
) -> tuple[HloInstruction, HloInstruction]:
    """`instr` made of image and kernel, by `unfolded` unless all numbers of `checked` are finite, as
    integers always are.

    The image is given to the branches with its dimensions in `order`, as it is stored.
    Returns what is replaced (`instr` or the last operation after it that goes into the branches),
    and by what.
    """
    checked = [
        array for array in checked if array.array.dtype.is_float or array.array.dtype.is_complex
    ]
    if not checked:
        return instr, folded(*arrays)
    sunk = _Sunk.after(instr)
    e = Emitter.at(instr)
    image, kernel = arrays
    stored = make.transpose(image, order)
    state = e.tuple((stored, kernel, *sunk.given))
    assert isinstance(state.shape, TupleShape)
    branches = [
        _branch(instr, state.shape, name, _turned(version, inverse(order)), sunk)
        for name, version in (("unfolded", unfolded), ("folded", folded))
    ]
    tests = [_is_finite(e, stored if array is image else array) for array in checked]
    are_finite = tests[0]
    for test in tests[1:]:
        are_finite = e.binary("and", are_finite, test)
    return sunk.last, e.conditional(e.unary("not", are_finite), branches, (state, state))


def _turned(version: Version, order: tuple[int, ...]) -> Version:
    return lambda image, kernel: version(make.transpose(image, order), kernel)


def _is_finite(e: Emitter, array: HloInstruction) -> HloInstruction:
    """Whether all numbers are finite, also when the MXU has rounded them to bf16."""
    sizes = e.unary("abs", array)  # of complex numbers these are real
    dtype = sizes.array.dtype
    largest = e.total(sizes, *range(array.array.rank), kind="maximum")
    return e.compare(largest, e.constant(dtype, _limit(dtype)), "LE")


def _limit(dtype: DType) -> float:
    kinds = dtype.numpy, np.dtype(ml_dtypes.bfloat16)
    return min(float(ml_dtypes.finfo(kind).max) for kind in kinds)  # type: ignore[no-untyped-call]


def _branch(
    instr: HloInstruction, shape: TupleShape, name: str, version: Version, sunk: _Sunk
) -> HloComputation:
    computation = HloComputation(f"{instr.name}_{name}")
    computation.module = instr.home.owner
    b = Emitter(instr, computation)
    state = b.parameter(shape, "state")
    image, kernel, *given = (b.get_tuple_element(state, i) for i in range(len(shape.elements)))
    result = sunk.copy(computation, version(image, kernel), given)
    computation.root = result
    computation.sort()
    return b.build(result)


@dataclass(frozen=True)
class _Sunk:
    """Operations one after another that nobody but the next needs, and what else they take."""

    instr: HloInstruction
    chain: tuple[HloInstruction, ...]
    given: tuple[HloInstruction, ...]

    @classmethod
    def after(cls, instr: HloInstruction) -> _Sunk:
        """The longest chain of such operations after `instr`."""
        chain: list[HloInstruction] = []
        last = instr
        while len(chain) < _MOST_SUNK:
            following = _only_user(last)
            if following is None:
                break
            chain.append(following)
            last = following
        given: dict[HloInstruction, None] = {}
        for place, link in enumerate(chain):
            before = chain[place - 1] if place else instr
            for operand in link.operands:
                if operand is not before:
                    given.update(dict.fromkeys(_sources(operand)))
        return cls(instr, tuple(chain), tuple(given))

    @property
    def last(self) -> HloInstruction:
        """What the branches compute."""
        return self.chain[-1] if self.chain else self.instr

    def copy(
        self,
        computation: HloComputation,
        result: HloInstruction,
        given: Sequence[HloInstruction],
    ) -> HloInstruction:
        """The chain in a branch, after `result`."""
        made = {self.instr: result, **dict(zip(self.given, given, strict=True))}
        for link in self.chain:
            made[link] = _copied(link, computation, made)
        return made[self.last]


def _only_user(instr: HloInstruction) -> HloInstruction | None:
    computation = instr.home
    if computation.root is instr or len(instr.users) != 1:
        return None
    (user,) = instr.users
    is_sunk = user.opcode in _SUNK or OPCODES[user.opcode].has(Trait.ELEMENTWISE)
    is_array = isinstance(user.shape, ArrayShape)
    return user if is_sunk and is_array and not user.control_predecessors() else None


def _sources(operand: HloInstruction) -> list[HloInstruction]:
    """What a branch has to be given for an operand."""
    is_large = operand.opcode == "constant" and operand.array.dims
    if operand.opcode not in _REBUILT or is_large:
        return [operand]
    return [source for o in operand.operands for source in _sources(o)]


def _copied(
    instr: HloInstruction,
    computation: HloComputation,
    made: dict[HloInstruction, HloInstruction],
) -> HloInstruction:
    if instr not in made:
        operands = [_copied(o, computation, made) for o in instr.operands]
        made[instr] = clone(instr, computation, operands)
    return made[instr]


def ungathered(
    image: HloInstruction, window: tuple[WindowDim, ...], dims: Sequence[int], fold: Fold,
    place: int, positions: int,
) -> tuple[HloInstruction, tuple[WindowDim, ...]]:  # fmt: skip
    """A gathered image in order again, and the window that meets it.

    `dims` are the places of the image's spatial dimensions and, last, of the one it was gathered
    along; the spatial dimension number `place` has blocks.
    """
    dim, last = dims[place], dims[-1]
    order = (*(d for d in range(image.array.rank) if d != last), last)
    spread = make.transpose(image, order)
    joined = _in_order(spread, order.index(dim), fold)
    size = joined.array.dims[order.index(dim)]
    windows = list(window)
    windows[place] = _moved(window[place], fold.first, size, positions)
    return make.transpose(joined, inverse(order)), tuple(windows)


def _in_order(image: HloInstruction, dim: int, fold: Fold) -> HloInstruction:
    """``[.., blocks, .., length * features]``: what is new in each block, then the last's rest."""
    features = image.array.dims[-1] // fold.length
    new = _cut(image, len(image.array.dims) - 1, 0, min(fold.step, fold.length) * features)
    edges = [(0, 0, 0)] * image.array.rank
    edges[-1] = (0, (fold.step - min(fold.step, fold.length)) * features, 0)
    parts = [_spread(padded(new, tuple(edges)), dim, fold.step)]
    if fold.length > fold.step:
        block = _cut(image, dim, fold.blocks - 1, fold.blocks)
        rest = _cut(block, image.array.rank - 1, fold.step * features, fold.length * features)
        parts.append(_spread(rest, dim, fold.length - fold.step))
    if len(parts) == 1:
        return parts[0]
    size = sum(part.array.dims[dim] for part in parts)
    sizes = parts[0].array.dims
    shape = image.array.with_dims((*sizes[:dim], size, *sizes[dim + 1 :]))
    return emit(image, "concatenate", shape, parts, {"dimensions": (dim,)})


def _spread(image: HloInstruction, dim: int, count: int) -> HloInstruction:
    """``[.., blocks, .., count * features]`` as ``[.., blocks * count, .., features]``."""
    dims = image.array.dims
    features, rank = dims[-1] // count, len(dims)
    split = make.reshape(image, (*dims[:-1], count, features))
    order = (*range(dim + 1), rank - 1, *range(dim + 1, rank - 1), rank)
    turned = make.transpose(split, order)
    return make.reshape(turned, (*dims[:dim], dims[dim] * count, *dims[dim + 1 : -1], features))


def _cut(image: HloInstruction, dim: int, start: int, limit: int) -> HloInstruction:
    bounds = [(0, n, 1) for n in image.array.dims]
    bounds[dim] = (start, limit, 1)
    return make.slice_(image, tuple(bounds))


def _moved(dim: WindowDim, first: int, size: int, positions: int) -> WindowDim:
    """The window over an image of `size` elements that begins with element `first`."""
    low = dim.pad_low + first * dim.base_dilation
    reach = (positions - 1) * dim.stride + (dim.size - 1) * dim.window_dilation + 1
    high = reach - low - ((size - 1) * dim.base_dilation + 1)
    return WindowDim(
        dim.size, dim.stride, low, high, dim.base_dilation, dim.window_dilation, dim.reversal
    )
