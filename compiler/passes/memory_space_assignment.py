"""Memory space assignment: scalars that steer the program live in SMEM, ``S(6)``.

In SMEM are rank-0 values of s32, u32, pred and f32 that are made by scalar fusions (all
operands and results rank 0), are constants, or are carried by while and conditional. Fusions
read rank-0 operands from SMEM too. A kernel of windows leaves such a result in SMEM if all who read it
look there. Other values made by kernels, entry parameters and results are in HBM; a `copy` stands between
the two. Arrays of which the scalar unit accesses elements (`compiler.analysis.element_access`) are in SMEM
as well.
"""

from __future__ import annotations

from compiler.analysis.aliasing import Slot
from compiler.analysis.element_access import arrays_of_elements, is_element_access
from compiler.analysis.tiled_layout import memory_space
from compiler.analysis.window_planner import PLANNED_KINDS
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves
from compiler.passes.array_places import move_arrays
from compiler.passes.context import PassContext
from compiler.passes.kernel_results import shared_bodies
from compiler.passes.layout_assignment import in_space
from compiler.rewrite.graph import emit, replace
from tpu_sim.isa.program import HBM, SMEM

_SCALAR_TYPES = frozenset({"s32", "u32", "pred", "f32"})


def assign_memory_spaces(module: HloModule, context: PassContext) -> bool:
    """Place every scalar in SMEM or HBM and insert the copies between."""
    in_smem = [slot for slot in arrays_of_elements(module) if not _lies_in_smem(slot)]
    move_arrays(in_smem, SMEM)
    is_changed = bool(in_smem)
    is_changed |= _make_elements_scalars(module)
    for computation in control_computations(module):
        is_entry = computation is module.entry
        before = [(instr, instr.shape) for instr in computation]
        for instr in list(computation):
            _place_result(instr, is_entry=is_entry)
            _settle_operands(instr, context)
        _settle_root(computation, context, is_entry=is_entry)
        computation.sort()
        for instr in computation:
            _refresh_shape(instr)
            context.counts["smem"] += sum(_is_smem(leaf) for leaf in leaves(instr.shape))
        is_changed |= before != [(instr, instr.shape) for instr in computation]
    return is_changed


def _make_elements_scalars(module: HloModule) -> bool:
    """Let kernels whose array of one element everybody reads as a scalar, in SMEM, make that scalar."""
    shared = shared_bodies(module)
    is_changed = False
    for computation in control_computations(module):
        for kernel in [i for i in computation if is_planned(i) and i.kind == "kLoop"]:
            if kernel.calls not in shared and _is_element(kernel):
                _make_scalar(kernel)
                is_changed = True
    return is_changed


def _is_element(kernel: HloInstruction) -> bool:
    """Whether a kernel's one result is read through bitcasts to scalars that are looked for in SMEM."""
    if not isinstance(kernel.shape, ArrayShape) or not kernel.shape.dims:
        return False
    is_read = bool(kernel.users) and kernel.home.root is not kernel
    return is_read and all(
        view.opcode == "bitcast"
        and is_scalar_shape(view.shape)
        and view.array.dtype == kernel.array.dtype
        and _only_smem_reads(view)
        for view in kernel.users
    )


def _make_scalar(kernel: HloInstruction) -> None:
    body, views = kernel.calls, list(kernel.users)
    root, shape = body.root_instruction, views[0].array
    body.root = emit(root, "reshape", shape.with_layout(None), (root,))
    kernel.shape = shape
    for view in views:
        replace(view, kernel)


def _lies_in_smem(slot: Slot) -> bool:
    return memory_space(leaves(slot[0].shape)[slot[1]]) == SMEM


def is_scalar_shape(shape: Shape) -> bool:
    """Whether the scalar unit can hold a value of this shape."""
    return isinstance(shape, ArrayShape) and not shape.dims and shape.dtype.name in _SCALAR_TYPES


def is_scalar_fusion(instr: HloInstruction) -> bool:
    """Whether all operands and results of a fusion are scalars."""
    return (
        instr.opcode == "fusion"
        and instr.kind == "kLoop"
        and all(is_scalar_shape(leaf) for leaf in leaves(instr.shape))
        and all(is_scalar_shape(o.shape) for o in instr.operands)
    )


def is_planned(instr: HloInstruction) -> bool:
    """Whether it is a fusion that runs as a kernel with windows."""
    is_kernel = instr.opcode == "fusion" and instr.kind in PLANNED_KINDS
    return is_kernel and not is_scalar_fusion(instr)


def _is_smem(shape: Shape) -> bool:
    return (
        isinstance(shape, ArrayShape)
        and shape.layout is not None
        and shape.layout.memory_space == SMEM
    )


def _scalars_to_smem(shape: Shape) -> Shape:
    if is_scalar_shape(shape):
        assert isinstance(shape, ArrayShape)
        return in_space(shape, SMEM)
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(_scalars_to_smem(e) for e in shape.elements))
    return shape


def _place_result(instr: HloInstruction, *, is_entry: bool) -> None:
    """Decide where an instruction's scalars are made (before its users are looked at)."""
    is_carried = OPCODES[instr.opcode].has(Trait.HANDS_STATE) or (
        instr.opcode == "parameter" and not is_entry
    )
    if (
        is_carried
        or is_scalar_fusion(instr)
        or is_element_access(instr)
        or instr.opcode in ("constant", "partition-id")
    ):
        instr.shape = _scalars_to_smem(instr.shape)
    elif is_planned(instr):
        instr.shape = _results_of_kernel(instr)
    _refresh_shape(instr)


