"""What generated code costs, in cycles: the rows that rewritings, window plans and kernels are weighed with.

Each row says what it is of, its cycles on v5e, what these follow on another chip
(`compiler.analysis.cost_units`), and whether they were measured or assumed. What an operation on elements
costs is in `compiler.analysis.lane_costs`; what transfers and passes do, `tpu_sim.isa.timing` says.
docs/cost-model.md lists all rows with their numbers on other chips.
"""

from __future__ import annotations

from compiler.analysis.cost_units import Cost, Costs, Provenance, Rate, Unit

_MEASURED, _ASSUMED = Provenance.MEASURED, Provenance.ASSUMED


class WindowCosts(Costs):
    """Of the grid steps of a kernel."""

    operations = Rate(2.5, Unit.VALU, _ASSUMED, "vector operations that a stage does in a cycle")
    preparation = Cost(4, Unit.VALU, _ASSUMED, "a packed bf16 tile of a dot operand made ready")
    dot_step = Cost(100, Unit.DRAIN, _ASSUMED, "MXUs filled and drained in a pass of a step")
    step = Cost(40, Unit.SCALAR, _ASSUMED, "scalar work of a step")
    window = Cost(12, Unit.SCALAR, _ASSUMED, "scalar work for a window in a step")
    accumulation = Cost(1, Unit.STORE, _ASSUMED, "an f32 tile that is added to in VMEM")
    rows_anywhere = Cost(250, Unit.VALU, _ASSUMED, "a register of rows from anywhere in a tile")


class KernelCosts(Costs):
    """Of kernels as wholes."""

    launch = Cost(1500, Unit.KERNEL, _ASSUMED, "one kernel more, where one is cut in two")
    alone = Cost(4000, Unit.KERNEL, _ASSUMED, "one kernel more: launch, first and last block")
    phase = Cost(4096, Unit.KERNEL, _ASSUMED, "what a phase of an exchange has links do, at least")
    topk_groups = Cost(15_000, Unit.KERNEL, _ASSUMED, "the kernels that top-k by groups takes")
    fetched_array = Cost(400, Unit.ROUND_TRIP, _ASSUMED, "one array more that is sent for early")
    order_move = Cost(2000, Unit.KERNEL, _ASSUMED, "what another order must save at least")


class DotCosts(Costs):
    """Of products on the MXUs."""

    region = Cost(250, Unit.DRAIN, _ASSUMED, "a region's first weights and last results")
    block = Cost(10, Unit.SCALAR, _ASSUMED, "one block of code more in a pass")


class SumCosts(Costs):
    """Of sums that a loop adds small products to."""

    product = Cost(120, Unit.DRAIN, _ASSUMED, "MXUs filled and drained, once in each trip")
    register = Cost(3, Unit.STORE, _MEASURED, "a register of products taken, added and stored")
    slab = Cost(
        20, Unit.SCALAR, _ASSUMED, "a slab's transfer started and awaited, beside its bytes"
    )


class ScatterCosts(Costs):
    """Of scatters whose updates are rows."""

    skipped = Cost(10, Unit.SCALAR, _ASSUMED, "finding that an update is not for the block in VMEM")
    component = Cost(6, Unit.SCALAR, _ASSUMED, "one component more of its index")
    row = Cost(2, Unit.SCALAR, _ASSUMED, "the same of a row of those that go eight at a time")
    row_tile = Cost(1.5, Unit.LOAD, _ASSUMED, "one register more of such a row")
    update = Cost(
        60, Unit.SCALAR, _ASSUMED, "finding where an update's tiles lie, and combining it"
    )
    combined = Cost(40, Unit.SCALAR, _ASSUMED, "a row found and combined")
    turn = Cost(30, Unit.TRANSPOSE, _ASSUMED, "a tile turned by a transpose before")
    looked_at = Cost(5.5, Unit.SCALAR, _MEASURED, "a row that may be of the block in VMEM")
    looked_at_tile = Cost(1.5, Unit.LOAD, _MEASURED, "one register more of it")
    streamed = Cost(130, Unit.ROUND_TRIP, _MEASURED, "the tiles around a row fetched and put back")
    compared = Cost(0.011, Unit.VALU, _MEASURED, "two rows of a sort compared and exchanged")
    moved = Cost(15, Unit.SCALAR, _MEASURED, "a row brought to its place in an order")
    moved_tile = Cost(2, Unit.LOAD, _MEASURED, "one register more of it")


