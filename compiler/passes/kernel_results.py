"""Results of kernels that are added and taken away, and who reads them."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.hlo.call_graph import callers
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.rewrite.graph import emit, remove_dead, replace


def shared_bodies(module: HloModule) -> set[HloComputation]:
    """Bodies that several fusions have."""
    return {body for body, by in callers(module).items() if len(by) > 1}


def put_after(
    computation: HloComputation, made: dict[HloInstruction, list[HloInstruction]]
) -> None:
    """Schedule new instructions just after those that they belong to."""
    new = {i for group in made.values() for i in group}
    order: list[HloInstruction] = []
    for instr in computation:
        if instr not in new:
            order += (instr, *made.get(instr, ()))
    computation.instructions = dict.fromkeys(order)


def has_results(instr: HloInstruction) -> bool:
    """Whether this is a fusion of several results."""
    return (
        instr.opcode == "fusion"
        and isinstance(instr.shape, TupleShape)
        and instr.calls.root_instruction.opcode == "tuple"
    )


def results_of(kernel: HloInstruction) -> list[HloInstruction]:
    """The arrays that a kernel makes, as its readers have them."""
    if isinstance(kernel.shape, ArrayShape):
        return [kernel]
    if kernel.computation is None or kernel.computation.root is kernel:
        return []
    elements = [u for u in kernel.users if u.opcode == "get-tuple-element"]
    once = {e.index for e in elements}
    return elements if len(elements) == len(kernel.users) == len(once) else []


def array_of(kernel: HloInstruction) -> HloInstruction:
    """A value; the first result of a kernel that has several."""
    if isinstance(kernel.shape, ArrayShape):
        return kernel
    return next(u for u in kernel.users if u.opcode == "get-tuple-element" and u.index == 0)


def add_result(
    kernel: HloInstruction, node: HloInstruction, shape: ArrayShape
) -> tuple[HloInstruction, list[HloInstruction]]:
    """Let a kernel return a node of its body too, last; `shape` has the layout of the array.

    Returns the new element, and all that is new in the kernel's computation, the element last.
    """
    made: list[HloInstruction] = []
    body = kernel.calls
    if isinstance(kernel.shape, ArrayShape):
        made.append(_as_tuple(kernel))
    root = body.root_instruction
    index = len(root.operands)
    root.set_operands((*root.operands, node))
    root.shape = TupleShape((*array_elements(root), node.array))
    kernel.shape = TupleShape((*array_elements(kernel), shape))
    made.append(emit(kernel, "get-tuple-element", shape, (kernel,), {"index": index}, node.name))
    return made[-1], made


def _as_tuple(kernel: HloInstruction) -> HloInstruction:
    """Let a kernel return its array in a tuple; returns the element that its readers have then."""
    body, shape = kernel.calls, kernel.array
    root = body.root_instruction
    body.root = emit(root, "tuple", TupleShape((root.shape,)), (root,))
    users = [(u, n) for u in kernel.users for n, o in enumerate(u.operands) if o is kernel]
    kernel.shape = TupleShape((shape,))
    element = emit(kernel, "get-tuple-element", shape, (kernel,), {"index": 0}, root.name)
    for user, number in users:
        user.set_operand(number, element)
    if kernel.home.root is kernel:
        kernel.home.root = element
    return element


def view_of(
    operand: HloInstruction,
    views: dict[HloInstruction, HloInstruction],
    made: list[HloInstruction],
) -> HloInstruction:
    """An operand, a view of an array, as the same view of another: `views` has the other ones."""
    if operand not in views:
        source = view_of(operand.operands[0], views, made)
        views[operand] = emit(operand, "bitcast", operand.shape, (source,), operand.attrs)
        made.append(views[operand])
    return views[operand]


def drop_elements(kernel: HloInstruction, gone: Mapping[HloInstruction, HloInstruction]) -> None:
    """Let readers of elements of a kernel's results read others in their place; the elements go."""
    body, shapes = kernel.calls, array_elements(kernel)
    numbers = {element.index for element in gone}
    for element, other in gone.items():
        read_instead(element, other)
    left = [n for n in range(len(shapes)) if n not in numbers]
    elements = list(kernel.users)
    for element in elements:
        element.attrs["index"] = left.index(element.index)
    root = body.root_instruction
    operands = [root.operands[n] for n in left]
    root.set_operands(operands)
    root.shape = TupleShape(tuple(o.shape for o in operands))
    kernel.shape = TupleShape(tuple(shapes[n] for n in left))
    if len(left) == 1:
        body.root = operands[0]
        remove_dead(root)
        kernel.shape = shapes[left[0]]
        (only,) = elements
        only.replace_all_uses_with(kernel)
        remove_dead(only)


def read_instead(twin: HloInstruction, value: HloInstruction) -> None:
    """Make the readers of a twin read the value, through the views that it has of its own."""
    for view in [u for u in twin.users if u.opcode == "bitcast"]:
        same = next(
            (u for u in value.users if u.opcode == "bitcast" and u.shape == view.shape), None
        )
        if same is not None and same is not view:
            read_instead(view, same)
    replace(twin, value)


def array_elements(instr: HloInstruction) -> tuple[ArrayShape, ...]:
    """The shapes of a tuple of arrays."""
    assert isinstance(instr.shape, TupleShape)
    return tuple(element for element in instr.shape.elements if isinstance(element, ArrayShape))
