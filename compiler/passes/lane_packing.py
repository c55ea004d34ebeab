"""Lane packing: activations of few features lie several images side by side along the lanes.

    x = f32[111,111,32,32] maximum(c, z)      32 of 128 lanes

becomes

    x = f32[111,111,8,128] maximum(c', z')    lanes 32 p .. 32 p + 31 of row i are image 8 p + i

Where the batch lies next to the features (`activation_order`) and both do not fill the lanes, parts of
the batch are put beside one another: ``[.., batch, features]`` becomes
``[.., batch / parts, parts * features]``. Arrays take no padding in memory, and what is computed element
by element, pooled, or convolved a feature at a time fills its registers. A convolution that mixes features
meets one image at a time: the parts are taken apart where it reads its image and put together where it
gives its result, which moves whole rows by some lanes.

The packing spreads from the images and results of convolutions to what is computed of them and what these
are computed of: elementwise operations, pads, slices and windows of positions. Sums over the batch are
sums of parts.
"""

from __future__ import annotations

import math

from compiler.analysis.reducers import has_identity_init
from compiler.hlo.call_graph import reachable
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.algebraic_simplifier import simplify_algebra
from compiler.passes.context import PassContext
from compiler.passes.dot_canonicalizer import dimension_fills_lanes
from compiler.passes.image_order import ImageOrder
from compiler.rewrite import make
from compiler.rewrite.graph import emit, remove_dead
from tpu_sim.isa.geometry import LANES, SUBLANES

Instr = HloInstruction
Dims = tuple[int, ...]
_INSIDE = ImageOrder(batch_inside=True)
_MOST_PARTS = 8
_LEAST_WASTE = 1.9
"""How many times its bytes an array must take for its padding."""
_LEAST_PACKED = 4
"""How many times more of the waste must be saved than is left."""
_LEAST_ELEMENTS = 1 << 16
"""Smaller arrays lie in VMEM, and what they waste there is little."""


def pack_lanes(module: HloModule, context: PassContext) -> bool:
    """Pack the lanes of arrays around convolutions whose features do not fill them."""
    for computation in filter(_is_mostly_packed, reachable(module)):
        region = _Region(computation)
        if region.members:
            context.counts["arrays"] += len(region.members)
            _Rewriter(computation, region.members).run()
    if not context.counts["arrays"]:
        return False
    simplify_algebra(module, context)
    return True


def parts_of(dims: Dims) -> int:
    """How many parts of the batch of ``[.., batch, features]`` lie side by side; 1 where none do."""
    if len(dims) < 3:
        return 1
    batch, features = dims[-2:]
    if not features or not _wastes_lanes(features):
        return 1
    parts = 1
    while parts < _MOST_PARTS and _fit(2 * parts, batch, features):
        parts *= 2
    return parts


def _fit(parts: int, batch: int, features: int) -> bool:
    """Whether so many parts are one register wide, and each of whole row tiles."""
    return parts * features <= LANES and batch % (parts * SUBLANES) == 0


def _is_mostly_packed(computation: HloComputation) -> bool:
    """Whether most of what convolutions waste beside their features is what packing saves.

    Arrays of other features, and whose batch lies elsewhere or fills the lanes by itself, had better lie
    with rows along the lanes, and all around them too (`dimension_order`).
    """
    packed = other = 0
    for instr in computation:
        if instr.opcode != "convolution" or _is_gradient_of_kernel(instr):
            continue
        labels, image = instr.dim_labels, instr.operands[0]
        ends = [(instr, labels.output_feature)]
        ends += [(image, labels.input_feature)] if image.opcode != "parameter" else []
        for array, dim in ends:
            dims = array.array.dims
            count, features = array.array.element_count, dims[dim]
            if count < _LEAST_ELEMENTS or features < SUBLANES or not _wastes_lanes(features):
                continue
            whole = count // features * LANES
            is_packable = is_batch_last(instr) and parts_of(dims) > 1
            if is_packable and not dimension_fills_lanes(dims[-2], (features,)):
                packed += whole
            else:
                other += whole
    return packed > _LEAST_PACKED * other


def _is_gradient_of_kernel(convolution: Instr) -> bool:
    """Whether a window meets more positions than it gives."""
    positions = (convolution.array.dims[d] for d in convolution.dim_labels.output_spatial)
    return math.prod(d.size for d in convolution.window.dims) > math.prod(positions)