class ElementCosts(Costs):
    """Of scatters whose updates are single elements, a register at a time."""

    rotation = Cost(0.95, Unit.XLU, _MEASURED, "a distance: two rotations, and what meets added up")
    lane_rotation = Cost(1.5, Unit.XLU, _MEASURED, "the same where all rotations are along lanes")
    body = Cost(60, Unit.SCALAR, _ASSUMED, "a body's own time, beside indexed accesses")
    table = Cost(1.5, Unit.STORE, _ASSUMED, "a register of a table cleared and added to another")
    searched = Cost(6, Unit.VALU, _ASSUMED, "a register searched for what is of one place")
    addressed = Cost(270, Unit.INDEXED_STORE, _ASSUMED, "a register combined with tables")
    tables = Cost(4000, Unit.STORE, _ASSUMED, "tables cleared and added up")
    alone = Cost(16, Unit.SCALAR, _ASSUMED, "an update that is combined by itself, at least")


class GatherCosts(Costs):
    """Of gathers of rows and matrices."""

    slice = Cost(3, Unit.SCALAR, _ASSUMED, "a slice in VMEM found, its first register copied")
    packed_row = Cost(6, Unit.SCALAR, _ASSUMED, "the same of a row that is part of its words")
    transfer = Cost(12, Unit.TRANSFER, _ASSUMED, "a slice that is a transfer of its own")
    packed_transfer = Cost(25, Unit.TRANSFER, _ASSUMED, "a row that is part of its words, so")
    picked = Cost(36, Unit.XLU, _MEASURED, "a register put together of rows that lie in eight")


class TopkCosts(Costs):
    """Of the greatest elements of rows."""

    greatest = Cost(3, Unit.VALU, _ASSUMED, "a register whose greatest element is found")
    round = Cost(13, Unit.VALU, _MEASURED, "a register in one round: the greatest, and where it is")
    group = Cost(12, Unit.TRANSFER, _ASSUMED, "the elements of one group fetched")
    exchange = Cost(
        4, Unit.VALU, _MEASURED, "a register in one stage, its partners in other registers"
    )


class SortCosts(Costs):
    """Of a register of lines that a kernel of their own sorts, and of networks of whole arrays."""

    key = Cost(0.3, Unit.VALU, _MEASURED, "a stage of one array, which is the key")
    exchange = Cost(0.6, Unit.VALU, _MEASURED, "a stage of a key that others follow")
    exchanged = Cost(0.3, Unit.VALU, _MEASURED, "another array in it")
    compared = Cost(0.5, Unit.VALU, _MEASURED, "another array compared in it")
    across = Cost(0.5, Unit.XLU, _ASSUMED, "an array, where partners lie in other lanes")
    stored = Cost(0.8, Unit.STORE, _MEASURED, "an array stored between passes")
    turned = Cost(3, Unit.TRANSPOSE, _ASSUMED, "an array brought to its lines, or back")
    network = Cost(12, Unit.VALU, _MEASURED, "a stage of whole arrays")
    stage = Cost(60, Unit.SCALAR, _ASSUMED, "a stage of whole arrays, beside its launch")
    looped_stage = Cost(800, Unit.SCALAR, _MEASURED, "the same in a loop that picks its stages")
    looped_array = Cost(90, Unit.LOAD, _MEASURED, "an array in it")


class RunningCosts(Costs):
    """Of a register of a running total."""

    doubled = Cost(7, Unit.VALU, _MEASURED, "a step of whole arrays: shifted, and combined")
    lanes = Cost(12, Unit.XLU, _ASSUMED, "a register whose lanes follow each other, in a kernel")
    sublanes = Cost(6, Unit.XLU, _ASSUMED, "one whose sublanes do")
    elements = Cost(2, Unit.STORE, _ASSUMED, "one that follows another as it is")


