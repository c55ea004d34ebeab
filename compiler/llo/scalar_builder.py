"""Scalar helpers of the builder: address arithmetic that folds constants.

Operands are sregs; names ending in `i` take a Python int second. A sreg known to be constant, or
to be another sreg plus a constant, is remembered, so chains of additions collapse.
"""

from __future__ import annotations

from compiler.llo.ir import SReg
from compiler.llo.scalar_folding import (
    COMMUTATIVE,
    COMPARES,
    IMMEDIATE_FORMS,
    INTEGER_OPS,
    wrap,
)
from tpu_sim.isa.instruction import Row

_UNCHANGED_BY_ZERO = frozenset({"sadd.s32", "ssub.s32", "sor", "sxor", "sshl", "sshr", "ssra"})
_ZERO_BY_ZERO = frozenset({"smul.s32", "sand"})
_UNCHANGED_BY_ONE = frozenset({"smul.s32", "sdiv.s32", "sdiv.u32"})
_ZERO_BY_ONE = frozenset({"srem.u32", "srem.s32"})


class ScalarBuilder:
    """Mixin of `LloBuilder`; needs its `emit` and `is_variable`."""

    def __init__(self) -> None:
        self._constants: dict[SReg, int] = {0: 0}
        self._affine: dict[SReg, tuple[SReg, int]] = {}

    def emit(self, row: Row | str, *operands: int) -> int:
        """Append an operation (see `LloBuilder.emit`)."""
        raise NotImplementedError

    def is_variable(self, sreg: SReg) -> bool:
        """Whether `sreg` may be assigned to."""
        raise NotImplementedError

    def sconst(self, value: int) -> SReg:
        """A sreg holding a constant; s0 for 0."""
        value = wrap(value)
        if value == 0:
            return 0
        register = self.emit("smovi", value)
        self._constants[register] = value
        return register

    def constant(self, sreg: SReg) -> int | None:
        """The value of a sreg if it is known."""
        return self._constants.get(sreg)

    def affine(self, sreg: SReg) -> tuple[SReg, int]:
        """(root, offset) with value = root + offset; root is s0 for a constant."""
        known = self._constants.get(sreg)
        return (0, known) if known is not None else self._affine.get(sreg, (sreg, 0))

    def sbinary(self, name: str, a: SReg, b: SReg) -> SReg:
        """Emit or fold the two-operand integer row `name`."""
        known_a, known_b = self._constants.get(a), self._constants.get(b)
        if known_a is not None and known_b is not None:
            return self.sconst(INTEGER_OPS[name](known_a, known_b))
        if known_a is not None and name in COMMUTATIVE:
            a, b, known_a, known_b = b, a, known_b, known_a
        if known_b is not None:
            return self._immediate(name, a, b, known_b)
        return self.emit(name, a, b)

    def _immediate(self, name: str, a: SReg, b: SReg, k: int) -> SReg:
        """`a` op constant `k` (held in `b`), by the laws of the operation."""
        if k == 0:
            if name in _UNCHANGED_BY_ZERO:
                return a
            if name in _ZERO_BY_ZERO:
                return 0
        elif k == 1:
            if name in _UNCHANGED_BY_ONE:
                return a
            if name in _ZERO_BY_ONE:
                return 0
        if name == "sadd.s32":
            return self._add_constant(a, k)
        if name == "ssub.s32":
            return self._add_constant(a, -k)
        if k > 1 and k & (k - 1) == 0:
            shift = k.bit_length() - 1
            match name:
                case "smul.s32":
                    return self.emit("sshli", a, shift)
                case "sdiv.u32":
                    return self.emit("sshri", a, shift)
                case "srem.u32":
                    return self.emit("sandi", a, k - 1)
        if name in IMMEDIATE_FORMS:
            return self.emit(IMMEDIATE_FORMS[name], a, k)
        return self.emit(name, a, b if b >= 0 else self.sconst(k))

    def _add_constant(self, a: SReg, k: int) -> SReg:
        root, offset = self.affine(a)
        total = wrap(offset + k)
        if total == 0:
            return root
        register = self.emit("saddi.s32", root, total)
        if not self.is_variable(root):
            self._affine[register] = (root, total)
        return register

    def sadd(self, a: SReg, b: SReg) -> SReg:
        """a + b."""
        return self.sbinary("sadd.s32", a, b)

    def ssub(self, a: SReg, b: SReg) -> SReg:
        """a - b."""
        return self.sbinary("ssub.s32", a, b)

    def smin(self, a: SReg, b: SReg) -> SReg:
        """Signed minimum."""
        return self.sbinary("smin.s32", a, b)

    def smax(self, a: SReg, b: SReg) -> SReg:
        """Signed maximum."""
        return self.sbinary("smax.s32", a, b)

    def sand(self, a: SReg, b: SReg) -> SReg:
        """a & b."""
        return self.sbinary("sand", a, b)

    def sor(self, a: SReg, b: SReg) -> SReg:
        """a | b."""
        return self.sbinary("sor", a, b)

    def sxor(self, a: SReg, b: SReg) -> SReg:
        """a ^ b."""
        return self.sbinary("sxor", a, b)

    def saddi(self, a: SReg, k: int) -> SReg:
        """a + k."""
        return self._with_constant("sadd.s32", a, k)

    def smuli(self, a: SReg, k: int) -> SReg:
        """a * k."""
        return self._with_constant("smul.s32", a, k)

    def sdivi(self, a: SReg, k: int) -> SReg:
        """a / k, unsigned."""
        return self._with_constant("sdiv.u32", a, k)

    def sremi(self, a: SReg, k: int) -> SReg:
        """a % k, unsigned."""
        return self._with_constant("srem.u32", a, k)

    def sandi(self, a: SReg, k: int) -> SReg:
        """a & k."""
        return self._with_constant("sand", a, k)

    def sxori(self, a: SReg, k: int) -> SReg:
        """a ^ k."""
        return self._with_constant("sxor", a, k)

    def sshli(self, a: SReg, k: int) -> SReg:
        """a << k."""
        return self._with_constant("sshl", a, k)

    def sshri(self, a: SReg, k: int) -> SReg:
        """a >> k, logical."""
        return self._with_constant("sshr", a, k)

    def ssrai(self, a: SReg, k: int) -> SReg:
        """a >> k, arithmetic."""
        return self._with_constant("ssra", a, k)

    def _with_constant(self, name: str, a: SReg, k: int) -> SReg:
        known = self._constants.get(a)
        if known is not None:
            return self.sconst(INTEGER_OPS[name](known, wrap(k)))
        return self._immediate(name, a, -1, wrap(k))

    def scmp(self, predicate: str, dtype: str, a: SReg, b: SReg) -> SReg:
        """1 if a `predicate` b as `dtype` (s32, u32, f32), else 0."""
        known_a, known_b = self._constants.get(a), self._constants.get(b)
        if dtype == "s32" and known_a is not None and known_b is not None:
            return self.sconst(int(COMPARES[predicate](known_a, known_b)))
        return self.emit(f"scmp.{predicate}.{dtype}", a, b)

    def ssel(self, condition: SReg, a: SReg, b: SReg) -> SReg:
        """a if condition != 0, else b."""
        known = self._constants.get(condition)
        if a == b or known is not None:
            return b if known == 0 else a
        return self.emit("ssel", condition, a, b)