def _results_of_kernel(kernel: HloInstruction) -> Shape:
    """Its results, in SMEM the scalars of which nobody wants a copy in HBM."""
    if isinstance(kernel.shape, ArrayShape):
        return _scalars_to_smem(kernel.shape) if _only_smem_reads(kernel) else kernel.shape
    assert isinstance(kernel.shape, TupleShape)
    elements = list(kernel.shape.elements)
    readers: dict[int, list[HloInstruction]] = {n: [] for n in range(len(elements))}
    for user in kernel.users:
        if user.opcode != "get-tuple-element":
            return kernel.shape
        readers[user.index].append(user)
    for number, users in readers.items():
        if users and all(_only_smem_reads(user) for user in users):
            elements[number] = _scalars_to_smem(elements[number])
    return TupleShape(tuple(elements))


def _only_smem_reads(value: HloInstruction) -> bool:
    """Whether all who read a scalar look for it in SMEM, and somebody does."""
    computation = value.home
    is_root = computation.root is value
    if is_root and _is_entry(computation):
        return False
    return (is_root or bool(value.users)) and all(_looks_in_smem(u, value) for u in value.users)


def _looks_in_smem(user: HloInstruction, value: HloInstruction) -> bool:
    match user.opcode:
        case "fusion":
            numbers = [n for n, operand in enumerate(user.operands) if operand is value]
            return all(_reads_smem(user, number) for number in numbers)
        case "while" | "conditional":
            return True
        case "tuple":
            return _only_smem_reads(user)
    return False


def _is_entry(computation: HloComputation) -> bool:
    return computation.module is not None and computation.module.entry is computation


def _refresh_shape(instr: HloInstruction) -> None:
    """Tuples, their elements and bitcasts have the layouts of what they hold."""
    if instr.opcode == "tuple":
        instr.shape = TupleShape(tuple(o.shape for o in instr.operands))
    elif instr.opcode == "get-tuple-element":
        index, source = instr.index, instr.operands[0].shape
        assert isinstance(source, TupleShape)
        instr.shape = source.elements[index]


def _settle_operands(instr: HloInstruction, context: PassContext) -> None:
    """Insert copies so that scalar operands lie where the instruction reads them."""
    match instr.opcode:
        case "fusion":
            for index, operand in enumerate(instr.operands):
                if is_scalar_shape(operand.shape):
                    wanted = SMEM if _reads_smem(instr, index) else HBM
                    instr.set_operand(index, _moved(operand, wanted, context))
        case "while" | "conditional":
            for index, operand in enumerate(instr.operands):
                instr.set_operand(index, _carried(operand, context))


def _reads_smem(fusion: HloInstruction, index: int) -> bool:
    """Whether a fusion reads its scalar operand `index` from SMEM: custom kernels only starts."""
    if fusion.kind != "kCustom":
        return True
    called = fusion.calls
    return called.parameters[index] in _steering(called)


def _steering(called: HloComputation) -> set[HloInstruction]:
    """Start indices of a body's slices and updates, and what they are computed from."""
    first = {"dynamic-slice": 1, "dynamic-update-slice": 2}
    pending = [
        start
        for node in called
        for start in node.operands[first.get(node.opcode, len(node.operands)) :]
    ]
    found: set[HloInstruction] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.operands
    return found


def _moved(operand: HloInstruction, memory_space: int, context: PassContext) -> HloInstruction:
    """The scalar in `memory_space`: itself, or the copy made for an earlier user."""
    shape = in_space(operand.array, memory_space)
    if shape == operand.shape:
        return operand
    for user in operand.users:
        if user.opcode == "copy" and user.shape == shape:
            return user
    context.counts["copies"] += 1
    return emit(operand, "copy", shape, (operand,))


def _carried(operand: HloInstruction, context: PassContext) -> HloInstruction:
    """A control-flow operand whose scalars are all in SMEM."""
    wanted = _scalars_to_smem(operand.shape)
    if wanted == operand.shape:
        return operand
    if isinstance(operand.shape, ArrayShape):
        return _moved(operand, SMEM, context)
    return _rebuilt(operand, SMEM, context)


def _rebuilt(operand: HloInstruction, memory_space: int, context: PassContext) -> HloInstruction:
    """A tuple like `operand` with its scalars in `memory_space`."""
    assert isinstance(operand.shape, TupleShape)
    parts: list[HloInstruction] = []
    for index, shape in enumerate(operand.shape.elements):
        part = (
            operand.operands[index]
            if operand.opcode == "tuple"
            else emit(operand, "get-tuple-element", shape, (operand,), {"index": index})
        )
        if is_scalar_shape(part.shape):
            part = _moved(part, memory_space, context)
        elif isinstance(part.shape, TupleShape):
            part = _rebuilt(part, memory_space, context)
        parts.append(part)
    if operand.opcode == "tuple" and parts == operand.operands:
        return operand
    return emit(operand, "tuple", TupleShape(tuple(p.shape for p in parts)), parts)


def _settle_root(computation: HloComputation, context: PassContext, *, is_entry: bool) -> None:
    """Results of the entry lie in HBM, scalars that a body or condition returns in SMEM."""
    root = computation.root_instruction
    space = HBM if is_entry else SMEM
    if is_scalar_shape(root.shape):
        computation.root = _moved(root, space, context)
    elif any(is_scalar_shape(leaf) for leaf in leaves(root.shape)):
        computation.root = _rebuilt(root, space, context)
        if not root.users and computation.root is not root and root.opcode == "tuple":
            computation.remove(root)
