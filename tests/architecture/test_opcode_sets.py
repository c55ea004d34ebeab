"""Knowledge of opcodes stands in their declarations: elsewhere no set of them is written out.

A set that a trait could say is built from traits (`with_trait`, `with_any`); what remains is named
here with its reason.
"""

from __future__ import annotations

from tests.architecture.sources import ROOT, modules, source

REASONS = {
    (
        "analysis/float_signs.py",
        "abs exponential logistic sqrt",
    ): "functions without negative values",
    (
        "analysis/scalar_unit.py",
        "abs bitcast-convert convert is-finite negate not sign",
    ): "what the scalar unit has instructions for",
    (
        "analysis/scalar_unit.py",
        "clamp compare constant parameter select tuple",
    ): "what the scalar unit has instructions for",
    (
        "analysis/scalar_unit.py",
        "shift-left shift-right-arithmetic shift-right-logical",
    ): "the scalar unit shifts by constants only",
    (
        "analysis/window_request.py",
        "convolution dot",
    ): "relatives of a dot become dots before they get windows",
    (
        "analysis/operation_marks.py",
        "add multiply negate subtract",
    ): "sums of polynomials of two arrays are a few products",
    (
        "analysis/operation_marks.py",
        "add subtract",
    ): "a polynomial without them is one product",
    (
        "passes/derived_stacks.py",
        "add multiply negate subtract",
    ): "what takes one vector operation, in any type",
    ("analysis/turn_work.py", "copy reshape"): "the elements of an array, in another form",
    ("analysis/product_order.py", "divide multiply"): "by one number they commute with products",
    (
        "analysis/product_order.py",
        "bitcast convert copy",
    ): "they leave the elements of arrays where they are",
    ("analysis/reducers.py", "convert copy"): "a sum in f32 of narrower elements",
    ("backend/vector/reducers.py", "parameter tuple"): "the frame of a computation of scalars",
    ("frontends/numpy/reductions.py", "maximum minimum"): "complex numbers have no order",
    (
        "passes/convolution_guards.py",
        "broadcast constant convert",
    ): "what a branch makes anew rather than takes",
    (
        "passes/convolution_guards.py",
        "pad reduce reduce-window reshape reverse slice transpose",
    ): "what shrinks or moves what a branch returns",
    (
        "passes/dimension_order/forms.py",
        "bitcast-convert copy",
    ): "they are elementwise unless the shape changes",
    ("passes/dimension_order/planner.py", "broadcast reduce reshape"): "costs of three operations",
    ("passes/dimension_order/planner.py", "constant iota"): "made in any order at no cost",
    (
        "passes/dimension_order/rewriter.py",
        "conditional opt-barrier",
    ): "their operands are exchanged as they are",
    (
        "passes/expanders/element_loops.py",
        "call conditional map",
    ): "what is applied to elements too when what calls it is",
    (
        "passes/expanders/element_loops.py",
        "bitcast-convert constant get-tuple-element parameter tuple",
    ): "the frame of a computation of scalars, and their bits",
    ("rewrite/emitter.py", "call map"): "both apply to_apply to the operands",
    (
        "passes/stage_text.py",
        "after-all constant iota tuple",
    ): "what a later part of a program makes again",
    (
        "passes/host_transfers.py",
        "recv recv-done send send-done",
    ): "both halves of transfers with the host",
    ("passes/host_transfers.py", "conditional while"): "what the host goes through if it must",
    ("passes/transfer_devices.py", "recv-done send-done"): "what says where a transfer is made",
    ("passes/host_transfers.py", "recv send"): "where a transfer with the host begins",
    ("passes/turned_images.py", "convert pad"): "what an image goes through on its way to a dot",
    (
        "passes/pair_types/elementwise_rules.py",
        "add maximum minimum multiply",
    ): "reducers that have a form for pairs",
    (
        "passes/pair_types/sub_byte.py",
        "abs add convolution divide dot iota multiply negate not power shift-left sign subtract",
    ): "whose results on bytes leave 2 and 4 bits",
    ("passes/pair_types/sub_byte.py", "add multiply"): "whose sums may wrap once at the end",
    (
        "passes/collectives/flattening.py",
        "all-gather all-reduce collective-reduce reduce-scatter",
    ): "those that may name devices by a global number",
    (
        "passes/collectives/flattening.py",
        "all-gather-done all-reduce-done collective-permute-done",
    ): "second halves of collectives",
    (
        "passes/collectives/flattening.py",
        "partition-id replica-id",
    ): "the two parts of a device's number",
    (
        "passes/memory_space_assignment.py",
        "constant partition-id",
    ): "scalars that SMEM holds from the start",
    (
        "passes/port_layout.py",
        "gather scatter",
    ): "what reads rows of an operand wherever they begin",
    (
        "passes/sharding/constant_copies.py",
        "broadcast concatenate pad reshape reverse slice transpose",
    ): "what keeps a constant a constant, at no cost",
    (
        "passes/sharding/constant_copies.py",
        "constant iota",
    ): "what every device can make for itself",
    (
        "passes/sharding/regions.py",
        "after-all domain get-tuple-element opt-barrier parameter tuple",
    ): "what no rule of factors is for",
    (
        "passes/sharding_propagation.py",
        "constant get-tuple-element iota opt-barrier parameter",
    ): "what takes any sharding",
    ("analysis/dot_parts.py", "bitcast convert"): "the same numbers, in fewer or more bits",
    ("analysis/scalar_unit.py", "bitcast reduce-precision"): "of scalars in f32, no operation",
    ("autodiff/linear_algebra.py", "imag real"): "both parts of a spectrum",
    ("autodiff/reduction.py", "maximum minimum"): "one element has the whole derivative",
    ("autodiff/scatter.py", "maximum minimum"): "one element has the whole derivative",
    ("backend/vector/core.py", "bitcast copy"): "what a stage may still have of them moves nothing",
    ("backend/vector/core.py", "get-tuple-element iota"): "bound, or made of the index alone",
    ("backend/vector/reducers.py", "and or xor"): "rows that have no types",
    ("partitioner/rules/sums.py", "negate subtract"): "of sums they are sums, beside add itself",
    ("partitioner/traffic.py", "collective-permute send"): "pairs of devices, not groups",
    ("partitioner/traffic.py", "ragged-all-to-all send"): "one operand goes over the links",
    ("passes/cse.py", "parameter tuple"): "see there",
    ("passes/expanders/predicate_reductions.py", "add maximum or"): "the same of truths",
    ("passes/expanders/predicate_reductions.py", "and minimum multiply"): "the same of truths",
    ("passes/fusion_cuts.py", "concatenate pad"): "two of the piecewise ones are index work",
    ("passes/fusion_nodes.py", "copy partition-id"): "never a node of a fusion",
    (
        "passes/pair_types/structure_rules.py",
        "all-gather all-to-all collective-broadcast collective-permute copy gather",
    ): "what moves either part of a pair as it moves the pair",
    ("passes/rules_pooling.py", "maximum minimum"): "no sum that would be rounded",
    (
        "passes/expanders/global_forms.py",
        "add multiply",
    ): "what rounds, and has parts beyond a range",
    ("passes/rules_reduction.py", "add multiply"): "of truths they are or and and",
    ("passes/rules_scatter.py", "add maximum minimum"): "what a table of few places adds up",
    ("sharding/propagation.py", "copy reshape transpose"): "what passes a sharding through whole",
}
"""File and opcodes of the sets that no trait says, and why they are written out."""


def test_sets_of_opcodes_are_made_of_traits() -> None:
    found = {
        (path.relative_to(ROOT / "compiler").as_posix(), " ".join(sorted(opcodes)))
        for name, path in modules().items()
        if name.startswith("compiler.") and not f"{name}.".startswith("compiler.hlo.")
        for opcodes in source(name).opcode_sets
    }
    news = sorted(f"{path}: {opcodes}" for path, opcodes in found - REASONS.keys())
    assert not news, "ask for a trait of compiler/hlo/ops:\n" + "\n".join(news)
    assert not REASONS.keys() - found, "reasons of sets that are gone"
