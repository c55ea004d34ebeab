"""Scalar instructions to native i32 values, sums kept as a root and an offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tpu_sim.isa.instruction import Instr, Kind
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.lanes import LlvmLanes, signed32
from tpu_sim.jit.values import RowAddress, Scalar, Use, constant_scalar

_MAX_OFFSET, _MAX_IMMEDIATE = 1 << 28, 1 << 29
"""Up to these an sreg is a root and an offset, and an address not taken modulo 2**32: a sum that wraps
lies then so far from zero that neither it nor what it wraps to is a row of any window."""


class ScalarCode:
    """Appends scalar instructions to an emitter; `read` gives the value of an sreg."""

    def __init__(self, emitter: FunctionEmitter, read: Callable[[int], Scalar]) -> None:
        self._emitter = emitter
        self._read = read
        self._lanes = LlvmLanes(emitter, 1)

    def value(self, instr: Instr) -> Scalar:
        """The result of an instruction that moves no state."""
        return self._shifted(instr) or self._computed(instr)

    def _shifted(self, instr: Instr) -> Scalar | None:
        """Register plus constant: kept in that form, so that addresses can be compared."""
        name, operands = instr.row.name, instr.operands
        if name == "smovi":
            return constant_scalar(signed32(operands[1]))
        if name == "smov":
            return self._read(operands[1])
        if name == "saddi.s32":
            return self._plus(self._read(operands[1]), operands[2])
        if name == "sadd.s32":
            a, b = self._read(operands[1]), self._read(operands[2])
            if not b.root:
                return self._plus(a, b.offset)
            if not a.root:
                return self._plus(b, a.offset)
        return None

    def _plus(self, scalar: Scalar, k: int) -> Scalar:
        offset = signed32(scalar.offset + k)
        if not scalar.root:
            return constant_scalar(offset)
        if offset == 0:
            return Scalar(scalar.root, scalar.root, 0)
        text = self._emitter.value(f"add i32 {scalar.root}, {offset}")
        if abs(offset) >= _MAX_OFFSET:
            return Scalar(text, text, 0)
        return Scalar(text, scalar.root, offset)

    def _computed(self, instr: Instr) -> Scalar:
        arguments: list[str | int] = []
        for operand, value in zip(instr.row.operands[1:], instr.operands[1:], strict=True):
            arguments.append(self._read(value).text if operand.kind is Kind.SS else value)
        text = cast(str, instr.row.does(self._lanes, *arguments))
        if text.startswith("%"):
            return Scalar(text, text, 0)
        return constant_scalar(int(text))


class RowAccesses:
    """`tpu_sim.isa.effects.CorePrimitives` of accesses to rows: their address, and what they store."""

    def load_rows(
        self, window: int, s: Scalar, k: int, stride: int
    ) -> tuple[RowAddress, tuple[Use, ...]]:
        """See `Core`."""
        return _row_address(window, s, k, stride), ()

    def store_rows(
        self, window: int, s: Scalar, k: int, stride: int, a: Use, mask: Use | None = None
    ) -> tuple[RowAddress, tuple[Use, ...]]:
        """See `Core`."""
        return _row_address(window, s, k, stride), (a,) if mask is None else (a, mask)


def _row_address(window: int, s: Scalar, k: int, stride: int) -> RowAddress:
    if s.root and abs(k) >= _MAX_IMMEDIATE:  # it may bring back a sum that wrapped
        return RowAddress(window, s.text, k, stride)
    return RowAddress(window, s.root, s.offset + k, stride)
