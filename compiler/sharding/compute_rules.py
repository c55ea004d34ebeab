"""Sharding rules of operations that contract, reduce, gather, scatter, sort and the like."""

from __future__ import annotations

from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.sharding.movement_rules import RuleOf, ints, maker_of, number, whole_along
from compiler.sharding.rule import FactorKind, RuleMaker, ShardingRule


def _dot(instr: HloInstruction) -> ShardingRule:
    """Result dimensions are batch, then the left side's, then the right side's."""
    found = maker_of(instr)
    sides = found.operand_dims[:2]
    batch = ints(instr, "lhs_batch_dims"), ints(instr, "rhs_batch_dims")
    contracted = ints(instr, "lhs_contracting_dims"), ints(instr, "rhs_contracting_dims")
    target = 0
    for left, right in zip(*batch, strict=True):
        found.add(sides[0][left], {0: left, 1: right}, {0: target})
        target += 1
    for side in (0, 1):
        for dim, size in enumerate(sides[side]):
            if dim not in batch[side] and dim not in contracted[side]:
                found.add(size, {side: dim}, {0: target})
                target += 1
    for left, right in zip(*contracted, strict=True):
        found.add(sides[0][left], {0: left, 1: right}, {}, FactorKind.REDUCE)
    return found.rule()


def _convolution(instr: HloInstruction) -> ShardingRule:
    found = maker_of(instr)
    labels, window = instr.attrs["dim_labels"], instr.attrs.get("window", Window())
    assert isinstance(labels, ConvDims)
    assert isinstance(window, Window)
    image = found.operand_dims[0]
    (made,) = found.result_dims
    groups = number(instr, "feature_group_count", 1)
    batches = number(instr, "batch_group_count", 1)
    dims = zip(labels.input_spatial, labels.output_spatial, window.dims, strict=True)
    if batches > 1:
        _add_batch_groups(found, labels, batches)
    else:
        found.add(image[labels.input_batch], {0: labels.input_batch}, {0: labels.output_batch})
    if groups > 1:
        _add_feature_groups(found, labels, groups)
    else:
        places = {0: labels.input_feature, 1: labels.kernel_input_feature}
        found.add(image[labels.input_feature], places, {}, FactorKind.REDUCE)
        if batches == 1:
            places = {1: labels.kernel_output_feature}
            found.add(made[labels.output_feature], places, {0: labels.output_feature})
    for source, target, part in dims:
        size, kind = image[source], _kind_of_window(part)
        found.add(size if size >= made[target] else made[target], {0: source}, {0: target}, kind)
    return found.rule()


