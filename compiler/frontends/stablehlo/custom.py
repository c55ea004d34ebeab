"""``stablehlo.custom_call``: a call by name of something outside of the program.

Targets that stand for an operation (``mhlo.erf``, ``chlo``'s spelling in exported JAX programs)
become that operation; annotations mean nothing on one device; anything else stays a custom call.
"""

from __future__ import annotations

import re

from compiler.frontends.stablehlo import chlo
from compiler.frontends.stablehlo.annotations import config_text
from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.collective import ragged_all_to_all
from compiler.frontends.stablehlo.syntax import Attribute, Operation, Raw, Symbol
from compiler.hlo.attributes import OutputOperandAlias
from compiler.hlo.shape import TupleShape, is_compatible

_API_VERSIONS = {
    2: "API_VERSION_STATUS_RETURNING",
    3: "API_VERSION_STATUS_RETURNING_UNIFIED",
    4: "API_VERSION_TYPED_FFI",
}
_ANNOTATIONS = frozenset(
    {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"}
)
_ALIAS = re.compile(
    r"output_tuple_indices\s*=\s*\[([\d,\s]*)\].*?operand_index\s*=\s*(\d+)"
    r".*?operand_tuple_indices\s*=\s*\[([\d,\s]*)\]",
    re.DOTALL,
)


def _custom_call(b: Body, op: Operation) -> Instr | list[Instr]:
    a = b.attributes()
    target = a.string("call_target_name")
    operands = b.operands()
    if target == "shape_assertion":
        return _shape_assertion(b, op, operands)
    if target == "ragged_all_to_all":
        return ragged_all_to_all(b, op)
    lowering = chlo.TABLE.get(f"chlo.{target.partition('.')[2]}")
    if target.startswith(("mhlo.", "chlo.")) and lowering is not None:
        attributes = op.attributes.get("mhlo.attributes", {})
        assert isinstance(attributes, dict)
        op.attributes = {**op.attributes, **attributes}
        results = lowering(b, op)
        return results if isinstance(results, Instr) else list(results)
    if b.unit.device_count == 1 and target in _ANNOTATIONS and _keeps_shape(b, operands):
        return operands
    attrs = _attrs(b, op, target)
    types = b.result_types()
    declared = types[0] if len(types) == 1 else TupleShape(types)
    called = b.instruction("custom-call", operands, attrs, declared)
    if len(types) == 1:
        return called
    return [b.get_tuple_element(called, i) for i in range(len(types))]


def _keeps_shape(b: Body, operands: list[Instr]) -> bool:
    types = b.result_types()
    return len(types) == len(operands) == 1 and is_compatible(types[0], operands[0].shape)


def _shape_assertion(b: Body, op: Operation, operands: list[Instr]) -> list[Instr]:
    """Exported JAX programs check shapes that were polymorphic; here they are constants."""
    holds = b.constant_ints(operands[0], "a shape assertion")
    if not holds[0]:
        op.fail(f"the assertion fails: {b.attributes().string('error_message', '')}")
    return []


def _attrs(b: Body, op: Operation, target: str) -> dict[str, object]:
    a = b.attributes()
    attrs: dict[str, object] = {"custom_call_target": target}
    if a.flag("has_side_effect"):
        attrs["custom_call_has_side_effect"] = True
    if aliases := _aliases(op.attributes.get("output_operand_aliases", ())):
        attrs["output_to_operand_aliasing"] = aliases
    called = op.attributes.get("called_computations", ())
    if isinstance(called, tuple) and called:
        attrs["called_computations"] = tuple(
            b.function(v.name) for v in called if isinstance(v, Symbol)
        )
    if version := _API_VERSIONS.get(a.integer("api_version", 1)):
        attrs["api_version"] = version
    config = op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config", ""))
    if text := config if isinstance(config, str) else config_text(config):
        attrs["backend_config"] = text
    return attrs


def _aliases(value: Attribute) -> tuple[OutputOperandAlias, ...]:
    texts = [v.text for v in value if isinstance(v, Raw)] if isinstance(value, tuple) else []
    found = [_ALIAS.search(text) for text in texts]
    return tuple(
        OutputOperandAlias(_ints(m[1]), int(m[2]), _ints(m[3])) for m in found if m is not None
    )


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


TABLE: dict[str, Lowering] = {"stablehlo.custom_call": _custom_call}
