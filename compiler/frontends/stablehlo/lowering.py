"""A parsed document -> an HLO module: its functions become computations, ``@main`` the entry."""

from __future__ import annotations

from compiler.diagnostics import NO_FILE, CompileError
from compiler.frontends.stablehlo import (
    batch_norm,
    chlo,
    collective,
    contraction,
    control,
    custom,
    deprecated,
    dynamic,
    elementwise,
    mhlo,
    movement,
    reduction,
    sharding,
)
from compiler.frontends.stablehlo.body import Body, DocumentLowering, Lowering, check_results
from compiler.frontends.stablehlo.parser import parse_document
from compiler.frontends.stablehlo.syntax import Attribute, Document, Operation
from compiler.frontends.stablehlo.types import is_static
from compiler.hlo.attributes import (
    BufferDonor,
    ComputationLayout,
    FrontendAttributes,
    InputOutputAlias,
)
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.replica_groups import device_counts
from compiler.hlo.result_memories import DEVICE_MEMORY, put_result_memories

_STABLEHLO: dict[str, Lowering] = {
    **batch_norm.TABLE,
    **chlo.TABLE,
    **collective.TABLE,
    **contraction.TABLE,
    **control.TABLE,
    **custom.TABLE,
    **deprecated.TABLE,
    **dynamic.TABLE,
    **elementwise.TABLE,
    **movement.TABLE,
    **reduction.TABLE,
    **sharding.TABLE,
}
LOWERINGS: dict[str, Lowering] = {**_STABLEHLO, **mhlo.with_namesakes(_STABLEHLO)}
"""How each operation becomes HLO."""


def parse_stablehlo(text: str, file: str = NO_FILE) -> HloModule:
    """Parse MLIR text (StableHLO, pretty or generic form) into an HLO module.

    Raises CompileError with file, line and column for what is malformed or not supported.

    >>> module = parse_stablehlo('''
    ... func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    ...   %0 = stablehlo.add %x, %x : tensor<2xf32>
    ...   return %0 : tensor<2xf32>
    ... }''')
    >>> module.entry.root
    %add = add(%x, %x)
    """
    return lower_document(parse_document(text, file))


def lower_document(document: Document) -> HloModule:
    """Lower every function that the entry function reaches."""
    holder, functions = _functions(document)
    attributes = holder.attributes if holder is not None else {}
    name = attributes.get("sym_name")
    module = HloModule(name if isinstance(name, str) else "module")
    unit = DocumentLowering(document, module, LOWERINGS)
    unit.functions = {_name(function): function for function in functions}
    _read_devices(unit, attributes)
    entry = _entry_function(document, functions)
    _lower_entry(unit, entry)
    return module


def _functions(document: Document) -> tuple[Operation | None, list[Operation]]:
    """The module operation, if there is one, and the functions in it."""
    operations = list(document.operations)
    holder = next((op for op in operations if op.name == "module"), None)
    if holder is not None and holder.regions:
        operations = [
            inner for op in operations for region in op.regions for inner in region.operations
        ]
        nested = [op for op in operations if op.name == "module"]
        operations += [o for op in nested for region in op.regions for o in region.operations]
    functions = [op for op in operations if op.name == "func.func"]
    for op in operations:
        if op.name not in ("func.func", "module", "sdy.mesh"):
            op.fail("want a function (func.func) at the top of a module")
    return holder, functions


def _name(function: Operation) -> str:
    name = function.attributes.get("sym_name")
    if not isinstance(name, str):
        function.fail("the function has no name")
    return name


def _entry_function(document: Document, functions: list[Operation]) -> Operation:
    """``@main``, or the only public function."""
    named = [f for f in functions if _name(f) == "main"]
    public = [f for f in functions if f.attributes.get("sym_visibility", "public") == "public"]
    candidates = named or public
    if len(candidates) != 1 or not candidates[0].regions:
        names = ", ".join(f"@{_name(f)}" for f in functions) or "none"
        message = f"want a function @main or exactly one public function; found {names}"
        raise CompileError(message, document.source.span(0))
    return candidates[0]