class ConvolutionCosts(Costs):
    """Of convolutions, whose operands are put together of pieces: parts of a register."""

    whole_piece = Cost(0.5, Unit.LOAD, _MEASURED, "a piece of whole tiles, features in all lanes")
    row_piece = Cost(1.5, Unit.LOAD, _MEASURED, "a piece of whole tiles of rows")
    position_piece = Cost(3.5, Unit.CYCLE, _MEASURED, "a piece that begins at any row")
    gathered_piece = Cost(3.5, Unit.CYCLE, _MEASURED, "a piece of a kernel that does nothing else")
    band_piece = Cost(10, Unit.CYCLE, _MEASURED, "a piece of a kernel that is made a band")
    band_register = Cost(140, Unit.CYCLE, _MEASURED, "a register of one, whatever it is made of")
    transposed_block = Cost(80, Unit.CYCLE, _ASSUMED, "a 128x128 block of bf16, turned")
    gathered_block = Cost(160, Unit.CYCLE, _ASSUMED, "one whose rows are parts of slices")
    plane = Cost(10, Unit.CYCLE, _MEASURED, "a register of a plane, moved by a tap and added")
    part = Cost(30, Unit.CYCLE, _ASSUMED, "a register put together of lanes from within a tile")


class OrderCosts(Costs):
    """Of arrays in an order of dimensions, and of what it takes to change that."""

    tile_transfer = Cost(7.5, Unit.CYCLE, _ASSUMED, "a tile stored or read, with what handles it")
    turn = Cost(3, Unit.TRANSPOSE, _ASSUMED, "another dimension along lanes: a register, turned")
    small_turn = Cost(36, Unit.TRANSPOSE, _ASSUMED, "a register that is turned by itself")
    gather = Cost(
        80,
        Unit.XLU,
        _ASSUMED,
        "a register whose rows come each from one of its own, or eight lanes",
    )
    shuffle = Cost(1, Unit.XLU, _ASSUMED, "another dimension along sublanes, beside a reshape")
    pick = Cost(4, Unit.XLU, _ASSUMED, "the same anywhere else: each row from another register")
    lane_sum = Cost(6, Unit.XLU, _ASSUMED, "a register summed over its lanes")
    lane_shift = Cost(6, Unit.XLU, _ASSUMED, "a register's lanes brought to others")
    row_shift = Cost(1, Unit.XLU, _ASSUMED, "its rows brought to others")
    lane_step = Cost(40, Unit.XLU, _ASSUMED, "every other lane picked, or lanes put apart")
    slab_lane = Cost(12, Unit.XLU, _ASSUMED, "lanes of a register changed at a computed place")
    slab_row = Cost(2, Unit.XLU, _ASSUMED, "rows of a register changed at a computed place")
    merged = Cost(600, Unit.XLU, _ASSUMED, "a register of a dot's operand, turned and then merged")
    matrix = Cost(100, Unit.DRAIN, _ASSUMED, "one small product on the MXU, whatever its size")
    weights_pass = Cost(
        2, Unit.PASS, _ASSUMED, "8 rows that pass a block of weights, units abreast"
    )
    push = Cost(2, Unit.PUSH, _ASSUMED, "8 rows of weights brought to the MXU, or of a result back")


class IndexedCosts(Costs):
    """Of gathers and scatters of arrays in an order of dimensions."""

    tile = Cost(40, Unit.TRANSFER, _MEASURED, "a tile of a slice sent for, or changed")
    copy = Cost(5, Unit.SCALAR, _MEASURED, "the one row of a slice in VMEM copied")
    update = Cost(8, Unit.SCALAR, _MEASURED, "the one row of a slice in VMEM changed")
    column = Cost(2, Unit.LOAD, _MEASURED, "a tile of such a row")
    load = Cost(60, Unit.INDEXED_LOAD, _MEASURED, "a register whose elements lie anywhere in VMEM")
    change = Cost(185, Unit.INDEXED_STORE, _MEASURED, "a register of updates, combined anywhere")
    table = Cost(96, Unit.STORE, _ASSUMED, "tables of a register cleared and added up")
