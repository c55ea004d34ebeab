"""Questions about and copies of whole computations: post order, hashes, clones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape_text import print_shape


def callees(computation: HloComputation) -> list[HloComputation]:
    """The computations its instructions name, each once, in order of first mention."""
    found = (c for instr in computation if instr.attrs for c in instr.called_computations())
    return list(dict.fromkeys(found))


def callers(module: HloModule) -> dict[HloComputation, list[HloInstruction]]:
    """For every computation of the module the instructions that name it."""
    found: dict[HloComputation, list[HloInstruction]] = {
        computation: [] for computation in module.computations.values()
    }
    for computation in module.computations.values():
        for instr in computation:
            for callee in dict.fromkeys(instr.called_computations()) if instr.attrs else ():
                found.setdefault(callee, []).append(instr)
    return found


def post_order(starts: Iterable[HloComputation]) -> list[HloComputation]:
    """The computations reachable from `starts`, callees before callers, otherwise in order.

    Raises CompileError when computations call each other in a cycle.
    """
    done: dict[HloComputation, None] = {}
    for start in starts:
        path = {start: iter(callees(start))} if start not in done else {}
        while path:
            current = next(reversed(path))
            missing = next((c for c in path[current] if c not in done), None)
            if missing is None:
                del path[current]
                done[current] = None
            elif missing in path:
                raise CompileError(f"computation %{missing.name} calls itself", missing.span)
            else:
                path[missing] = iter(callees(missing))
    return list(done)


def sort_computations(module: HloModule) -> None:
    """Put the module's computations into post order, otherwise keeping their order."""
    ordered = post_order(module.computations.values())
    module.computations = {computation.name: computation for computation in ordered}


def control_computations(module: HloModule) -> list[HloComputation]:
    """The entry and all bodies that run as program control flow (while, conditional, call).

    The others are embedded: fusion bodies, reducers, comparators.
    """
    found: dict[HloComputation, None] = {module.entry: None}
    waiting = [module.entry]
    while waiting:
        for instr in waiting.pop():
            if instr.opcode not in ("while", "conditional", "call"):
                continue
            fresh = [c for c in instr.called_computations() if c not in found]
            found.update(dict.fromkeys(fresh))
            waiting.extend(fresh)
    return list(found)


def clone_instructions(
    source: HloComputation, target: HloComputation, arguments: Sequence[HloInstruction] | None
) -> dict[HloInstruction, HloInstruction]:
    """Copy the instructions of `source` into `target`; returns old -> new.

    `arguments` stand for the parameters (inlining); with None the parameters are copied too.
    Computations that the instructions name are shared, not copied.
    """
    copies: dict[HloInstruction, HloInstruction] = {}
    if arguments is not None:
        copies.update(zip(source.parameters, arguments, strict=True))
    for instr in source:
        if instr in copies:
            continue
        copy = HloInstruction(
            instr.opcode,
            instr.name,
            instr.shape,
            [copies[operand] for operand in instr.operands],
            dict(instr.attrs),
        )
        copy.location = instr.location
        copies[instr] = target.add(copy)
        copy.set_control_predecessors(copies[p] for p in instr.control_predecessors())
    return copies


def clone_computation(
    computation: HloComputation, name: str | None = None, module: HloModule | None = None
) -> HloComputation:
    """Copy a computation; with `module` the copy is added there, under names free in it."""
    clone = HloComputation(name if name is not None else f"{computation.name}.clone")
    clone.attrs = dict(computation.attrs)
    clone.span = computation.span
    copies = clone_instructions(computation, clone, None)
    clone.root = copies[computation.root_instruction]
    if module is not None:
        module.add_computation(clone)
    return clone


def structural_hash(computation: HloComputation) -> str:
    """A digest that is equal for computations that compute the same in the same way.

    Names, metadata, source places and the order of independent instructions do not count;
    opcodes, shapes with layouts, attributes, literals and called computations do.
    """
    return _structural_hash(computation, {})


def _structural_hash(computation: HloComputation, known: dict[HloComputation, str]) -> str:
    if computation in known:
        return known[computation]
    digest = hashlib.blake2b(digest_size=16)
    number: dict[HloInstruction, int] = {}
    for parameter in computation.parameters:
        digest.update(f"parameter {print_shape(parameter.shape)}\n".encode())
        number[parameter] = len(number)
    for instr in _reachable_post_order(computation):
        if instr in number:
            continue
        number[instr] = len(number)
        operands = ",".join(str(number[operand]) for operand in instr.operands)
        digest.update(f"{instr.opcode} {print_shape(instr.shape)} ({operands})".encode())
        for key in sorted(instr.attrs):
            if key in ("metadata", "frontend_attributes", "control-predecessors"):
                continue
            digest.update(b" " + key.encode() + b"=")
            digest.update(_attribute_bytes(instr.attrs[key], known))
        digest.update(b"\n")
    digest.update(f"root {number[computation.root_instruction]}".encode())
    known[computation] = digest.hexdigest()
    return known[computation]


def _attribute_bytes(value: object, known: dict[HloComputation, str]) -> bytes:
    if isinstance(value, HloComputation):
        return _structural_hash(value, known).encode()
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, tuple):
        return b"(" + b",".join(_attribute_bytes(v, known) for v in value) + b")"
    return repr(value).encode()


def _reachable_post_order(computation: HloComputation) -> list[HloInstruction]:
    done: dict[HloInstruction, None] = {}
    root = computation.root_instruction
    path: dict[HloInstruction, Iterator[HloInstruction]] = {root: iter(root.operands)}
    while path:
        current = next(reversed(path))
        missing = next((o for o in path[current] if o not in done), None)
        if missing is None:
            del path[current]
            done[current] = None
        else:
            path[missing] = iter(missing.operands)
    return list(done)


def module_hash(module: HloModule) -> int:
    """A quick fingerprint, names and order included, to tell whether a pass changed anything.

    Valid within this process only.
    """
    seen: dict[int, int] = {}
    parts: list[object] = [module.name, module.entry_name, _attrs_hash(module.attrs, seen)]
    parts.extend(_computation_hash(c, seen) for c in module.computations.values())
    return hash(tuple(parts))


def computation_hash(computation: HloComputation) -> int:
    """The part of `module_hash` that one computation contributes."""
    return _computation_hash(computation, {})


def _computation_hash(computation: HloComputation, seen: dict[int, int]) -> int:
    rows: list[object] = [computation.name, computation.root]
    append = rows.append
    for instr in computation.instructions:
        shape_id = id(instr.shape)
        shape_hash = seen.get(shape_id)
        if shape_hash is None:
            shape_hash = seen[shape_id] = hash(instr.shape)
        append((instr.name, instr.opcode, shape_hash, *instr.operands))
        if instr.attrs:
            append(_attrs_hash(instr.attrs, seen))
    return hash(tuple(rows))


def _attrs_hash(attrs: dict[str, object], seen: dict[int, int]) -> int:
    rows: list[object] = []
    for name, value in attrs.items():
        if type(value) is int or type(value) is str:
            rows.append((name, value))
            continue
        value_id = id(value)
        found = seen.get(value_id)
        if found is None:
            found = seen[value_id] = _value_hash(value)
        rows.append((name, found))
    return hash(tuple(rows))


def _value_hash(value: object) -> int:
    if isinstance(value, np.ndarray):
        return hash((value.dtype, value.shape, value.tobytes()))
    if isinstance(value, tuple) and any(isinstance(v, np.ndarray | tuple) for v in value):
        return hash(tuple(_value_hash(v) for v in value))
    return hash(value)
