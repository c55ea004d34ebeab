"""The evaluator with every inexact operation a little off, at random: what rounding can do.

A chip may add in another order, use a multiply-add, or be three units off in a sine, and all of
these are right. How much that changes a result depends on what happens after, so the tolerance of
each element is measured, not guessed: the module is evaluated again with noise of the size of the
allowed errors in every operation that may have them (and none in operations that may not, or
whose operands are such that nothing rounds). Elements that the noise moves may be as far off;
where a comparison or a rounding to integers flips, the element says nothing and is left out.
What the noise does not reach must be equal to the bit.

Choices that a machine makes for a whole array (which sign its NaNs have, whether it flushes) are
made for some, none or all elements of an operation in turn: what depends on all of them being the
same would otherwise never be seen. Every second run keeps bf16 values in f32, as fusions may, but
for some arrays, which are rounded as where a fusion ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from benchmarks.fuzz.exactness import (
    MANTISSA,
    PRODUCTS,
    ROUNDED,
    SUMS,
    is_inexact,
    is_whole,
    makes_nan,
    rounds,
    step_of,
)
from benchmarks.fuzz.overflow import growing_terms, shrinking_terms
from benchmarks.fuzz.solvers import is_solver, overflows
from compiler.hlo.dtypes import BF16, from_numpy
from compiler.hlo.evaluator.context import EvaluationOptions
from compiler.hlo.evaluator.interpreter import HANDLERS, Interpreter, _take, flatten
from compiler.hlo.evaluator.plan import EvaluationStep
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import leaves

Array = npt.NDArray[Any]

_NAN = complex(np.nan, np.nan)


class NoisyInterpreter(Interpreter):
    """Evaluates with noise; `scale` times what is allowed. `narrow`: small floats may keep f32;
    `parts`: sums may be made of parts that are rounded to the result's type, one for each device."""

    def __init__(
        self,
        rng: np.random.Generator,
        scale: float = 1.0,
        narrow: bool = False,
        parts: bool = False,
    ) -> None:
        super().__init__(EvaluationOptions("highest", keep_f32_in_fusion=True))
        self.parts = parts
        self.rng = rng
        self.scale = scale
        self.narrow = narrow

    def _execute(self, step: EvaluationStep, values: dict[HloInstruction, Any]) -> Any:
        result = self._perhaps_stored(step.instr, self._noisy(step, values))
        if makes_nan(step.instr) and isinstance(result, np.ndarray):
            return self._other_nan(result)
        return result

    def _execute_rounded(self, step: EvaluationStep, operands: Sequence[Any]) -> Any:
        """A product's result may stay in f32 for what is fused to it; its operands are as they lie."""
        if step.instr.opcode not in PRODUCTS or self.rng.random() < 0.25:
            return super()._execute_rounded(step, operands)
        narrow = [
            np.asarray(value).astype(operand.array.dtype.numpy)
            for value, operand in zip(operands, step.instr.operands, strict=True)
        ]
        return HANDLERS[step.instr.opcode](self, step.instr, narrow)

    def _perhaps_stored(self, instr: HloInstruction, result: Any) -> Any:
        """Rounds to bf16 what was kept in f32, at random: where fusions end is the compiler's choice."""
        if not self.is_wide or self.is_batched or not isinstance(result, np.ndarray):
            return result
        share = 0.5 if instr.opcode in SUMS else 0.2  # most fusions end with a reduction
        if instr.array.dtype is not BF16 or self.rng.random() >= share:
            return result
        return result.astype(BF16.numpy).astype(result.dtype)

    def _some(self, shape: tuple[int, ...]) -> Array:
        """A mask of some elements, of none, or of all."""
        return np.asarray(self.rng.random(shape) < self.rng.choice((0.0, 0.5, 1.0)))

    def _other_nan(self, result: Array) -> Array:
        """Every NaN with another sign, at random."""
        dtype = from_numpy(result.dtype)
        if not dtype.is_float or dtype.bits < 8:
            return result
        with np.errstate(all="ignore"):
            wide = result if dtype.bits >= 16 else result.astype(np.float32)
            here = np.isnan(wide) & self._some(result.shape)
            if not here.any():
                return result
            return np.where(here, np.negative(wide), wide).astype(result.dtype)

    def _noisy(self, step: EvaluationStep, values: dict[HloInstruction, Any]) -> Any:
        instr = step.instr
        if not is_inexact(instr):
            return super()._execute(step, values)
        operands = [values[operand] for operand in instr.operands]
        if instr.opcode in SUMS | PRODUCTS or is_solver(instr):
            return self._summed(step, values, operands)
        if isinstance(operands[0], np.ndarray) and operands[0].dtype.kind == "c":
            moved = {i: self._other_zeros(v) for i, v in zip(instr.operands, operands, strict=True)}
            values = {**values, **moved}
        result = super()._execute(step, values)
        if isinstance(result, tuple):
            return tuple(self._jitter(r, 4.0) for r in result)
        if instr.opcode in ROUNDED or instr.opcode == "convert":
            return self._rounded(instr, operands, result)
        if instr.opcode == "divide":
            return self._divided(operands, result)
        if instr.opcode == "atan2" and result.dtype.kind == "c":
            result = self._across_the_cuts(operands, result)
        if instr.opcode == "power" and result.dtype.kind == "c":
            result = self._endless(operands, result)
        return self._jitter(result, 4.0)

    def _units(self, dtype_name: str, units: float) -> float:
        if MANTISSA[dtype_name] >= 24:
            return units * step_of(dtype_name)
        return step_of(dtype_name)

    def _jitter(self, array: Array, units: float, where: Any = True) -> Array:
        """Noise of some units in the last place, of which denormals have one size; special values stay."""
        dtype = from_numpy(array.dtype)
        if not (dtype.is_float or dtype.is_complex):
            return array
        with np.errstate(all="ignore"):
            size = self.scale * self._units(dtype.name, units)
            noise = self.rng.uniform(-1, 1, array.shape)
            if dtype.is_complex:
                other = self.rng.uniform(-1, 1, array.shape)
                return self._complex_jitter(array, 2 * size * noise, 2 * size * other)
            wide = array.astype(np.float64)
            least = float(ml_dtypes.finfo(array.dtype).smallest_normal)
            moved = wide + np.maximum(np.abs(wide), least) * size * noise
            keep = ~np.isfinite(wide) | (wide == 0) | np.logical_not(where)
            moved = np.where(keep, wide, moved)
            narrow = moved if dtype.bits >= 32 else moved.astype(np.float32)
            return np.where(keep, array, narrow.astype(array.dtype))

    def _other_zeros(self, array: Array) -> Array:
        """Parts that are zero with another sign, at random: on a cut either side is right."""
        result = np.array(array)
        for part in (result.real, result.imag):
            part[(part == 0) & self._some(part.shape)] *= -1
        return result

    def _endless(self, operands: Sequence[Array], result: Array) -> Array:
        """A complex power of infinities is nothing that is defined: NaN or a number may stand for it, and
        for one whose logarithm is infinite in f32: nobody knows in which direction it lies. A large
        angle is known to some 44 bits."""
        free = ~np.logical_and.reduce([np.isfinite(o) for o in operands])
        with np.errstate(all="ignore"):
            x, y = (o.astype(np.complex128) for o in operands)
            size = np.abs(y) * np.abs(np.log(x))
            free |= ~(size < np.finfo(np.float32).max / 4)
            turn = np.exp(self.rng.uniform(-1, 1, size.shape) * self.scale * 2.0**-44 * size * 1j)
            here = np.isfinite(result) & (size > 1) & np.isfinite(turn)
            result = np.where(here, result * turn, result).astype(result.dtype)
        other = np.where(np.isnan(result), 0, _NAN)
        return np.where(free & self._some(result.shape), other, result).astype(result.dtype)

    def _across_the_cuts(self, operands: Sequence[Array], result: Array) -> Array:
        """A complex atan2 of elements near a cut, on either side of it.

        It is the logarithm of a quotient by a root. The cut of the logarithm is where its result
        is pi, that of the root where what is under it is a negative number; rounding decides on
        which side an element lies. Nor does the evaluator know an angle near 0 better than to
        some 2^-50.
        """
        y, x = (o.astype(np.complex128) for o in operands)
        under = y * y + x * x
        near = (under.real <= 0) & (np.abs(under.imag) <= 2.0**-20 * np.abs(under))
        turned = result.astype(np.complex128)
        near &= self._some(result.shape)
        turned.real[near] -= np.copysign(np.pi, turned.real[near])
        is_pi = np.abs(turned.real) >= np.pi * (1 - 2.0**-20)
        turned.real[is_pi & self._some(result.shape)] *= -1
        turned.real += self.rng.uniform(-1, 1, result.shape) * 2.0**-50
        turned.imag += self.rng.uniform(-1, 1, result.shape) * 2.0**-50
        return turned.astype(result.dtype)

    def _complex_jitter(self, array: Array, noise: Array, other: Array) -> Array:
        """Relative to the modulus; beside an infinite part the finite one has noise of its own."""
        wide = array.astype(np.complex128)
        modulus = np.abs(wide)
        is_finite = np.isfinite(modulus)
        result = wide.copy()
        result.real += np.where(is_finite, modulus, np.abs(wide.real)) * noise
        result.imag += np.where(is_finite, modulus, np.abs(wide.imag)) * other
        result.real = np.where(np.isfinite(wide.real), result.real, wide.real)
        result.imag = np.where(np.isfinite(wide.imag), result.imag, wide.imag)
        return result.astype(array.dtype)

    def _rounded(self, instr: HloInstruction, operands: Sequence[Array], result: Array) -> Array:
        """Only where the operation rounds, and for narrow floats only where they may stay wide."""
        dtype = from_numpy(result.dtype)
        if dtype.is_complex:
            return self._jitter(result, 2.0)
        if dtype.name not in ("f32", "bf16", "f64") and not self.narrow:
            return result
        wide = [np.asarray(o).astype(np.float64) for o in operands]
        with np.errstate(all="ignore"):
            exact = {
                "add": lambda a, b: a + b,
                "subtract": lambda a, b: a - b,
                "multiply": lambda a, b: a * b,
                "convert": lambda a: a,
            }[instr.opcode](*wide)
            rounds = np.asarray(exact != result.astype(np.float64))
        return self._jitter(result, 1.0, rounds)

    def _divided(self, operands: Sequence[Array], result: Array) -> Array:
        """A divisor close to 0 may count as 0."""
        moved = self._jitter(result, 4.0)
        divisor = np.asarray(operands[1])
        if divisor.dtype != np.float32:
            return moved
        with np.errstate(all="ignore"):
            tiny = (np.abs(divisor) < 2.0**-126) & (divisor != 0)
            as_zero = np.asarray(operands[0]) / np.copysign(np.float32(0), divisor)
            return np.where(tiny & (self.rng.random(moved.shape) < 0.5), as_zero, moved)

    # Sums.

    def _summed(
        self, step: EvaluationStep, values: dict[HloInstruction, Any], operands: Sequence[Array]
    ) -> Any:
        instr = step.instr
        if instr.opcode in SUMS and not self._body_rounds(instr):
            moved = {**values, **self._with_nans_reordered(instr, operands)}
            result = self._with_start_last(instr, operands, super()._execute(step, moved))
            return self._signed(result) if _chooses_between_zeros(instr, operands) else result
        if is_whole(instr, operands):
            return self._signed(super()._execute(step, values))
        moved = dict(values)
        for operand, value in self._reordered(instr, operands).items():
            if isinstance(value, np.ndarray):
                moved[operand] = self._operand_noise(instr, value)
        result = super()._execute(step, moved)
        parts = result if isinstance(result, tuple) else (result,)
        parts = self._overflown(step, values, operands, parts)
        noisy = tuple(self._result_noise(instr, part) for part in parts)
        if overflows(instr, operands):
            noisy = tuple(self._unknown(part) for part in noisy)
        return self._signed(noisy if isinstance(result, tuple) else noisy[0])

    def _unknown(self, part: Array) -> Array:
        """Anything: NaN, or another number."""
        here = self._some(part.shape)
        if part.dtype.kind in "iub":
            return np.where(here, ~part, part)
        return np.where(here, np.nan, part).astype(part.dtype)

    def _signed(self, result: Any) -> Any:
        """A sum of zeros has the sign of its start value, which may be there or not."""
        if isinstance(result, tuple):
            return tuple(self._signed(part) for part in result)
        dtype = from_numpy(result.dtype)
        if not dtype.is_float:
            return result
        flipped = (result == 0) & self._some(result.shape)
        return np.where(flipped, -result.astype(np.float32 if dtype.bits < 32 else result.dtype),
                        result).astype(result.dtype)  # fmt: skip

    def _reordered(
        self, instr: HloInstruction, operands: Sequence[Array]
    ) -> dict[HloInstruction, Any]:
        """What is reduced in another order: products may overflow on the way in one of them."""
        found = dict(zip(instr.operands, operands, strict=True))
        dims = instr.attrs.get("dimensions", ())
        assert isinstance(dims, tuple)
        for axis in dims if instr.opcode == "reduce" and operands[0].size else ():
            order = self.rng.permutation(operands[0].shape[axis])
            for operand in instr.operands[: len(operands) // 2]:
                found[operand] = np.take(found[operand], order, axis)
        return found

    def _overflown(
        self,
        step: EvaluationStep,
        values: dict[HloInstruction, Any],
        operands: Sequence[Array],
        parts: tuple[Array, ...],
    ) -> tuple[Array, ...]:
        """Sums and products that overflow in some order are anything, and products that underflow."""
        for make, is_beyond in ((growing_terms, _overflows), (shrinking_terms, _underflows)):
            terms = make(step.instr, operands)
            if terms is None:
                continue
            with np.errstate(all="ignore"):
                found = super()._execute(step, {**values, **terms})
                sizes = found if isinstance(found, tuple) else (found,)
                free = [is_beyond(size) for size in sizes]
                parts = tuple(map(self._anything, parts, free))
        return parts

    def _anything(self, result: Array, free: Array) -> Array:
        """A result, but for some of the elements that may be anything."""
        dtype = from_numpy(result.dtype)
        if not (dtype.is_float or dtype.is_complex) or not free.any():
            return result
        largest = float(ml_dtypes.finfo(result.dtype).max)
        free = free & self._some(result.shape)
        other = np.full(result.shape, _NAN if dtype.is_complex else np.nan).astype(result.dtype)
        number = self.rng.choice([-largest, largest], result.shape).astype(result.dtype)
        number = number + 1j * number if dtype.is_complex else number
        if not np.isnan(other.astype(np.complex128)).all():  # a type without NaN saturates
            other = number
        other = np.where(np.isnan(result.astype(np.complex128)), number, other)
        return np.where(free, other, result)

    def _with_nans_reordered(
        self, instr: HloInstruction, operands: Sequence[Array]
    ) -> dict[HloInstruction, Any]:
        """Comparisons of several operands' elements among which there are NaN: which one wins
        depends on the order."""
        if instr.opcode != "reduce" or len(operands) == 2:
            return {}
        has_nan = any(
            from_numpy(o.dtype).is_float and bool(np.isnan(o.astype(np.float64)).any())
            for o in operands
        )
        return self._reordered(instr, operands) if has_nan else {}

    def _with_start_last(
        self, instr: HloInstruction, operands: Sequence[Array], result: Any
    ) -> Any:
        """Start values that hold a NaN may come last in such a comparison, and so win it."""
        starts = operands[len(operands) // 2 :]
        is_nan = [np.isnan(s.astype(np.float64)).any() for s in starts if s.dtype.kind == "f"]
        if instr.opcode != "reduce" or not isinstance(result, tuple) or not any(is_nan):
            return result
        here = self._some(result[0].shape)
        pairs = zip(starts, result, strict=True)
        return tuple(np.where(here, s, r).astype(r.dtype) for s, r in pairs)

    def _operand_noise(self, instr: HloInstruction, value: Array) -> Array:
        dtype = from_numpy(value.dtype)
        if not (dtype.is_float or dtype.is_complex):
            return value
        if instr.opcode in PRODUCTS:
            value = self._flushed(value)
        if self.parts:
            value = self._rounded_in_parts(instr, value)
        if dtype.bits < 32 and instr.opcode in PRODUCTS:
            return value  # products of these are exact in f32: the result's noise is for the sums
        return self._jitter(value, 8.0 if instr.opcode in PRODUCTS or is_solver(instr) else 2.0)

    def _rounded_in_parts(self, instr: HloInstruction, value: Array) -> Array:
        """Each element as far off as rounding of a sum that holds it makes that."""
        names = [s.dtype.name for s in leaves(instr.shape) if s.dtype.name in MANTISSA]
        step = step_of(min(names, key=lambda name: MANTISSA[name]))
        if step < 2.0**-20 or value.dtype.kind == "c":
            return value
        with np.errstate(all="ignore"):
            off = self.rng.uniform(-1, 1, value.shape) * self.scale * step
            wide = value.astype(np.float64)
            return np.where(np.isfinite(wide), wide * (1 + off), wide).astype(value.dtype)

    def _flushed(self, value: Array) -> Array:
        """The matrix unit makes zeros of denormal inputs; other ways of a product do not."""
        parts = [value.real, value.imag] if value.dtype.kind == "c" else [value]
        with np.errstate(all="ignore"):
            tiny = [(p != 0) & (np.abs(p.astype(np.float64)) < 2.0**-126) for p in parts]
        if not any(t.any() for t in tiny):
            return value
        result = np.array(value)
        parts = [result.real, result.imag] if value.dtype.kind == "c" else [result]
        for part, here in zip(parts, tiny, strict=True):
            part[here & self._some(here.shape)] *= part.dtype.type(0)
        return result

    def _result_noise(self, instr: HloInstruction, part: Array) -> Array:
        dtype = from_numpy(part.dtype)
        if not (dtype.is_float or dtype.is_complex):
            return part
        if not (instr.opcode in PRODUCTS or is_solver(instr)) and dtype.bits >= 32:
            return part
        with np.errstate(all="ignore"):
            size = np.abs(part.astype(np.complex128 if dtype.is_complex else np.float64))
            finite = np.where(np.isfinite(size), size, 0)
            largest = float(finite.max(initial=0.0))
        amount = self.scale * largest * 2.0**-21
        wide = part.astype(np.complex128 if dtype.is_complex else np.float64)
        noise: Array = self.rng.uniform(-1, 1, part.shape) * amount
        if dtype.is_complex:
            noise = noise + 1j * self.rng.uniform(-1, 1, part.shape) * amount
        with np.errstate(all="ignore"):
            moved = wide + noise
            narrow = moved if dtype.bits >= 32 else moved.astype(np.float32)
            moved = np.where(np.isfinite(wide), narrow, wide).astype(part.dtype)
        return self._jitter(moved, 1.0) if dtype.bits < 32 else moved

    def _body_rounds(self, instr: HloInstruction) -> bool:
        return any(rounds(callee) for callee in instr.called_computations())


def _overflows(sizes: Array) -> Array:
    """Where numbers are beyond the largest of their type, or no numbers; nowhere of integers."""
    if sizes.dtype.kind in "iub":
        return np.zeros(sizes.shape, np.bool_)
    return ~(np.abs(sizes.astype(np.complex128)) < float(ml_dtypes.finfo(sizes.dtype).max))


def _underflows(sizes: Array) -> Array:
    """Where numbers are below the normal ones of their type; nowhere of integers."""
    if sizes.dtype.kind in "iub":
        return np.zeros(sizes.shape, np.bool_)
    least = float(ml_dtypes.finfo(sizes.dtype).smallest_normal)
    return np.asarray(np.abs(sizes.astype(np.complex128)) < least)


def _chooses_between_zeros(instr: HloInstruction, operands: Sequence[Array]) -> bool:
    """Whether a choice by comparison meets zeros of both signs: the one that comes last stays."""
    bodies = instr.called_computations()
    if not any(node.opcode == "select" for body in bodies for node in body):
        return False
    zeros = [o[np.asarray(o == 0)] for o in operands if from_numpy(o.dtype).is_float]
    signs = [np.signbit(z.astype(np.float32)) for z in zeros]
    return any(s.any() for s in signs) and not all(s.all() for s in signs)


def evaluate_noisily(
    module: HloModule,
    args: Sequence[Array],
    seed: int,
    scale: float = 1.0,
    narrow: bool = False,
    parts: bool = False,
) -> list[Array]:
    """The flat results of the entry, with noise."""
    interpreter = NoisyInterpreter(np.random.default_rng(seed), scale, narrow, parts)
    run = interpreter.call_fused if seed % 2 else interpreter.call
    remaining = [np.asarray(arg) for arg in reversed(args)]
    operands = [_take(p.shape, p, remaining) for p in module.entry.parameters]
    with np.errstate(all="ignore"):
        result = run(module.entry, operands)
    return [np.array(leaf) for leaf in flatten(result)]
