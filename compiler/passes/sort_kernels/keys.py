"""What a comparator of a sort orders by: keys, each a function of one element.

    f(x) < f(y)                                        one key, ascending; > descending
    f(x) < f(y) or (f(x) == f(y) and <by the rest>)    several

Of two elements that a comparator puts before each other the first one stays first, so <= is <.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.passes.sort_kernels.words import is_ordered, of_ordered, ordered
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
_FALLS = {"LT": False, "LE": False, "GT": True, "GE": True}


@dataclass(frozen=True)
class Key:
    """What of an element is compared: `node`, as the comparator computes it of the first of two."""

    node: Instr
    falls: bool
    is_total: bool

    @property
    def operand(self) -> int | None:
        """The operand whose elements the key tells apart by their bits: which is the key itself."""
        is_exact = self.is_total or not self.node.array.dtype.is_float
        return self.node.parameter_number // 2 if _is_given(self.node) and is_exact else None

    def words(self, e: Emitter, comparator: HloComputation, operands: list[Instr]) -> Instr:
        """The key of all elements, as words that ascend in the order of the sort."""
        pairs = [operand for operand in operands for _ in range(2)]
        (value,) = e.apply(comparator, pairs, self.node)
        if value.array.dtype.is_float and not self.is_total:
            zero = e.like(value, 0)
            value = e.select(e.compare(value, zero, "EQ"), zero, value)  # of any sign
        words = ordered(e, value)
        return e.not_(words) if self.falls else words

    def values(self, e: Emitter, words: Instr) -> Instr:
        """The elements of its operand that have these words."""
        return of_ordered(e, e.not_(words) if self.falls else words, self.node.array.dtype)


def keys_of(comparator: HloComputation) -> list[Key] | None:
    """The keys of a comparator, the first one first; None if it is none of such."""
    found = _keys(comparator.root_instruction)
    if found is None or not all(is_ordered(key.node.array.dtype) for key in found):
        return None
    return found


def _keys(node: Instr) -> list[Key] | None:
    if node.opcode == "compare":
        key = _key(node)
        return None if key is None else [key]
    if node.opcode == "and" and node.operands[0] is node.operands[1]:
        return _keys(node.operands[0])
    if node.opcode == "or":
        for first, tie in (node.operands, node.operands[::-1]):
            if tie.opcode != "and":
                continue
            for same, rest in (tie.operands, tie.operands[::-1]):
                found = _chain(first, same, rest)
                if found is not None:
                    return found
    if node.opcode == "select":
        same, rest, first = node.operands
        return _chain(first, same, rest)
    return None


def _chain(first: Instr, same: Instr, rest: Instr) -> list[Key] | None:
    """The keys of ``first or (same and rest)``."""
    if first.opcode != "compare" or first.direction not in ("LT", "GT"):
        return None
    key = _key(first)
    if key is None or not _is_tie(same, key):
        return None
    others = _keys(rest)
    return None if others is None else [key, *others]


def _is_tie(node: Instr, key: Key) -> bool:
    """Whether elements are alike in a key: compared, or neither of them is before the other."""
    if node.opcode == "compare":
        return node.direction == "EQ" and _compares(node, key)
    if node.opcode != "not" or node.operands[0].opcode != "or":
        return False
    sides = node.operands[0].operands
    if any(side.opcode != "compare" or not _compares(side, key) for side in sides):
        return False
    found = [_key(side) for side in sides]
    falls = [side.falls for side in found if side is not None and side.node]
    strict = all(side.direction in ("LT", "GT") for side in sides)
    return strict and sorted(falls) == [False, True]


def _compares(compare: Instr, key: Key) -> bool:
    """Whether a comparison is of the key of both elements, in its order."""
    if compare.is_total_order != key.is_total:
        return False
    a, b = compare.operands
    straight = _is_same(key.node, a, 0) and _is_same(key.node, b, 1)
    return straight or (_is_same(key.node, b, 0) and _is_same(key.node, a, 1))


def _key(compare: Instr) -> Key | None:
    """The key of a comparison of one function of both elements."""
    a, b = compare.operands
    if compare.direction not in _FALLS:
        return None
    falls = _FALLS[compare.direction]
    if _is_of(a, 0) and _is_same(a, b, 1):
        return Key(a, falls, compare.is_total_order)
    if _is_of(b, 0) and _is_same(b, a, 1):
        return Key(b, not falls, compare.is_total_order)
    return None


def _is_of(node: Instr, element: int) -> bool:
    """Whether a value is computed of the first (0) or second (1) of two elements alone."""
    if _is_given(node):
        return node.parameter_number % 2 == element
    return bool(node.operands or node.opcode == "constant") and all(
        _is_of(operand, element) for operand in node.operands
    )


def _is_same(a: Instr, b: Instr, step: int) -> bool:
    """Whether b is a, with the parameter `step` further on for each."""
    if a is b and not step:
        return True
    if a.opcode != b.opcode or a.shape != b.shape or len(a.operands) != len(b.operands):
        return False
    if _is_given(a):
        return a.parameter_number + step == b.parameter_number
    if a.opcode == "constant":
        return bool(a.literal.tobytes() == b.literal.tobytes())
    if not a.operands or _attributes(a) != _attributes(b):
        return False
    return all(_is_same(x, y, step) for x, y in zip(a.operands, b.operands, strict=True))


def _attributes(instr: Instr) -> dict[str, object]:
    return {name: value for name, value in instr.attrs.items() if name != "metadata"}


def _is_given(node: Instr) -> bool:
    return node.opcode == "parameter"
