"""Functions of the kernel language (`tpu_sim.jit.kernel_language`) to LLVM IR text.

Loops and branches become blocks and phis at once. What is known here and now is no code: constants
are folded, a branch on one is one of its ways, a loop over a tuple is its trips.
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.kernel_builtins import Native, WordTable
from tpu_sim.jit.kernel_values import (
    BUILTINS,
    Ssa,
    Value,
    element,
    kind_of,
    llvm_type,
    native_call,
    text_of,
)


class KernelSyntaxError(Exception):
    """A function uses what this language does not have: named with its line."""


_PARAMETERS = {"int": "i64", "Words": "ptr", "HalfWords": "ptr32"}
_RESULTS = {"int": "i64", "bool": "i1", "None": "void"}
_BINARY: dict[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.LShift: ("shl", operator.lshift),
    ast.RShift: ("ashr", operator.rshift),
    ast.FloorDiv: ("", operator.floordiv),
    ast.Mod: ("", operator.mod),
    ast.BitAnd: ("and", operator.and_),
    ast.BitOr: ("or", operator.or_),
    ast.BitXor: ("xor", operator.xor),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[int, int], bool]]] = {
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Lt: ("slt", operator.lt),
    ast.LtE: ("sle", operator.le),
    ast.Gt: ("sgt", operator.gt),
    ast.GtE: ("sge", operator.ge),
}


def signature(function: Callable[..., Any]) -> tuple[tuple[str, ...], str]:
    """The LLVM types of a kernel's parameters, and of its result."""
    return tuple(llvm_type(kind) for _, kind in _parameters(function)), _result(function)


def definition_text(symbol: str, function: Callable[..., Any]) -> str:
    """A kernel as LLVM IR, under the name `symbol`."""
    return _Translator(function).define(symbol)


def _definition(function: Callable[..., Any]) -> ast.FunctionDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    return definition


def _annotation(function: Callable[..., Any], name: str, known: dict[str, str]) -> str:
    """What the annotation of a parameter, or of what is returned, stands for."""
    annotation = function.__annotations__.get(name, "missing")
    if annotation not in known:
        raise KernelSyntaxError(f"{function.__qualname__}: annotation of {name}: {annotation}")
    return known[annotation]


def _parameters(function: Callable[..., Any]) -> list[tuple[str, str]]:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return [(name, _annotation(function, name, _PARAMETERS)) for name in names]


def _result(function: Callable[..., Any]) -> str:
    return _annotation(function, "return", _RESULTS)


@dataclass
class _Frame:
    """Where names are looked up: locals of a function, and what it sees beside them."""

    function: Callable[..., Any]
    names: dict[str, Value] = field(default_factory=dict)

    def constant(self, name: str) -> Any:
        return self.function.__globals__.get(name)


