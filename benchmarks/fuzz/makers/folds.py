"""Combiners that are no one opcode: what each computes is the same in any order."""

from __future__ import annotations

from benchmarks.fuzz import kinds
from benchmarks.fuzz.scope import Scope

_HEAD = "  a = {t} parameter(0)\n  b = {t} parameter(1)\n"
_LARGEST_SIZE = "  p = {t} abs(a)\n  q = {t} abs(b)\n  ROOT r = {t} maximum(p, q)"
_SATURATED = (
    "  n = {t} constant({most})\n  z = {t} constant(0)\n  p = {t} clamp(z, a, n)\n"
    "  q = {t} clamp(z, b, n)\n  s = {t} add(p, q)\n  ROOT r = {t} minimum(s, n)"
)
_LENGTH = (
    "  p = {t} multiply(a, a)\n  q = {t} multiply(b, b)\n  s = {t} add(p, q)\n"
    "  ROOT r = {t} sqrt(s)"
)
_CALLED = "  ROOT r = {t} call(a, b), to_apply={inner}"
_BRANCH = (
    "  p = pred[] compare(a, b), direction=GT\n"
    "  ROOT r = {t} conditional(p, a, b), true_computation={same}, false_computation={same}"
)
_EITHER = "  n = {t} not(a)\n  ROOT r = {t} select(n, b, a)"
_NAN_FIRST = (
    "  n = pred[] compare(a, a), direction=NE\n  m = pred[] compare(b, b), direction=NE\n"
    "  g = pred[] compare(a, b), direction=GT\n  o = pred[] or(g, n)\n"
    "  s = {t} select(o, a, b)\n  ROOT r = {t} select(m, b, s)"
)


def odd_combiner(scope: Scope, dtype: str) -> str:
    """A computation of two scalars, or nothing for types that have none of these."""
    rng, program = scope.rng, scope.program
    bodies: list[str] = []
    fields = {"t": f"{dtype}[]", "most": "15" if kinds.bits(dtype) > 4 else "1"}
    if dtype == "pred":
        bodies.append(_EITHER)
    if dtype in ("f32", "s32", "s16", "s8", "bf16"):
        bodies.append(_LARGEST_SIZE)
    if kinds.is_integer(dtype) and kinds.bits(dtype) > 2:
        bodies.append(_SATURATED)
    if kinds.is_integer(dtype):
        same = f"  ROOT x = {dtype}[] parameter(0)"
        fields["same"] = program.computation(f"same_{dtype}", same)
        bodies.append(_BRANCH)
    if dtype == "f32":
        bodies += [_LENGTH, _NAN_FIRST]
    if dtype != "pred":
        fields["inner"] = program.pair("add", dtype)
        bodies.append(_CALLED)
    if not bodies:
        return ""
    body = rng.choice(bodies)
    return program.computation(program.name("fold"), (_HEAD + body).format(**fields))


def product_of_pairs(scope: Scope) -> str:
    """``(a + bi)(c + di)`` of whole numbers: each result depends on all four."""
    lines = [f"  {name} = s32[] parameter({i})" for i, name in enumerate("abcd")]
    for name, call in (
        ("ac", "multiply(a, c)"), ("bd", "multiply(b, d)"), ("ad", "multiply(a, d)"),
        ("bc", "multiply(b, c)"), ("re", "subtract(ac, bd)"), ("im", "add(ad, bc)"),
    ):  # fmt: skip
        lines.append(f"  {name} = s32[] {call}")
    lines.append("  ROOT r = (s32[], s32[]) tuple(re, im)")
    return scope.program.computation("product_of_pairs", "\n".join(lines))


def greatest_with_nan(scope: Scope, index: str) -> str:
    """As JAX writes an argmax: a NaN is the greatest, of equal ones the first is."""
    body = f"""  a = f32[] parameter(0)
  i = {index}[] parameter(1)
  b = f32[] parameter(2)
  j = {index}[] parameter(3)
  gt = pred[] compare(a, b), direction=GT
  none = pred[] compare(a, a), direction=NE
  left = pred[] or(gt, none)
  v = f32[] select(left, a, b)
  eq = pred[] compare(a, b), direction=EQ
  noneb = pred[] compare(b, b), direction=NE
  both = pred[] and(none, noneb)
  same = pred[] or(eq, both)
  first = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, first)
  notboth = pred[] not(both)
  clear = pred[] and(left, notboth)
  keep = pred[] or(clear, tie)
  k = {index}[] select(keep, i, j)
  ROOT r = (f32[], {index}[]) tuple(v, k)"""
    return scope.program.computation(f"greatest_{index}", body)