def _read_devices(unit: DocumentLowering, attributes: dict[str, Attribute]) -> None:
    """How many devices the program is for, and what the header says about it."""
    partitions, replicas = (
        value if isinstance(value, int) else 1
        for value in (attributes.get("mhlo.num_partitions"), attributes.get("mhlo.num_replicas"))
    )
    if partitions > 1:
        unit.module.attrs["num_partitions"] = partitions
    if replicas > 1:
        unit.module.attrs["replica_count"] = replicas
    unit.device_count = device_counts(unit.module).devices
    meshes = unit.document.meshes
    if meshes and unit.device_count > 1:
        texts = [
            f"{name} = #sdy.mesh{text.removeprefix('#sdy.mesh')}" for name, text in meshes.items()
        ]
        items = (("xla.sdy.meshes", "{" + ", ".join(texts) + "}"),)
        unit.module.attrs["frontend_attributes"] = FrontendAttributes(items)


def _lower_entry(unit: DocumentLowering, function: Operation) -> None:
    b = Body(unit, _name(function), function)
    region = function.regions[0]
    unit.active.append(_name(function))
    for i, (argument, text) in enumerate(region.arguments):
        shape = unit.type(text, function)
        if not is_static(shape):
            function.fail(
                f"argument {argument} is {text}: give the model with static shapes "
                "(export it with concrete argument shapes)"
            )
        parameter = b.parameter(shape, argument.lstrip("%"))
        attributes = region.attributes[i] if i < len(region.attributes) else {}
        parameter.attrs |= b.annotations(attributes)
        b.bind(argument, parameter)
        if argument in region.locations:
            b.locate(parameter, region.locations[argument])
    results = b.lower_block(region.operations)
    check_results(unit, function, results)
    annotations = function.attributes.get("res_attrs", ())
    if isinstance(annotations, tuple) and len(annotations) == len(results):
        pairs = zip(results, annotations, strict=True)
        results = [_stated(b, r, a) if isinstance(a, dict) else r for r, a in pairs]
    module = b.build_entry(b.pack(results))
    _order_header(module)
    _read_aliases(module, function, len(results))
    _read_memories(module, function)


def _stated(b: Body, result: HloInstruction, attributes: dict[str, Attribute]) -> HloInstruction:
    """A result with what the signature says of it, which Shardy tells from a constraint."""
    is_shardy = "sdy.sharding" in attributes
    return b.annotated(
        result, attributes, "xla.sdy.FuncResultSharding" if is_shardy else "Sharding"
    )


def _order_header(module: HloModule) -> None:
    """Put the layout first, where XLA prints it."""
    layout = module.attrs.pop("entry_computation_layout")
    assert isinstance(layout, ComputationLayout)
    module.attrs = {"entry_computation_layout": layout, **module.attrs}


def _read_memories(module: HloModule, function: Operation) -> None:
    """Results that the signature puts in another memory than the device's own: ``mhlo.memory_kind``."""
    stated = function.attributes.get("res_attrs", ())
    kinds: dict[int, str] = {}
    for number, attributes in enumerate(stated if isinstance(stated, tuple) else ()):
        kind = attributes.get("mhlo.memory_kind") if isinstance(attributes, dict) else None
        if isinstance(kind, str) and kind != DEVICE_MEMORY:
            kinds[number] = kind
    if kinds:
        put_result_memories(module, kinds)


def _read_aliases(module: HloModule, function: Operation, result_count: int) -> None:
    """Donated arguments: ``tf.aliasing_output = 0`` and ``jax.buffer_donor = true``."""
    aliases, donors = [], []
    for number, attributes in enumerate(function.regions[0].attributes):
        output = attributes.get("tf.aliasing_output")
        if isinstance(output, int):
            index = (output,) if result_count > 1 else ()
            aliases.append(InputOutputAlias(index, number, ()))
        elif attributes.get("jax.buffer_donor") is True:
            donors.append(BufferDonor(number, ()))
    if aliases:
        module.attrs["input_output_alias"] = tuple(aliases)
    if donors:
        module.attrs["buffer_donor"] = tuple(donors)