def _wastes_lanes(features: int) -> bool:
    return -(-features // LANES) * LANES >= _LEAST_WASTE * features


class _Region:
    """The instructions of a computation whose arrays are packed."""

    def __init__(self, computation: HloComputation) -> None:
        self.members: dict[Instr, None] = {}
        pending: list[Instr] = []
        for instr in computation:
            if instr.opcode == "convolution" and is_batch_last(instr):
                pending += [instr.operands[0], instr]
        while pending:
            instr = pending.pop()
            if instr in self.members or not _may_be_packed(instr):
                continue
            self.members[instr] = None
            pending += [user for user in instr.users if _keeps_parts(user, instr.array.dims[-2:])]
            if instr.opcode != "convolution" and _keeps_parts(instr, instr.array.dims[-2:]):
                pending += [o for o in instr.operands if _ends_alike(o, instr)]


def is_batch_last(convolution: Instr) -> bool:
    """Whether image and result of a convolution list the batch and the features last."""
    labels, rank = convolution.dim_labels, convolution.array.rank
    order = tuple(range(rank))
    return _INSIDE.image(labels) == order and _INSIDE.result(labels) == order


def _may_be_packed(instr: Instr) -> bool:
    if not isinstance(instr.shape, ArrayShape) or instr.array.element_count < _LEAST_ELEMENTS:
        return False
    dtype = instr.array.dtype
    is_plain = dtype.bits in (16, 32) or dtype.kind == "pred"
    is_made = instr.opcode == "convolution" or _keeps_parts(instr, instr.array.dims[-2:])
    return is_plain and is_made and parts_of(instr.array.dims) > 1


def _ends_alike(operand: Instr, instr: Instr) -> bool:
    return (
        isinstance(operand.shape, ArrayShape) and operand.array.dims[-2:] == instr.array.dims[-2:]
    )


def _keeps_parts(instr: Instr, last: Dims) -> bool:
    """Whether an operation gives each batch and feature of operands that end in `last` where they are."""
    if not isinstance(instr.shape, ArrayShape) or instr.array.dims[-2:] != last:
        return False
    rank = instr.array.rank
    if instr.opcode == "broadcast":
        return list(instr.dimensions) == sorted(instr.dimensions)
    if instr.opcode == "reshape":
        return instr.operands[0].array.dims[-2:] == last
    if instr.opcode == "transpose":
        return instr.dimensions[-2:] == (rank - 2, rank - 1)
    if instr.opcode == "pad":
        return instr.padding[-2:] == ((0, 0, 0), (0, 0, 0))
    if instr.opcode == "slice":
        return instr.operands[0].array.dims[-2:] == last
    if instr.opcode == "reverse" or instr.opcode == "concatenate":
        return max(instr.dimensions) < rank - 2
    if instr.opcode == "convolution":
        return False
    if "window" in instr.attrs:
        return all(d.size == 1 and d.base_dilation == 1 for d in instr.window.dims[-2:])
    return OPCODES[instr.opcode].has(Trait.ELEMENTWISE)


class _Rewriter:
    """Makes the packed arrays, and what reads them."""

    def __init__(self, computation: HloComputation, members: dict[Instr, None]) -> None:
        self._computation = computation
        self._members = members
        self._packed: dict[Instr, Instr] = {}

    def run(self) -> None:
        """Rewrite the computation."""
        instructions = list(self._computation)
        for instr in instructions:
            if instr in self._members:
                self._packed[instr] = self._made(instr)
            elif instr.opcode == "reduce" and self._is_sum_of_parts(instr):
                instr.replace_all_uses_with(self._sum_of_parts(instr))
        for instr in self._members:
            self._replace_in(instructions, instr)
        for instr in reversed(instructions):
            if instr.computation is not None:
                remove_dead(instr)
        self._computation.sort()

    def _replace_in(self, instructions: list[Instr], instr: Instr) -> None:
        """Let what is left of the computation read a packed array apart; not what was made of it."""
        old = dict.fromkeys(instructions)
        users = [u for u in instr.users if u in old and self._is_kept(u)]
        if not users and instr is not self._computation.root_instruction:
            return
        apart = _unpacked(self._packed[instr], parts_of(instr.array.dims))
        for user in users:
            user.set_operands([apart if o is instr else o for o in user.operands])
        if instr is self._computation.root_instruction:
            self._computation.root = apart

    def _is_kept(self, instr: Instr) -> bool:
        """Whether an instruction stays as it is, and takes its operands so."""
        is_mixed = instr.opcode == "convolution" and not self._is_by_feature(instr)
        return is_mixed or instr not in self._members

    def _of(self, operand: Instr, parts: int) -> Instr:
        """An operand ``[.., batch, features]`` packed; a scalar as it is."""
        if operand in self._packed:
            return self._packed[operand]
        return operand if not operand.array.dims else _packed(operand, parts)

    def _made(self, instr: Instr) -> Instr:
        parts = parts_of(instr.array.dims)
        dims = _packed_dims(instr.array.dims, parts)
        shape = instr.array.with_dims(dims)
        attrs = dict(instr.attrs)
        if instr.opcode == "convolution":
            if self._is_kept(instr):
                return _packed(instr, parts)
            operands = [self._packed[instr.operands[0]], _repeated(instr.operands[1], parts)]
            attrs["feature_group_count"] = dims[-1]
            return emit(instr, "convolution", shape, operands, attrs, instr.name)
        if instr.opcode == "broadcast":
            return _broadcast(instr, parts)
        if instr.opcode == "slice":
            attrs["slice"] = (*instr.slice[:-2], (0, dims[-2], 1), (0, dims[-1], 1))
        operands = [self._of(o, parts) for o in instr.operands]
        return emit(instr, instr.opcode, shape, operands, attrs, instr.name)

    def _is_by_feature(self, convolution: Instr) -> bool:
        """Whether a convolution meets one feature at a time, and its image is packed alike."""
        labels, (image, kernel) = convolution.dim_labels, convolution.operands
        features = image.array.dims[labels.input_feature]
        is_alike = image in self._members and image.array.dims[-2:] == convolution.array.dims[-2:]
        is_single = kernel.array.dims[labels.kernel_input_feature] == 1
        is_last = labels.kernel_output_feature == kernel.array.rank - 1
        groups = convolution.feature_group_count
        return is_alike and is_single and is_last and groups == features

    def _is_sum_of_parts(self, reduce: Instr) -> bool:
        operand = reduce.operands[0]
        if len(reduce.operands) != 2 or operand not in self._members:
            return False
        return operand.array.rank - 1 not in reduce.dimensions and has_identity_init(reduce)

    def _sum_of_parts(self, reduce: Instr) -> Instr:
        """A reduction over positions, and the batch or not, of a packed array."""
        source, init = reduce.operands
        parts, rank = parts_of(source.array.dims), source.array.rank
        packed = self._packed[source]
        dims = tuple(n for d, n in enumerate(packed.array.dims) if d not in reduce.dimensions)
        shape = reduce.array.with_dims(dims)
        total = emit(reduce, "reduce", shape, (packed, init), dict(reduce.attrs), reduce.name)
        if rank - 2 not in reduce.dimensions:
            return _unpacked(total, parts)
        *lead, wide = dims
        apart = make.reshape(total, (*lead, parts, wide // parts))
        attrs: dict[str, object] = {**reduce.attrs, "dimensions": (len(lead),)}
        return emit(reduce, "reduce", reduce.array, (apart, init), attrs)


def _packed_dims(dims: Dims, parts: int) -> Dims:
    return (*dims[:-2], dims[-2] // parts, parts * dims[-1])


def _packed(array: Instr, parts: int) -> Instr:
    """``[.., parts * rows, features]`` as ``[.., rows, parts * features]``."""
    *lead, batch, features = array.array.dims
    count = len(lead)
    apart = make.reshape(array, (*lead, parts, batch // parts, features))
    turned = make.transpose(apart, (*range(count), count + 1, count, count + 2))
    return make.reshape(turned, _packed_dims(array.array.dims, parts))


def _unpacked(packed: Instr, parts: int) -> Instr:
    """``[.., rows, parts * features]`` as ``[.., parts * rows, features]``."""
    *lead, rows, wide = packed.array.dims
    count = len(lead)
    apart = make.reshape(packed, (*lead, rows, parts, wide // parts))
    turned = make.transpose(apart, (*range(count), count + 1, count, count + 2))
    return make.reshape(turned, (*lead, parts * rows, wide // parts))


def _repeated(array: Instr, parts: int) -> Instr:
    """``[.., features]`` as ``[.., parts * features]``, each part the same."""
    *lead, features = array.array.dims
    count = len(lead)
    spread = make.broadcast(array, (*lead, parts, features), (*range(count), count + 1))
    return make.reshape(spread, (*lead, parts * features))


def _broadcast(instr: Instr, parts: int) -> Instr:
    """A broadcast to ``[.., batch, features]``, packed."""
    (operand,) = instr.operands
    dims = _packed_dims(instr.array.dims, parts)
    rank, mapping = len(dims), instr.dimensions
    has_batch, has_features = rank - 2 in mapping, rank - 1 in mapping
    if has_batch and has_features:
        operand = _packed(operand, parts)
    elif has_features:
        operand = _repeated(operand, parts)
    elif has_batch:  # each row's images along the lanes of their features
        features = instr.array.dims[-1]
        *lead, batch = operand.array.dims
        wide = make.broadcast(operand, (*lead, batch, features), tuple(range(len(lead) + 1)))
        operand, mapping = _packed(wide, parts), (*mapping, rank - 1)
    return make.broadcast(operand, dims, mapping)
