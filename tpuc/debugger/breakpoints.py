"""Breakpoints: where and when a run is to stop, and the conditions that they may have."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tpu_sim.isa.errors import TpucError
from tpuc.debugger.program_map import Spot
from tpuc.debugger.values import ArrayBuffer


class BreakpointKind(Enum):
    """What makes a run stop."""

    BEGIN = "a kernel's call begins"
    END = "a kernel's call is over"
    BUNDLE = "a bundle is next"
    STEP = "a step of a kernel's outermost loop begins"
    CYCLE = "a cycle has come"
    NAN = "a NaN appears"
    INF = "an infinity appears"
    WATCH = "bytes change"


class DebuggerError(TpucError, ValueError):
    """A request that cannot be done; the message says why."""


@dataclass
class Breakpoint:
    """One breakpoint. Which of the fields mean something depends on `kind`.

    `sites` are call sites, `spots` bundles; `step` the number of a step, None for each; `watched` is a
    range of memory. It counts if `condition` (see `BreakpointCondition`) is true.
    """

    number: int
    kind: BreakpointKind
    text: str
    sites: frozenset[str] = frozenset()
    spots: tuple[Spot, ...] = ()
    step: int | None = None
    cycle: int = -1
    watched: ArrayBuffer | None = None
    condition: BreakpointCondition | None = None
    is_temporary: bool = False
    is_enabled: bool = True
    hits: int = 0

    def describe(self) -> str:
        """One line, as `info breakpoints` has it."""
        parts = [f"{self.number:>3}  {'tbreak' if self.is_temporary else 'break':<6} {self.text}"]
        if self.condition is not None:
            parts.append(f"if {self.condition.text}")
        if not self.is_enabled:
            parts.append("(disabled)")
        parts.append(f"  hits {self.hits}" if self.hits else "")
        return " ".join(parts).rstrip()


_COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: lambda a, b: int(a) & int(b),
}  # fmt: skip
CHEAP = frozenset({"step", "iteration", "cycle", "call"})
"""Names that are known at every border."""


@dataclass(frozen=True)
class BreakpointCondition:
    """An expression of numbers: ``step == 3 and s4 > 0``, ``max("fusion.2") > 1e4``.

    Names are `step`, `iteration`, `cycle`, `call`, registers ``s0``..; functions of an HLO instruction's
    value are `min`, `max`, `mean`, `sum`, `nans`, `infs`.
    """

    text: str
    tree: ast.expr
    names: frozenset[str] = field(default=frozenset())

    @classmethod
    def parse(cls, text: str) -> BreakpointCondition:
        """The condition of a text; raises `DebuggerError`."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise DebuggerError(f"condition {text!r}: {error.msg}") from error
        names = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))
        calls = frozenset(
            n.func.id
            for n in ast.walk(tree)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        )
        for name in names - calls - CHEAP:
            if not (name.startswith("s") and name[1:].isdecimal()):
                known = ", ".join(sorted(CHEAP))
                raise DebuggerError(
                    f"condition {text!r}: no name {name!r}; there are {known}, s0, s1, .."
                )
        for name in calls - FUNCTIONS:
            raise DebuggerError(
                f"condition {text!r}: no function {name!r}; there are {', '.join(sorted(FUNCTIONS))}"
            )
        return cls(text.strip(), tree, names)

    @property
    def is_cheap(self) -> bool:
        """Whether it can be told at a border."""
        return self.names <= CHEAP

    def holds(self, names: Mapping[str, float], function: Callable[[str, str], float]) -> bool:
        """Its truth; `function` gives that of an HLO value."""
        return bool(_evaluate(self.tree, names, function, self.text))


FUNCTIONS = frozenset({"min", "max", "mean", "sum", "nans", "infs"})


def _evaluate(
    tree: ast.expr, names: Mapping[str, float], function: Callable[[str, str], float], text: str
) -> float:
    def inner(node: ast.expr) -> float:
        return _evaluate(node, names, function, text)

    match tree:
        case ast.Constant(value=bool() | int() | float() as value):
            return float(value) if isinstance(value, float) else int(value)
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.BoolOp(op=ast.And()):
            return all(inner(value) for value in tree.values)
        case ast.BoolOp():
            return any(inner(value) for value in tree.values)
        case ast.UnaryOp(op=ast.Not()):
            return not inner(tree.operand)
        case ast.UnaryOp(op=ast.USub()):
            return -inner(tree.operand)
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](inner(tree.left), inner(tree.right))
        case ast.Compare() if all(type(op) in _COMPARE for op in tree.ops):
            values = [inner(tree.left), *(inner(c) for c in tree.comparators)]
            pairs = zip(tree.ops, values, values[1:], strict=False)
            return all(_COMPARE[type(op)](a, b) for op, a, b in pairs)
        case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str() as value)]):
            return function(name, value)
    raise DebuggerError(f"condition {text!r}: {ast.unparse(tree)} is no number")
