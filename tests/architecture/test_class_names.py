"""A public class has a name that no other file gives to a class of its own, but for a few, with reasons."""

from __future__ import annotations

from collections import defaultdict

from tests.architecture.sources import modules, source

SHARED = {
    "Block": "of MLIR's regions; of bundles. Readers of MLIR see no bundle",
    "Checkpoint": "what a gradient keeps instead of values; a saved run: both the field's word",
    "Expr": "an index, in the analysis of indices; an array in the making, in HLO",
    "Mesh": "axes of devices as a sharding has them; the same with the runtime's devices, as JAX has both",
    "Op": "an opcode's declaration; a pattern of rewrite rules that matches one",
    "Run": "taps of a convolution in a row; a call of the runtime; an execution by a machine",
    "Scope": "where rules of derivatives, of batching and of pair types put instructions: a protocol of each",
    "Var": "of an index; of a pattern: both beside the `Expr` or `Op` of their file",
    "Window": "XLA's attribute of an operation; a range of VMEM: both the field's word",
}
"""Names of classes in more than one file, and what each means there."""


def test_public_classes_have_names_of_their_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for name in source(module).public_classes:
            places[name].append(module)
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not {n: w for n, w in shared.items() if n not in SHARED}, (
        "name it after what it is there"
    )
    assert shared.keys() == SHARED.keys(), "names that stand once need no reason any more"