class _Translator:
    """Translates one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._emitter = FunctionEmitter("k")

    def define(self, symbol: str) -> str:
        """The definition under the name `symbol`."""
        definition = _definition(self._function)
        parameters = _parameters(self._function)
        names: dict[str, Value] = {name: Ssa(f"%{name}", kind) for name, kind in parameters}
        result = _result(self._function)
        ended = self._statements(definition.body, _Frame(self._function, names), result)
        if not ended:
            self._emitter.do("ret void")
        header = ", ".join(f"{llvm_type(kind)} %{name}" for name, kind in parameters)
        body = self._emitter.text()
        return f"define {result} @{symbol}({header}) #0 {{\nentry:\n{body}\n}}\n"

    # statements: each gives whether control ends there

    def _statements(self, nodes: list[ast.stmt], frame: _Frame, result: str) -> bool:
        return any(self._statement(node, frame, result) for node in nodes)

    def _statement(self, node: ast.stmt, frame: _Frame, result: str) -> bool:
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Expr(value=ast.Call() as call):
                self._call(call, frame)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._value(value, frame), frame)
            case ast.AugAssign(target=target, op=op, value=value):
                self._augment(target, op, self._value(value, frame), frame)
            case ast.If():
                return self._if(node, frame, result)
            case ast.While(orelse=[]):
                return self._while(node, frame, result)
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=parts), orelse=[]):
                return self._unrolled(name, parts, node.body, frame, result)
            case ast.For(target=ast.Name(), orelse=[]):
                self._for(node, frame, result)
            case ast.Return(value=value) if result:
                self._return(value, frame, result)
                return True
            case _:
                raise self._error(node)
        return False

    def _error(self, node: ast.AST) -> KernelSyntaxError:
        return KernelSyntaxError(f"{self._function.__name__}: {ast.unparse(node)}")

    def _return(self, node: ast.expr | None, frame: _Frame, result: str) -> None:
        if node is None:
            self._emitter.do("ret void")
            return
        value = self._value(node, frame)
        if result == "i1" and isinstance(value, int):
            self._emitter.do(f"ret i1 {'true' if value else 'false'}")
        else:
            self._emitter.do(f"ret {result} {text_of(value)}")

    def _assign(self, target: ast.expr, value: Value, frame: _Frame) -> None:
        match target:
            case ast.Name(id=name):
                frame.names[name] = value
            case ast.Tuple(elts=parts) if isinstance(value, tuple) and len(value) == len(parts):
                for part, one in zip(parts, value, strict=True):
                    self._assign(part, one, frame)
            case ast.Subscript():
                self._store(self._place(target, frame), value)
            case _:
                raise self._error(target)

    def _augment(self, target: ast.expr, op: ast.operator, value: Value, frame: _Frame) -> None:
        if isinstance(target, ast.Subscript):
            place = self._place(target, frame)
            self._store(place, self._binary(op, self._load(place), value))
        else:
            self._assign(target, self._binary(op, self._value(target, frame), value), frame)

    def _if(self, node: ast.If, frame: _Frame, result: str) -> bool:
        e = self._emitter
        condition = self._condition(node.test, frame)
        if isinstance(condition, int):
            return self._statements(node.body if condition else node.orelse, frame, result)
        labels = [e.new_label(), e.new_label()]
        done = e.new_label()
        e.branch(condition.name, *labels)
        before, edges = dict(frame.names), []
        for label, body in zip(labels, (node.body, node.orelse), strict=True):
            e.place(label)
            frame.names = dict(before)
            if not self._statements(body, frame, result):
                edges.append((e.block, frame.names))
                e.jump(done)
        if not edges:
            return True
        e.place(done)
        frame.names = self._joined(edges)
        return False

    def _joined(self, edges: list[tuple[str, dict[str, Value]]]) -> dict[str, Value]:
        """The names after a branch: a phi where its ways disagree; a name of one way is gone."""
        (_, first), *others = edges
        found: dict[str, Value] = {}
        for name, value in first.items():
            values = [value, *(names.get(name) for _, names in others)]
            if any(one is None for one in values):
                continue
            if all(one == value for one in values):
                found[name] = value
                continue
            ways = ", ".join(
                f"[{text_of(one)}, %{block}]" for one, (block, _) in zip(values, edges, strict=True)
            )
            kind = next((one.kind for one in values if isinstance(one, Ssa)), "i64")
            found[name] = Ssa(self._emitter.value(f"phi {llvm_type(kind)} {ways}"), kind)
        return found

    def _while(self, node: ast.While, frame: _Frame, result: str) -> bool:
        def test() -> int | Ssa:
            return self._condition(node.test, frame)

        return self._loop(node.body, frame, result, test, lambda: None)

    def _unrolled(
        self, name: str, parts: list[ast.expr], body: list[ast.stmt], frame: _Frame, result: str
    ) -> bool:
        for part in parts:
            frame.names[name] = self._value(part, frame)
            if self._statements(body, frame, result):
                return True
        return False

    def _for(self, node: ast.For, frame: _Frame, result: str) -> None:
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=[count_node]):
                count = self._value(count_node, frame)
            case _:
                raise self._error(node.iter)
        assert isinstance(node.target, ast.Name)
        name = node.target.id
        frame.names[name] = 0

        def test() -> int | Ssa:
            return self._compare(ast.Lt(), frame.names[name], count)

        def step() -> None:
            frame.names[name] = self._binary(ast.Add(), frame.names[name], 1)

        self._loop(node.body, frame, result, test, step, name)

    def _loop(
        self,
        body: list[ast.stmt],
        frame: _Frame,
        result: str,
        test: Callable[[], int | Ssa],
        step: Callable[[], None],
        *counters: str,
    ) -> bool:
        """A loop; what it assigns is a phi at its head. Gives whether nothing follows it."""
        e = self._emitter
        head, inside, done = e.new_label(), e.new_label(), e.new_label()
        assigned = _assigned(body) | set(counters)
        before, entry = dict(frame.names), e.block
        carried = [name for name in before if name in assigned]
        e.jump(head)
        e.place(head)
        slot = len(e.lines)
        e.lines.append("")
        phis = {name: Ssa(e.fresh(), kind_of(before[name])) for name in carried}
        frame.names.update(phis)
        condition = test()
        at_head = dict(frame.names)
        is_endless = isinstance(condition, int)
        if isinstance(condition, int):
            e.jump(inside)
        else:
            e.branch(condition.name, inside, done)
        e.place(inside)
        ended = self._statements(body, frame, result)
        edges = {name: f"[{text_of(before[name])}, %{entry}]" for name in carried}
        if not ended:
            step()
            e.jump(head)
            for name in carried:
                edges[name] += f", [{text_of(frame.names[name])}, %{e.block}]"
        e.lines[slot] = "\n".join(
            f" {phis[name].name} = phi {llvm_type(phis[name].kind)} {edges[name]}"
            for name in carried
        )
        if not is_endless:
            e.place(done)
        frame.names = {name: at_head[name] for name in before}
        return is_endless

    # expressions

    def _value(self, node: ast.expr, frame: _Frame) -> Value:
        match node:
            case ast.Constant(value=int(number)):
                return int(number)
            case ast.Name(id=name):
                if name in frame.names:
                    return frame.names[name]
                constant = frame.constant(name)
                if isinstance(constant, int):
                    return int(constant)
                if isinstance(constant, Native | WordTable):
                    return Ssa(f"@{constant.symbol}", "ptr")
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                constant = getattr(frame.constant(name), attribute, None)
                if isinstance(constant, int):
                    return int(constant)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self._value(left, frame), self._value(right, frame))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._binary(ast.Sub(), 0, self._value(operand, frame))
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self._condition(node, frame)
            case ast.Subscript():
                return self._load(self._place(node, frame))
            case ast.Call():
                return self._call(node, frame)
            case ast.Tuple(elts=parts):
                return tuple(self._value(part, frame) for part in parts)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                values = self._value(body, frame), self._value(orelse, frame)
                return self._select(self._condition(test, frame), *values)
        raise self._error(node)

    def _binary(self, op: ast.operator, a: Value, b: Value) -> Value:
        if type(op) not in _BINARY or isinstance(a, tuple) or isinstance(b, tuple):
            raise KernelSyntaxError(f"{self._function.__name__}: {type(op).__name__}")
        name, compute = _BINARY[type(op)]
        if isinstance(a, int) and isinstance(b, int):
            return compute(a, b)
        if not name:
            return self._rounded_down(op, text_of(a), text_of(b))
        return Ssa(self._emitter.value(f"{name} i64 {text_of(a)}, {text_of(b)}"), "i64")

    def _rounded_down(self, op: ast.operator, a: str, b: str) -> Ssa:
        """a // b and a % b for a positive b; LLVM rounds to zero."""
        e = self._emitter
        rest = e.value(f"srem i64 {a}, {b}")
        is_below = e.value(f"icmp slt i64 {rest}, 0")
        if isinstance(op, ast.Mod):
            above = e.value(f"add i64 {rest}, {b}")
            return Ssa(e.value(f"select i1 {is_below}, i64 {above}, i64 {rest}"), "i64")
        quotient = e.value(f"sdiv i64 {a}, {b}")
        return Ssa(e.value(f"add i64 {quotient}, {e.value(f'sext i1 {is_below} to i64')}"), "i64")

    def _compare(self, op: ast.cmpop, a: Value, b: Value) -> int | Ssa:
        name, compute = _COMPARE[type(op)]
        if isinstance(a, int) and isinstance(b, int):
            return compute(a, b)
        return Ssa(self._emitter.value(f"icmp {name} i64 {text_of(a)}, {text_of(b)}"), "i1")

    def _condition(self, node: ast.expr, frame: _Frame) -> int | Ssa:
        """An i1. Both sides of ``and`` and ``or`` are computed: they have no effects."""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compare(op, self._value(left, frame), self._value(right, frame))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self._condition(operand, frame)
                if isinstance(value, int):
                    return not value
                return Ssa(self._emitter.value(f"xor i1 {value.name}, true"), "i1")
            case ast.BoolOp(op=op, values=[*nodes]):
                values = [self._condition(one, frame) for one in nodes]
                name = "and" if isinstance(op, ast.And) else "or"
                total = values[0]
                for value in values[1:]:
                    text = f"{name} i1 {text_of(total)}, {text_of(value)}"
                    total = Ssa(self._emitter.value(text), "i1")
                return total
        known = self._value(node, frame)
        if isinstance(known, int) or (isinstance(known, Ssa) and known.kind == "i1"):
            return known
        return self._compare(ast.NotEq(), known, 0)

    def _select(self, condition: int | Ssa, a: Value, b: Value) -> Value:
        if isinstance(condition, int):
            return a if condition else b
        text = f"select i1 {condition.name}, i64 {text_of(a)}, i64 {text_of(b)}"
        return Ssa(self._emitter.value(text), "i64")

    # memory

    def _place(self, node: ast.Subscript, frame: _Frame) -> Ssa:
        base, index = self._value(node.value, frame), self._value(node.slice, frame)
        if not isinstance(base, Ssa) or base.kind not in ("ptr", "ptr32"):
            raise self._error(node)
        return element(self._emitter, base, index)

    def _load(self, place: Ssa) -> Ssa:
        e = self._emitter
        if place.kind == "ptr32":
            return Ssa(e.value(f"zext i32 {e.load('i32', place.name, 4)} to i64"), "i64")
        return Ssa(e.load("i64", place.name, 8), "i64")

    def _store(self, place: Ssa, value: Value) -> None:
        if place.kind == "ptr32":
            raise KernelSyntaxError(f"{self._function.__name__}: half-words are read only")
        self._emitter.store("i64", text_of(value), place.name, 8)

    # calls

    def _call(self, node: ast.Call, frame: _Frame) -> Value:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self._error(node)
        values = [self._value(argument, frame) for argument in node.args]
        match node.func.id:
            case "max" | "min" as name if len(values) == 2:
                return self._extreme(name, values[0], values[1])
            case "int" if len(values) == 1:
                return values[0]
            case name:
                called = frame.constant(name)
        if isinstance(called, Native):
            types = called.parameters
            return native_call(
                self._emitter, f"@{called.symbol}", called.result, zip(types, values, strict=True)
            )
        if called in BUILTINS:
            return BUILTINS[called](self._emitter, *values)
        if not inspect.isfunction(called):
            raise self._error(node)
        return self._inlined(called, values)

    def _extreme(self, name: str, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b) if name == "max" else min(a, b)
        text = f"call i64 @llvm.s{name}.i64(i64 {text_of(a)}, i64 {text_of(b)})"
        return Ssa(self._emitter.value(text), "i64")

    def _inlined(self, function: Callable[..., Any], values: list[Value]) -> Value:
        definition = _definition(function)
        names = [a.arg for a in definition.args.args]
        frame = _Frame(function, dict(zip(names, values, strict=True)))
        *body, last = definition.body
        self._statements(body, frame, "")
        if isinstance(last, ast.Return) and last.value is not None:
            return self._value(last.value, frame)
        self._statement(last, frame, "")
        return 0


def _assigned(nodes: list[ast.stmt]) -> set[str]:
    """Names that statements assign."""
    return {
        node.id
        for statement in nodes
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
