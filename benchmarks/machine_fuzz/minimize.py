"""Makes a failing program small: drops nodes, bundles and instructions while it fails in the same way."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator

from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.instruction import ROWS, VREG, Instr
from tpu_sim.isa.program import Block, Node, Program, blocks_of

Fails = Callable[[Program], bool]


def minimize(program: Program, fails: Fails, seconds: float = 60.0) -> Program:
    """A smaller program for which `fails` still holds; the best one found in the time given."""
    deadline = time.monotonic() + seconds
    best = copy.deepcopy(program)
    while time.monotonic() < deadline:
        smaller = _round(best, fails, deadline)
        if smaller is None:
            break
        best = smaller
    return best


def _round(best: Program, fails: Fails, deadline: float) -> Program | None:
    """One pass over everything that can be dropped; None if nothing could."""
    improved = False
    reductions = (
        _drop_nodes, _drop_bundles, _drop_instructions, _drop_queued, _to_constant, _drop_bubbles,
        _drop_kernels,
    )  # fmt: skip
    for reduce in reductions:
        number = 0
        while time.monotonic() < deadline:
            candidate = copy.deepcopy(best)
            if not reduce(candidate, number):
                break
            if fails(candidate):
                best, improved = candidate, True
            else:
                number += 1
    return best if improved else None


def _bodies(program: Program) -> list[list[Node]]:
    return [program.main, *(kernel.body for kernel in program.kernels.values())]


def _lists(nodes: list[Node]) -> Iterator[list[Node]]:
    yield nodes
    for node in nodes:
        match node:
            case Loop():
                yield from _lists(node.body)
            case If():
                yield from _lists(node.then)
                yield from _lists(node.orelse)
            case While():
                yield from _lists(node.test)
                yield from _lists(node.body)


def _inner(node: Node) -> list[list[Node]]:
    match node:
        case Loop():
            return [node.body]
        case If():
            return [node.then, node.orelse]
        case While():
            return [[*node.test, *node.body]]
    return []


def _drop_nodes(program: Program, number: int) -> bool:
    """Drop node `number`, or put what is in it in its place."""
    for body in _bodies(program):
        for nodes in _lists(body):
            for at, node in enumerate(nodes):
                for replacement in ([], *_inner(node)):
                    if number == 0:
                        nodes[at : at + 1] = replacement
                        return True
                    number -= 1
    return False


def _blocks(program: Program) -> list[Block]:
    return [block for body in _bodies(program) for block in blocks_of(body)]


def _drop_bundles(program: Program, number: int) -> bool:
    """Empty a range of bundles: halves, quarters, ... of each block."""
    for block in _blocks(program):
        full = [at for at, bundle in enumerate(block.bundles) if bundle]
        size = len(full)
        while size >= 1:
            for start in range(0, len(full), size):
                if number == 0:
                    for at in full[start : start + size]:
                        block.bundles[at] = ()
                    return True
                number -= 1
            size //= 2
    return False


def _drop_instructions(program: Program, number: int) -> bool:
    for block in _blocks(program):
        for at, bundle in enumerate(block.bundles):
            if len(bundle) < 2:
                continue
            if number < len(bundle):
                block.bundles[at] = bundle[:number] + bundle[number + 1 :]
                return True
            number -= len(bundle)
    return False


def _drop_queued(program: Program, number: int) -> bool:
    """Drop something pushed to a queue; what is popped instead is a constant."""
    for body in _bodies(program):
        pushes: dict[str, list[_Place]] = {}
        pops: dict[str, list[_Place]] = {}
        for block in blocks_of(body):
            for at, bundle in enumerate(block.bundles):
                for instr in bundle:
                    if instr.row.pushes:
                        queue = f"{instr.row.pushes} {_unit(instr)}"
                        times = 2 if instr.row.pushes == "mrf" else 1
                        pushes.setdefault(queue, []).extend([(block, at, instr)] * times)
                    if instr.row.pops:
                        pops.setdefault(f"{instr.row.pops} {_unit(instr)}", []).append(
                            (block, at, instr)
                        )
        for queue, places in pushes.items():
            step = 2 if queue.startswith("mrf") else 1
            if number < len(places) // step:
                first = number * step
                for block, at, instr in pops.get(queue, [])[first : first + step]:
                    _replace(block, at, instr, _constant(instr))
                _replace(*places[first])
                return True
            number -= len(places) // step
    return False


_Place = tuple[Block, int, Instr]


def _unit(instr: Instr) -> int:
    """The MXU of an instruction, -1 if it has none."""
    index = instr.row.unit_index
    return instr.operands[index] if index >= 0 else -1


def _constant(instr: Instr) -> Instr:
    return Instr(ROWS["vmovi"], (instr.operands[0], 0))


def _replace(block: Block, at: int, instr: Instr, *others: Instr) -> None:
    bundle = block.bundles[at]
    index = next(n for n, other in enumerate(bundle) if other is instr)
    block.bundles[at] = (*bundle[:index], *others, *bundle[index + 1 :])


def _to_constant(program: Program, number: int) -> bool:
    """A constant for a computed vreg."""
    for block in _blocks(program):
        for at, bundle in enumerate(block.bundles):
            for instr in bundle:
                write = instr.row.write
                is_vreg = write is not None and write.register_class == VREG
                if not is_vreg or instr.row.pops or instr.row.name == "vmovi":
                    continue
                if number == 0:
                    _replace(block, at, instr, _constant(instr))
                    return True
                number -= 1
    return False


def _drop_bubbles(program: Program, number: int) -> bool:
    """Drop runs of empty bundles, or halves of them."""
    for block in _blocks(program):
        at = 0
        while at < len(block.bundles):
            end = at
            while end < len(block.bundles) and not block.bundles[end]:
                end += 1
            for size in {end - at, (end - at) // 2, min(1, end - at)} - {0}:
                if number == 0:
                    del block.bundles[at : at + size]
                    return True
                number -= 1
            at = end + 1
    return False


def _drop_kernels(program: Program, number: int) -> bool:
    if number >= len(program.kernels):
        return False
    del program.kernels[list(program.kernels)[number]]
    return True
