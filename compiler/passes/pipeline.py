"""The pipeline: all HLO passes in their order, and why the order is so.

Names are those of ``tpuc opt --passes a,b,c``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.analysis.window_request import Window, WindowRequests
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.verifier import Level
from compiler.partitioner.partitioner import partition_module
from compiler.pass_pipeline import Edge, check_order, find_passes
from compiler.passes.activation_order import order_activations
from compiler.passes.algebraic_simplifier import simplify_algebra
from compiler.passes.call_inliner import inline_calls
from compiler.passes.collectives.collective_matmul import overlap_products
from compiler.passes.collectives.combiner import combine_collectives
from compiler.passes.collectives.expander import expand_collectives
from compiler.passes.collectives.flattening import flatten_replicas
from compiler.passes.collectives.latency_hiding import hide_latency
from compiler.passes.collectives.loop_exchanges import move_out_of_loops
from compiler.passes.constant_folding import fold_constants
from compiler.passes.control_unsharing import unshare_control
from compiler.passes.convolution_canonicalizer import canonicalize_convolutions
from compiler.passes.convolution_folding import fold_convolutions
from compiler.passes.copy_insertion import insert_copies
from compiler.passes.cse import eliminate_common_subexpressions
from compiler.passes.dce import eliminate_dead_code
from compiler.passes.dimension_merging import merge_dimensions
from compiler.passes.dimension_order.assignment import order_dimensions
from compiler.passes.donor_aliasing import alias_donors
from compiler.passes.dot_canonicalizer import canonicalize_dots, merge_rows
from compiler.passes.expanders.custom_call_expander import expand_custom_calls
from compiler.passes.expanders.fft_expander import expand_ffts
from compiler.passes.expanders.global_forms import rewrite_global_forms
from compiler.passes.expanders.integer_dot_expander import expand_integer_dots
from compiler.passes.expanders.linear_algebra import expand_linear_algebra
from compiler.passes.expanders.random_state import thread_random_state
from compiler.passes.expanders.reduce_window_expander import expand_reduce_windows
from compiler.passes.expanders.rng_expander import expand_random
from compiler.passes.expanders.select_and_scatter_expander import expand_select_and_scatters
from compiler.passes.expanders.simple_expansions import expand_simple
from compiler.passes.expanders.single_device import simplify_single_device
from compiler.passes.expanders.small_dot_expander import expand_small_dots
from compiler.passes.expanders.sort_expander import expand_sorts
from compiler.passes.expanders.tap_expander import expand_taps
from compiler.passes.expanders.topk_expander import expand_topk
from compiler.passes.facts import order_of_facts
from compiler.passes.fusion import fuse
from compiler.passes.fusion_legalizer import legalize_fusions
from compiler.passes.gather_canonicalizer import canonicalize_gathers
from compiler.passes.invariant_turns import turn_before_loops
from compiler.passes.lane_packing import pack_lanes
from compiler.passes.layout_assignment import assign_layouts
from compiler.passes.layout_stripping import strip_layouts
from compiler.passes.loop_double_buffering import double_buffer_loops
from compiler.passes.loop_state import simplify_loop_state
from compiler.passes.loop_unrolling import unroll_loops
from compiler.passes.memory_space_assignment import assign_memory_spaces
from compiler.passes.operand_rounding import round_operands
from compiler.passes.ordered_rounding import round_ordered
from compiler.passes.pair_types.double_precision import narrow_doubles, refuse_doubles
from compiler.passes.pair_types.pair_rewriter import rewrite_pairs
from compiler.passes.pair_types.sub_byte import widen_sub_byte
from compiler.passes.pass_manager import FunctionPass, Pass, PassManager, PassTiming
from compiler.passes.port_layout import lay_out_ports
from compiler.passes.row_alignment import align_rows
from compiler.passes.running_totals import make_running_totals
from compiler.passes.scalar_arrays import keep_arrays_in_smem
from compiler.passes.scatter_canonicalizer import canonicalize_scatters
from compiler.passes.scheduling import schedule
from compiler.passes.sharding_propagation import propagate_shardings
from compiler.passes.sort_kernels.kernels import make_sort_kernels
from compiler.passes.sorted_scatters import sort_scatters
from compiler.passes.stacked_order import order_stacks
from compiler.passes.stacked_state import compact_stacked_state
from compiler.passes.stacked_updates import update_stacks
from compiler.passes.summed_products import sum_products_once
from compiler.passes.tiling import tile_fusions
from compiler.passes.tuple_flattener import flatten_tuples
from compiler.passes.turn_splitting import split_turns
from compiler.passes.vmem_prefetch import prefetch
from compiler.passes.vmem_residency import keep_in_vmem, release_vmem
from compiler.passes.while_simplifier import simplify_whiles
from compiler.passes.wrap_fusions import wrap_fusions
from compiler.passes.zero_sized_elimination import eliminate_zero_sized
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.torus import Slice
from tpu_sim.isa.verification import is_verifying

PASSES: dict[str, Pass] = {
    item.name: item
    for item in (
        FunctionPass("global-forms", rewrite_global_forms),
        FunctionPass("sharding-propagation", propagate_shardings),
        FunctionPass("spmd-partitioner", partition_module),
        FunctionPass("layout-stripping", strip_layouts),
        FunctionPass("donor-aliasing", alias_donors),
        FunctionPass("single-device", simplify_single_device),
        FunctionPass("call-inliner", inline_calls),
        FunctionPass("control-unsharing", unshare_control),
        FunctionPass("tuple-flattener", flatten_tuples),
        FunctionPass("loop-state", simplify_loop_state),
        FunctionPass("replica-flattener", flatten_replicas),
        FunctionPass("collective-combiner", combine_collectives),
        FunctionPass("collective-matmul", overlap_products),
        FunctionPass("collective-expander", expand_collectives),
        FunctionPass("zero-sized-elimination", eliminate_zero_sized),
        FunctionPass("dce", eliminate_dead_code),
        FunctionPass("cse", eliminate_common_subexpressions),
        FunctionPass("algebraic-simplifier", simplify_algebra),
        FunctionPass("constant-folding", fold_constants),
        FunctionPass("while-simplifier", simplify_whiles),
        FunctionPass("summed-products", sum_products_once),
        FunctionPass("loop-unrolling", unroll_loops),
        FunctionPass("activation-order", order_activations),
        FunctionPass("lane-packing", pack_lanes),
        FunctionPass("convolution-canonicalizer", canonicalize_convolutions),
        FunctionPass("convolution-folding", fold_convolutions),
        FunctionPass("running-totals", make_running_totals),
        FunctionPass("tap-expander", expand_taps),
        FunctionPass("topk-expander", expand_topk),
        FunctionPass("sorted-scatters", sort_scatters),
        FunctionPass("sort-kernels", make_sort_kernels),
        FunctionPass("sort-expander", expand_sorts),
        FunctionPass("linear-algebra-expander", expand_linear_algebra),
        FunctionPass("fft-expander", expand_ffts),
        FunctionPass("dimension-merging", merge_dimensions),
        FunctionPass("ordered-rounding", round_ordered),
        FunctionPass("custom-call-expander", expand_custom_calls),
        FunctionPass("random-state", thread_random_state),
        FunctionPass("rng-expander", expand_random),
        FunctionPass("port-layout", lay_out_ports),
        FunctionPass("integer-dot-expander", expand_integer_dots),
        FunctionPass("small-dot-expander", expand_small_dots),
        FunctionPass("reduce-window-expander", expand_reduce_windows),
        FunctionPass("select-and-scatter-expander", expand_select_and_scatters),
        FunctionPass("simple-expansions", expand_simple),
        FunctionPass("double-precision-narrower", narrow_doubles),
        FunctionPass("double-precision-check", refuse_doubles),
        FunctionPass("sub-byte-types", widen_sub_byte),
        FunctionPass("pair-types", rewrite_pairs),
        FunctionPass("dot-canonicalizer", canonicalize_dots),
        FunctionPass("stacked-updates", update_stacks),
        FunctionPass("stacked-order", order_stacks),
        FunctionPass("stacked-state", compact_stacked_state),
        FunctionPass("gather-canonicalizer", canonicalize_gathers),
        FunctionPass("scatter-canonicalizer", canonicalize_scatters),
        FunctionPass("row-alignment", align_rows),
        FunctionPass("operand-rounding", round_operands),
        FunctionPass("dimension-order", order_dimensions),
        FunctionPass("row-merging", merge_rows),
        FunctionPass("invariant-turns", turn_before_loops),
        FunctionPass("turn-splitting", split_turns),
        FunctionPass("scalar-arrays", keep_arrays_in_smem),
        FunctionPass("fusion", fuse),
        FunctionPass("wrap-fusions", wrap_fusions),
        FunctionPass("layout-assignment", assign_layouts, Level.LAYOUT_ASSIGNED),
        FunctionPass("fusion-legalizer", legalize_fusions),
        FunctionPass("memory-space-assignment", assign_memory_spaces),
        FunctionPass("tiling", tile_fusions),
        FunctionPass("loop-double-buffering", double_buffer_loops),
        FunctionPass("scheduling", schedule, Level.SCHEDULED),
        FunctionPass("loop-exchanges", move_out_of_loops, Level.SCHEDULED),
        FunctionPass("latency-hiding", hide_latency, Level.SCHEDULED),
        FunctionPass("copy-insertion", insert_copies),
        FunctionPass("vmem-residency", keep_in_vmem),
        FunctionPass("vmem-prefetch", prefetch),
    )
}

PARTITIONING: tuple[str, ...] = (
    "layout-stripping",
    "zero-sized-elimination",
    "global-forms",
    "sharding-propagation",
    "spmd-partitioner",
)
"""What a module of global arrays, made for several partitions, goes through first."""

PIPELINE: tuple[str, ...] = (
    "layout-stripping",
    "donor-aliasing",
    "single-device",
    "call-inliner",
    "replica-flattener",
    "collective-combiner",
    "collective-matmul",
    "collective-expander",
    "control-unsharing",
    "tuple-flattener",
    "loop-state",
    "simple-expansions",
    "random-state",
    "zero-sized-elimination",
    "dce",
    "cse",
    "algebraic-simplifier",
    "constant-folding",
    "dimension-merging",
    "double-precision-check",
    "ordered-rounding",
    "custom-call-expander",
    "linear-algebra-expander",
    "fft-expander",
    "rng-expander",
    "while-simplifier",
    "summed-products",
    "loop-unrolling",
    "activation-order",
    "lane-packing",
    "convolution-canonicalizer",
    "port-layout",
    "convolution-folding",
    "running-totals",
    "tap-expander",
    "reduce-window-expander",
    "select-and-scatter-expander",
    "topk-expander",
    "sorted-scatters",
    "sort-kernels",
    "sort-expander",
    "sub-byte-types",
    "pair-types",
    "integer-dot-expander",
    "small-dot-expander",
    "dot-canonicalizer",
    "stacked-updates",
    "stacked-order",
    "stacked-state",
    "gather-canonicalizer",
    "scatter-canonicalizer",
    "zero-sized-elimination",
    "algebraic-simplifier",
    "constant-folding",
    "cse",
    "dce",
    "row-alignment",
    "operand-rounding",
    "dimension-order",
    "row-merging",
    "algebraic-simplifier",
    "cse",
    "dce",
    "invariant-turns",
    "turn-splitting",
    "scalar-arrays",
    "fusion",
    "wrap-fusions",
    "layout-assignment",
    "fusion-legalizer",
    "memory-space-assignment",
    "tiling",
    "loop-double-buffering",
    "scheduling",
    "loop-exchanges",
    "latency-hiding",
    "copy-insertion",
    "vmem-residency",
    "vmem-prefetch",
)

INDISPENSABLE: Mapping[str, str] = {
    "scatter-canonicalizer": "kernels take scatters of a few forms",
    "memory-space-assignment": "scalars that are addresses and conditions must lie in SMEM",
    "scheduling": "instructions have no order without it",
    "copy-insertion": "what is written in place may still be read",
}
"""Passes without which programs would be wrong and no fact would tell, and why."""

ON_REQUEST: tuple[str, ...] = ("double-precision-narrower",)
"""Passes that an option asks for. They run before the others."""

AFTER_A_SPLIT: tuple[str, ...] = (
    "fusion-legalizer",
    "memory-space-assignment",
    "tiling",
    "scheduling",
    "latency-hiding",
    "copy-insertion",
)
"""What a module goes through again when a kernel of it breaks a limit and is split."""

AFTER_A_RELEASE: tuple[str, ...] = ("copy-insertion",)
"""What it goes through when what stayed in VMEM went back to HBM: which operands are written over is
asked anew."""

MUST_PRECEDE: tuple[Edge, ...] = (  # besides `facts.order_of_facts`
    ("global-forms", "sharding-propagation", "it leaves operations that have rules"),
    ("sharding-propagation", "spmd-partitioner", "it cuts as the shardings say"),
    ("spmd-partitioner", "donor-aliasing", "pieces of a parameter and a result have one shape"),
    ("donor-aliasing", "pair-types", "parts of a parameter lie where parts of the result do"),
    ("spmd-partitioner", "single-device", "notes of shardings are gone after it"),
    ("double-precision-narrower", "double-precision-check", "it leaves nothing to refuse"),
    ("double-precision-narrower", "constant-folding", "constants are those of the narrow type"),
    ("scheduling", "latency-hiding", "it moves starts and dones within a good order"),
    ("scheduling", "loop-exchanges", "what it moves stands within a good order"),
    ("tiling", "loop-exchanges", "windows say how long a kernel runs"),
    ("loop-exchanges", "latency-hiding", "it splits what is moved"),
    ("tiling", "latency-hiding", "windows say how long a kernel runs"),
    ("latency-hiding", "copy-insertion", "what a start holds until its done is not overwritten"),
    ("single-device", "replica-flattener", "groups of one are gone"),
    ("replica-flattener", "collective-expander", "it lists groups and joins starts and dones"),
    ("replica-flattener", "collective-combiner", "it lists groups and joins starts and dones"),
    ("collective-combiner", "collective-expander", "it makes one of several"),
    ("replica-flattener", "collective-matmul", "it lists groups and joins starts and dones"),
    ("collective-matmul", "collective-expander", "it looks for gathers and reductions as they are"),
    ("call-inliner", "replica-flattener", "a computation that is shared is looked at once"),
    ("collective-expander", "algebraic-simplifier", "reshapes before and after a slot meet"),
    ("collective-expander", "pair-types", "combining takes complex arrays apart"),
    ("call-inliner", "control-unsharing", "two inlined calls share the loops of what they called"),
    ("control-unsharing", "tuple-flattener", "a state is flattened where it is given"),
    ("control-unsharing", "while-simplifier", "a body is told what its loop starts from"),
    ("control-unsharing", "pair-types", "types change on both sides of a call"),
    ("algebraic-simplifier", "constant-folding", "sunk broadcasts leave scalars to fold"),
    ("constant-folding", "while-simplifier", "a trip count is read off folded constants"),
    ("while-simplifier", "loop-double-buffering", "only even trip counts are halved"),
    ("constant-folding", "loop-unrolling", "a trip count is read off folded constants"),
    ("loop-unrolling", "fusion", "trips that are written out are one kernel"),
    ("fusion", "loop-double-buffering", "fusion would make one kernel of both bodies"),
    ("tiling", "loop-double-buffering", "blocks that overlap may not be computed in place"),
    ("loop-double-buffering", "scheduling", "it makes kernels that must be scheduled"),
    ("activation-order", "lane-packing", "it puts the batch next to the features"),
    ("lane-packing", "convolution-canonicalizer", "it looks for convolutions"),
    ("activation-order", "convolution-canonicalizer", "it lists the dimensions of convolutions"),
    ("activation-order", "convolution-folding", "a fold reads the image as it is listed"),
    ("convolution-canonicalizer", "tap-expander", "a patch is cheaper than taps side by side"),
    ("convolution-canonicalizer", "convolution-folding", "a patch needs no folding"),
    ("convolution-folding", "tap-expander", "it makes convolutions"),
    ("tap-expander", "dot-canonicalizer", "it makes dots of convolutions"),
    ("topk-expander", "fusion", "its rounds are row reductions of one kernel"),
    ("ordered-rounding", "custom-call-expander", "it looks for calls that order"),
    ("ordered-rounding", "sort-expander", "both of an exchanged pair see one order"),
    ("single-device", "call-inliner", "what an async-start wraps becomes a call"),
    ("custom-call-expander", "topk-expander", "a TopK call becomes a topk"),
    ("custom-call-expander", "sort-expander", "a large or approximate top-k becomes a sort"),
    ("tap-expander", "reduce-window-expander", "a running total doubles its shifts"),
    ("running-totals", "tap-expander", "what has a kernel of its own doubles no shifts"),
    ("running-totals", "dimension-order", "a total is taken in any order of dimensions"),
    ("sorted-scatters", "sort-expander", "it makes sorts"),
    ("sort-kernels", "sort-expander", "what a kernel of its own sorts needs no network"),
    ("sort-expander", "pair-types", "comparators are applied to whole arrays first"),
    ("reduce-window-expander", "pair-types", "computations are applied to whole arrays first"),
    ("select-and-scatter-expander", "pair-types", "so are these computations"),
    ("port-layout", "tap-expander", "it leaves images of overlapping windows as they are"),
    ("convolution-canonicalizer", "port-layout", "disjoint windows are no convolution any more"),
    ("port-layout", "dimension-order", "what a parameter is turned into is chosen there"),
    ("linear-algebra-expander", "pair-types", "it makes complex arithmetic"),
    ("fft-expander", "pair-types", "it takes complex arrays apart"),
    ("rng-expander", "pair-types", "it makes 64-bit numbers of words"),
    ("random-state", "rng-expander", "a state that is read is one that bits are made of"),
    ("integer-dot-expander", "dot-canonicalizer", "it makes dots of digits"),
    ("tap-expander", "small-dot-expander", "it makes dots of convolutions"),
    ("small-dot-expander", "dot-canonicalizer", "arithmetic needs no canonical dimensions"),
    ("loop-state", "algebraic-simplifier", "constants of a body are folded there"),
    ("while-simplifier", "pair-types", "a trip count is read off one compare, not three"),
    ("tap-expander", "pair-types", "windows of any type become slices"),
    ("constant-folding", "double-precision-check", "f64 constants made f32 do no harm"),
    ("pair-types", "dot-canonicalizer", "it makes real dots of complex ones"),
    ("pair-types", "scatter-canonicalizer", "64-bit indices are made s32"),
    ("tuple-flattener", "stacked-state", "it looks at elements of the state"),
    ("pair-types", "stacked-state", "it makes two arrays of one"),
    ("tuple-flattener", "stacked-updates", "it looks at elements of the state"),
    ("constant-folding", "stacked-updates", "a trip count is read off folded constants"),
    ("stacked-updates", "scatter-canonicalizer", "it makes scatters of one more dimension"),
    ("tuple-flattener", "stacked-order", "it looks at elements of the state"),
    ("stacked-order", "stacked-state", "trailing dimensions are those that slices have at last"),
    ("stacked-state", "fusion", "reshapes are computed where slices are made or read"),
    ("pair-types", "gather-canonicalizer", "64-bit indices are made s32"),
    ("gather-canonicalizer", "fusion", "indices are arranged where they are computed"),
    ("scatter-canonicalizer", "fusion", "indices are arranged where they are computed"),
    ("dimension-order", "row-merging", "it chooses the order of rows that are still apart"),
    ("dot-canonicalizer", "row-merging", "it leaves the rows of few features apart"),
    ("algebraic-simplifier", "turn-splitting", "it would make one transpose of both again"),
    ("dimension-order", "invariant-turns", "it leaves transposes of what a loop reads"),
    ("invariant-turns", "turn-splitting", "one turn before a loop is split as any other"),
    ("dimension-order", "turn-splitting", "it leaves transposes between two orders"),
    ("turn-splitting", "fusion", "the turned array is stored between two kernels"),
    ("gather-canonicalizer", "scalar-arrays", "a gather of one element is a slice"),
    ("scatter-canonicalizer", "scalar-arrays", "a scatter of one element is an update"),
    ("algebraic-simplifier", "scalar-arrays", "it knows nothing of copies and elements in SMEM"),
    ("scalar-arrays", "fusion", "elements are read by the scalar unit, not by fusions"),
    ("dot-canonicalizer", "fusion", "an epilogue is fused when it has the canonical dimensions"),
    ("row-merging", "fusion", "a kernel's dot has one dimension of rows"),
    ("algebraic-simplifier", "fusion", "reshapes between operations keep them apart"),
    ("dot-canonicalizer", "dimension-order", "it knows the dimensions of a dot on the matrix unit"),
    ("pair-types", "dimension-order", "it makes two arrays of one"),
    ("dot-canonicalizer", "row-alignment", "rows are merged where a dot has one M"),
    ("algebraic-simplifier", "row-alignment", "reshapes stand at the edges of a region"),
    ("row-alignment", "operand-rounding", "it pads what products read"),
    ("operand-rounding", "fusion", "what is rounded is stored where it is made"),
    ("row-alignment", "dimension-order", "merging sequences of whole tiles is free there"),
    ("dimension-order", "fusion", "what stands between two orders fuses with either side"),
    ("cse", "fusion", "equal instructions in two fusions are no longer seen"),
    ("fusion", "wrap-fusions", "what is wrapped alone is not fused any more"),
    ("fusion-legalizer", "scheduling", "it makes kernels that must be scheduled"),
    ("fusion-legalizer", "tiling", "before it there are fusions that have no windows"),
    ("memory-space-assignment", "tiling", "an operand in SMEM has no window"),
    ("tiling", "copy-insertion", "blocks that overlap may not be computed in place"),
    ("memory-space-assignment", "scheduling", "it inserts copies that must be scheduled"),
    ("copy-insertion", "vmem-residency", "what lies in VMEM must not be copied any more"),
    ("vmem-residency", "vmem-prefetch", "what is fetched lies in VMEM that nothing else wants"),
    ("scheduling", "copy-insertion", "whether a copy is needed depends on what runs later"),
)


def hlo_passes(names: Sequence[str]) -> list[Pass]:
    """The passes of those names in an order that is allowed; else CompileError says why not."""
    found = find_passes(names, PASSES)
    check_order(names, (*MUST_PRECEDE, *order_of_facts(names)))
    return found


def run_pipeline(
    module: HloModule,
    chip: Chip,
    *,
    passes: Sequence[str] | None = None,
    precision: str = "default",
    dump_dir: Path | None = None,
    progress: Callable[[str], None] | None = None,
    windows: Mapping[str, Window] | None = None,
    on_request: Sequence[str] = (),
    cores: Slice | None = None,
    passes_before: int = 0,
) -> list[PassTiming]:
    """Run `passes` (default: the whole pipeline) on a module, in place; return their timings.

    Those `on_request` run before them. `cores` is the slice that runs the program; dumps count on from
    `passes_before`.
    `precision` is that of f32 dots that state none. `windows` are elements of M, K and N in a grid
    step, by the name of a dot, a convolution or a fusion.
    """
    requests = WindowRequests(windows or {})
    requests.place(module)
    others = PIPELINE if passes is None else tuple(passes)
    names = (*(name for name in on_request if name not in others), *others)
    manager = PassManager(
        hlo_passes(names),
        chip,
        dump_dir,
        progress,
        is_verifying=is_verifying() or dump_dir is not None,
        precision=precision,
        windows=requests,
        cores=cores,
        passes_before=passes_before,
    )
    return manager.run(module)


def release_kernels(
    module: HloModule, planner: WindowPlanner, cores: Slice | None = None
) -> list[PassTiming] | None:
    """Put what stays in VMEM of a finished module back into HBM; None where nothing does."""
    if not release_vmem(module, planner):
        return None
    return _run_again(module, AFTER_A_RELEASE, planner, cores)


def split_kernels(
    module: HloModule,
    fusions: Sequence[HloInstruction],
    planner: WindowPlanner,
    cores: Slice | None = None,
) -> list[PassTiming] | None:
    """Split fusions of a finished module, and all equal ones; None where nothing can be split.

    The planner learns what is planned, and is told nothing of what this split refuses: a later one may
    make such a fusion, and find that its kernel fits.
    """
    refusing = planner.without_refusals()
    for fusion in fusions:
        if fusion.kind in PLANNED_KINDS:
            refusing.refuse(fusion)
    timings = _run_again(module, AFTER_A_SPLIT, refusing, cores)
    return timings if timings[0].is_changed else None


def _run_again(
    module: HloModule, names: Sequence[str], planner: WindowPlanner, cores: Slice | None
) -> list[PassTiming]:
    manager = PassManager(
        hlo_passes(names),
        planner.chip,
        is_verifying=is_verifying(),
        precision=planner.precision,
        planner=planner,
        cores=cores,
    )
    return manager.run(module)