def _add_batch_groups(found: RuleMaker, labels: ConvDims, groups: int) -> None:
    """The groups are the major part of the batch, and of the features that are made."""
    batch = found.operand_dims[0][labels.input_batch]
    features = found.result_dims[0][labels.output_feature]
    places = {0: labels.input_batch, 1: labels.kernel_output_feature}
    found.add(groups, places, {0: labels.output_feature})
    found.add(batch // groups, {0: labels.input_batch}, {0: labels.output_batch})
    rest = {1: labels.kernel_output_feature}
    found.add(features // groups, rest, {0: labels.output_feature})


def _add_feature_groups(found: RuleMaker, labels: ConvDims, groups: int) -> None:
    """The groups are the major part of the features on both sides."""
    given = found.operand_dims[0][labels.input_feature]
    features = found.result_dims[0][labels.output_feature]
    places = {0: labels.input_feature, 1: labels.kernel_output_feature}
    found.add(groups, places, {0: labels.output_feature})
    inside = {0: labels.input_feature, 1: labels.kernel_input_feature}
    found.add(given // groups, inside, {}, FactorKind.REDUCE)
    rest = {1: labels.kernel_output_feature}
    found.add(features // groups, rest, {0: labels.output_feature})


def _reduce(instr: HloInstruction) -> ShardingRule:
    """Half of the operands are arrays, the others the scalars that they start from."""
    found = maker_of(instr)
    count = len(found.operand_dims) // 2
    reduced = ints(instr, "dimensions")
    target = 0
    for dim, size in enumerate(found.operand_dims[0]):
        arrays = dict.fromkeys(range(count), dim)
        if dim in reduced:
            found.add(size, arrays, {}, FactorKind.REDUCE)
        else:
            found.add(size, arrays, dict.fromkeys(range(count), target))
            target += 1
    return found.rule()


def _kind_of_window(part: WindowDim) -> FactorKind:
    """Tiles pass where every window is the one element of its own place."""
    is_same = part.size == part.stride == part.base_dilation == 1
    return FactorKind.PASS if is_same and part.pad_low == part.pad_high == 0 else FactorKind.PERMUTE


def _reduce_window(instr: HloInstruction) -> ShardingRule:
    found = maker_of(instr)
    window = instr.attrs["window"]
    assert isinstance(window, Window)
    count = len(found.operand_dims) // 2
    for dim, part in enumerate(window.dims):
        given, made = found.operand_dims[0][dim], found.result_dims[0][dim]
        places = dict.fromkeys(range(count), dim)
        targets = dict.fromkeys(range(count), dim)
        found.add(max(given, made), places, targets, _kind_of_window(part))
    return found.rule()


def _select_and_scatter(instr: HloInstruction) -> ShardingRule:
    """The result is as large as the operand; the source has an element for each window."""
    found = maker_of(instr)
    window = instr.attrs["window"]
    assert isinstance(window, Window)
    for dim, (size, part) in enumerate(zip(found.result_dims[0], window.dims, strict=True)):
        found.add(size, {0: dim, 1: dim}, {0: dim}, _kind_of_window(part))
    return found.rule()


def _gather(instr: HloInstruction) -> ShardingRule:
    found = maker_of(instr)
    operand, indices = found.operand_dims
    (made,) = found.result_dims
    offsets, collapsed = ints(instr, "offset_dims"), ints(instr, "collapsed_slice_dims")
    batching = ints(instr, "operand_batching_dims")
    of_indices = ints(instr, "start_indices_batching_dims")
    vector = number(instr, "index_vector_dim", len(indices))
    batch_dims = [d for d in range(len(made)) if d not in offsets]
    for target, dim in zip(
        batch_dims, [d for d in range(len(indices)) if d != vector], strict=True
    ):
        places = {1: dim}
        if dim in of_indices:
            places[0] = batching[of_indices.index(dim)]
        found.add(made[target], places, {0: target})
    slices = ints(instr, "slice_sizes")
    kept = [d for d in range(len(operand)) if d not in collapsed and d not in batching]
    for target, dim in zip(offsets, kept, strict=True):
        if slices[dim] == operand[dim]:
            found.add(operand[dim], {0: dim}, {0: target})
        else:
            found.add(operand[dim], {0: dim}, {}, FactorKind.REPLICATE)
    for dim in collapsed:
        found.add(operand[dim], {0: dim}, {}, FactorKind.REDUCE)
    return found.rule()


def _scatter(instr: HloInstruction) -> ShardingRule:
    """Operands, indices, updates; as many operands as updates and results."""
    found = maker_of(instr)
    count = (len(found.operand_dims) - 1) // 2
    operand, indices, update = (found.operand_dims[i] for i in (0, count, count + 1))
    windows, inserted = ints(instr, "update_window_dims"), ints(instr, "inserted_window_dims")
    batching = ints(instr, "input_batching_dims")
    of_indices = ints(instr, "scatter_indices_batching_dims")
    vector = number(instr, "index_vector_dim", len(indices))
    arrays = range(count)
    updates = range(count + 1, 2 * count + 1)
    scatter_dims = [d for d in range(len(update)) if d not in windows]
    index_dims = [d for d in range(len(indices)) if d != vector]
    for source, dim in zip(scatter_dims, index_dims, strict=True):
        places = {count: dim, **dict.fromkeys(updates, source)}
        if dim in of_indices:
            target = batching[of_indices.index(dim)]
            found.add(
                indices[dim],
                places | dict.fromkeys(arrays, target),
                dict.fromkeys(arrays, target),
            )
        else:
            kind = FactorKind.REDUCE if is_reduction(instr) else FactorKind.REPLICATE
            found.add(indices[dim], places, {}, kind)
    kept = [d for d in range(len(operand)) if d not in inserted and d not in batching]
    for source, dim in zip(windows, kept, strict=True):
        places = dict.fromkeys(arrays, dim)
        if update[source] == operand[dim]:
            both = places | dict.fromkeys(updates, source)
            found.add(operand[dim], both, dict.fromkeys(arrays, dim))
        else:
            found.add(operand[dim], places, dict.fromkeys(arrays, dim), FactorKind.REPLICATE)
    for dim in inserted:
        found.add(operand[dim], dict.fromkeys(arrays, dim), dict.fromkeys(arrays, dim))
    return found.rule()


def is_reduction(instr: HloInstruction) -> bool:
    """Whether what it applies is one operation whose order does not matter."""
    body = instr.attrs.get("to_apply")
    if not isinstance(body, HloComputation) or body.root is None:
        return False
    info = OPCODES[body.root.opcode]
    operands = set(body.root.operands)
    return info.has(Trait.COMMUTATIVE | Trait.ASSOCIATIVE) and operands == set(body.parameters)


def _topk(instr: HloInstruction) -> ShardingRule:
    found = maker_of(instr)
    last = len(found.operand_dims[0]) - 1
    for dim in range(last):
        found.add_same(dim)
    found.add_same(last, FactorKind.REPLICATE, is_blocked=True, size=found.operand_dims[0][last])
    return found.rule()


def _fft(instr: HloInstruction) -> ShardingRule:
    found = maker_of(instr)
    rank = len(found.result_dims[0])
    transformed = len(ints(instr, "fft_length"))
    for dim in range(rank - transformed):
        found.add_same(dim)
    for dim in range(rank - transformed, rank):
        largest = max(found.operand_dims[0][dim], found.result_dims[0][dim])
        found.add_same(dim, FactorKind.REPLICATE, size=largest)
    return found.rule()


def _matrices(instr: HloInstruction) -> ShardingRule:
    """Batch dimensions pass; the last two are a matrix."""
    found = maker_of(instr)
    rank = len(found.result_dims[0])
    for dim in range(rank - 2):
        found.add_same(dim)
    if instr.opcode == "triangular-solve":
        column = rank - 1 if instr.attrs.get("left_side", False) else rank - 2
        found.add(found.result_dims[0][column], {1: column}, {0: column})
        row = 2 * rank - 3 - column
        found.add(found.result_dims[0][row], {0: row, 1: row}, {0: row}, FactorKind.REPLICATE)
        found.add(found.operand_dims[0][column], {0: column}, {}, FactorKind.REPLICATE)
    else:
        for dim in range(rank - 2, rank):
            found.add_same(dim, FactorKind.REPLICATE)
    return found.rule()


def _batch_norm(instr: HloInstruction) -> ShardingRule:
    """Arrays of the operand's rank, and vectors over its features."""
    found = maker_of(instr)
    feature = number(instr, "feature_index", 0)
    operand = found.operand_dims[0]
    for dim, size in enumerate(operand):
        given = {i: dim for i, dims in enumerate(found.operand_dims) if len(dims) == len(operand)}
        made = {i: dim for i, dims in enumerate(found.result_dims) if len(dims) == len(operand)}
        if dim == feature:
            given |= {i: 0 for i, dims in enumerate(found.operand_dims) if len(dims) == 1}
            made |= {i: 0 for i, dims in enumerate(found.result_dims) if len(dims) == 1}
        is_local = dim == feature or instr.opcode == "batch-norm-inference"
        found.add(size, given, made, FactorKind.PASS if is_local else FactorKind.REDUCE)
    return found.rule()


def _ragged_all_to_all(instr: HloInstruction) -> ShardingRule:
    """The output is updated in place; rows move between devices."""
    found = maker_of(instr)
    found.add(found.operand_dims[1][0], {1: 0}, {0: 0}, FactorKind.REPLICATE)
    for dim in range(1, len(found.result_dims[0])):
        found.add(found.result_dims[0][dim], {0: dim, 1: dim}, {0: dim})
    return found.rule()


def _collective(instr: HloInstruction) -> ShardingRule:
    """Of a region that is manual in other axes: pass but along the dimensions that it changes."""
    found = maker_of(instr)
    changed = set(ints(instr, "dimensions"))
    count = min(len(found.operand_dims), len(found.result_dims))
    ranks = {len(dims) for dims in (*found.operand_dims, *found.result_dims)}
    if len(ranks) != 1:
        return found.rule()
    for dim in range(ranks.pop()):
        for i in range(count):
            given, made = found.operand_dims[i][dim], found.result_dims[i][dim]
            is_same = given == made and dim not in changed
            kind = FactorKind.PASS if is_same else FactorKind.REPLICATE
            found.add(max(given, made), {i: dim}, {i: dim}, kind)
    return found.rule()


COMPUTE_RULES: dict[str, RuleOf] = {
    "batch-norm-grad": _batch_norm,
    "batch-norm-inference": _batch_norm,
    "batch-norm-training": _batch_norm,
    "cholesky": _matrices,
    "convolution": _convolution,
    "dot": _dot,
    "fft": _fft,
    "gather": _gather,
    "ragged-all-to-all": _ragged_all_to_all,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "sort": whole_along,
    "topk": _topk,
    "triangular-solve": _matrices,
    **dict.fromkeys(with_trait(Trait.GROUPED) - {"ragged-all-to-all"}, _collective),
    "collective-permute": _collective,
}
