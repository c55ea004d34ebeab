"""Attribute values as text, both ways, by attribute name: ``dimensions`` -> ``{0,2}``.

One table says how each name known to XLA is written; a name that is not in it keeps its value
as `RawText`. Computations and instructions are decoded to `Reference`s, which the parser
resolves once everything is known. Malformed values raise ValueError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from compiler.hlo import alias_text, mesh_text, window_text
from compiler.hlo.attributes import (
    Attribute,
    FrontendAttributes,
    IotaReplicaGroups,
    OpMetadata,
    RawText,
)
from compiler.hlo.escapes import quote, unquote
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape_text import inside_braces
from compiler.hlo.sharding_text import parse_sharding


@dataclass(frozen=True)
class Reference:
    """Names that stand for computations or (`of_instructions`) instructions; maybe a list."""

    names: tuple[str, ...]
    is_list: bool
    of_instructions: bool = False


@dataclass(frozen=True)
class InlineBody:
    """A computation written out in the place of its name; the text is with the token."""


@dataclass(frozen=True)
class AttributeForm:
    """How one kind of attribute value is read and written."""

    decode: Callable[[str], object]
    encode: Callable[[object], str]


def decode(name: str, text: str) -> object:
    """Read the value of attribute `name`; raises ValueError saying what was expected."""
    form = FORMS.get(name)
    return RawText(_one_line(text)) if form is None else form.decode(text)


_SPACES = re.compile(r'("(?:[^"\\]|\\.)*")|(?<=\{)\s+|\s+(?=[},])|\s+')


def _one_line(text: str) -> str:
    """Runs of white space outside of strings as one blank; none inside of braces' ends."""
    if not any(c.isspace() for c in text):
        return text
    return _SPACES.sub(lambda found: found[1] or _blank(found, text), text)


def _blank(found: re.Match[str], text: str) -> str:
    before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
    return "" if before == "{" or after in ("}", ",") else " "


def encode(name: str, value: object) -> str:
    """Write the value of attribute `name` in XLA's form."""
    if isinstance(value, RawText):
        return value.text
    form = FORMS.get(name)
    return _encode_by_type(value) if form is None else form.encode(value)


def _encode_by_type(value: object) -> str:
    """A name that XLA does not know, set by a pass: written by the value's own type."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float() | str():
            return str(value)
        case HloComputation():
            return f"%{value.name}"
        case tuple():
            return "{" + ",".join(_encode_by_type(v) for v in value) + "}"
    raise TypeError(f"attribute value {value!r} has no text form")


def _decode_int(text: str) -> int:
    return int(text)


def _decode_bool(text: str) -> bool:
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"want true or false, found {text!r}")
    return text in ("true", "1")


def _encode_bool(value: object) -> str:
    return "true" if value else "false"


def _decode_float(text: str) -> float:
    return float(text)


def _encode_float(value: object) -> str:
    return format(value, ".9g")


def _decode_word(text: str) -> str:
    if text.startswith(("{", '"', "[")):
        raise ValueError(f"want a word, found {text[:40]!r}")
    return text


def _decode_string(text: str) -> str:
    return unquote(text)


def _encode_string(value: object) -> str:
    return quote(str(value))


def _decode_ints(text: str) -> tuple[int, ...]:
    inside = inside_braces(text)
    return tuple(int(part) for part in inside.split(",")) if inside else ()


def _encode_ints(value: object) -> str:
    assert isinstance(value, tuple | list), value
    return "{" + ",".join(map(str, value)) + "}"


def _decode_words(text: str) -> tuple[str, ...]:
    inside = inside_braces(text)
    return tuple(part.strip() for part in inside.split(",")) if inside else ()


def _decode_lower_words(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _decode_words(text))


def _decode_groups(text: str) -> tuple[tuple[int, ...], ...]:
    inside = inside_braces(text)
    if inside and not re.fullmatch(r"\{[\d,\s]*\}(?:\s*,\s*\{[\d,\s]*\})*", inside):
        raise ValueError(f"want a list of lists of numbers, found {text[:40]!r}")
    return tuple(_decode_ints(group) for group in re.findall(r"\{[^{}]*\}", inside))


def _encode_groups(value: object) -> str:
    assert isinstance(value, tuple), value
    return "{" + ",".join(_encode_ints(group) for group in value) + "}"


_MOST_DEVICES = 1 << 24  # far beyond any slice; groups are spelled out one number a device
_IOTA = re.compile(r"\[([\d,\s]+)\]\s*<=\s*\[([\d,\s]+)\]\s*(?:T\(([\d,\s]+)\))?")


def _decode_replica_groups(
    text: str,
) -> tuple[tuple[int, ...], ...] | IotaReplicaGroups | RawText:
    if text.startswith(("mesh", "maximal_mesh")):
        return RawText(mesh_text.canonical_mesh_groups(text))
    found = _IOTA.fullmatch(text)
    if found is None:
        return _decode_groups(text)
    dims, reshape_dims, perm = (
        tuple(int(n) for n in part.split(",")) if part else () for part in found.groups()
    )
    if len(dims) != 2:
        raise ValueError(f"want [groups,group size]<=[...], found {text}")
    if math.prod(dims) != math.prod(reshape_dims):
        raise ValueError(f"the sizes on both sides of <= have other products: {text}")
    if math.prod(dims) > _MOST_DEVICES:
        raise ValueError(f"more than {_MOST_DEVICES} devices: {text}")
    if perm and sorted(perm) != list(range(len(reshape_dims))):
        raise ValueError(f"T(..) is no permutation of the dimensions before it: {text}")
    return IotaReplicaGroups((dims[0], dims[1]), reshape_dims, perm)


def _encode_replica_groups(value: object) -> str:
    if not isinstance(value, IotaReplicaGroups):
        return _encode_groups(value)
    dims = ",".join(map(str, value.dims))
    source = ",".join(map(str, value.reshape_dims))
    perm = f"T({','.join(map(str, value.transpose_perm))})" if value.transpose_perm else ""
    return f"[{dims}]<=[{source}]{perm}"


def _decode_slice(text: str) -> tuple[tuple[int, int, int], ...]:
    ranges: list[tuple[int, int, int]] = []
    for part in re.findall(r"\[([^\]]*)\]", inside_braces(text)):
        numbers = [int(n) for n in part.split(":")]
        if len(numbers) not in (2, 3):
            raise ValueError(f"want [start:limit] or [start:limit:stride], found [{part}]")
        ranges.append((numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 1))
    return tuple(ranges)


def _decode_slice_sizes(text: str) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
    """``{1,2}`` of a gather, ``{{1,2},{3,4}}`` of a collective-permute of slices."""
    return _decode_groups(text) if re.match(r"\{\s*\{", text) else _decode_ints(text)


def _encode_slice_sizes(value: object) -> str:
    assert isinstance(value, tuple), value
    return _encode_groups(value) if value and isinstance(value[0], tuple) else _encode_ints(value)


def _encode_slice(value: object) -> str:
    assert isinstance(value, tuple), value
    if all(stride == 1 for _, _, stride in value):
        parts = [f"[{start}:{limit}]" for start, limit, _ in value]
    else:
        parts = [f"[{start}:{limit}:{stride}]" for start, limit, stride in value]
    return "{" + ", ".join(parts) + "}"


def _decode_computation(text: str) -> Reference | InlineBody:
    if text.startswith("{"):
        return InlineBody()
    return Reference((_decode_word(text).removeprefix("%"),), is_list=False)


def _decode_computations(text: str) -> Reference | InlineBody:
    if not text.startswith("{") or "=" in text:
        return _decode_computation(text)
    return Reference(tuple(n.removeprefix("%") for n in _decode_words(text)), is_list=True)


def _encode_computations(value: object) -> str:
    if isinstance(value, HloComputation | HloInstruction):
        return f"%{value.name}"
    assert isinstance(value, tuple), value
    return "{" + ", ".join(f"%{v.name}" for v in value) + "}"


def _decode_instructions(text: str) -> Reference:
    names = tuple(n.removeprefix("%") for n in _decode_words(text))
    return Reference(names, is_list=True, of_instructions=True)


def _decode_backend_config(text: str) -> str:
    return text if text.startswith("{") else _decode_string(text)


def _encode_backend_config(value: object) -> str:
    text = str(value)
    return text if text.startswith("{") and text.endswith("}") else quote(text)


_FRONTEND = re.compile(
    r'\s*([\w.\-/]+)\s*=\s*("(?:[^"\\]|\\.)*"|\{.*?\}(?=\s*(?:,\s*[\w.\-/]+=|$)))\s*,?', re.S
)


def _decode_frontend_attributes(text: str) -> FrontendAttributes:
    inside = inside_braces(text)
    items: list[tuple[str, str]] = []
    position = 0
    while position < len(inside):
        found = _FRONTEND.match(inside, position)
        if found is None:
            raise ValueError(f'want key="value" or key={{...}}, found {inside[position:][:40]!r}')
        items.append((found[1], found[2]))
        position = found.end()
    return FrontendAttributes(tuple(items))


def _encode_frontend_attributes(value: object) -> str:
    assert isinstance(value, FrontendAttributes), value
    return "{" + ",".join(f"{key}={text}" for key, text in value.items) + "}"


def _decode_metadata(text: str) -> OpMetadata:
    inside_braces(text)
    return OpMetadata(text)


def _encode_metadata(value: object) -> str:
    assert isinstance(value, OpMetadata), value
    return value.text


_ACCURACY = re.compile(r"\{\s*(?:mode\s*=\s*(?i:default|highest)|tolerance\s*=\s*\{[^{}]*\})\s*\}")


def _decode_accuracy(text: str) -> RawText:
    if not _ACCURACY.fullmatch(text):
        raise ValueError(f"want {{mode=default or highest}} or {{tolerance={{...}}}}, found {text}")
    return RawText(_one_line(text))


def _encode_raw(value: object) -> str:
    assert isinstance(value, RawText), value
    return value.text


_INT = AttributeForm(_decode_int, str)
_BOOL = AttributeForm(_decode_bool, _encode_bool)
_FLOAT = AttributeForm(_decode_float, _encode_float)
_WORD = AttributeForm(_decode_word, str)
_STRING = AttributeForm(_decode_string, _encode_string)
_INTS = AttributeForm(_decode_ints, _encode_ints)
_WORDS = AttributeForm(_decode_lower_words, _encode_ints)
_PAIRS = AttributeForm(_decode_groups, _encode_groups)
_COMPUTATION = AttributeForm(_decode_computation, _encode_computations)
_COMPUTATIONS = AttributeForm(_decode_computations, _encode_computations)

_BY_KIND: dict[object, AttributeForm] = {
    int: _INT,
    bool: _BOOL,
    (int, float): _FLOAT,
    str: _WORD,
    tuple: _INTS,
    HloComputation: _COMPUTATION,
}
"""By the type that an attribute of `HloInstruction` is declared with."""

_BY_FORM: tuple[tuple[AttributeForm, str], ...] = (
    (_INT, "channel_id replica_count num_partitions"),
    (
        _BOOL,
        "unique_indices indices_are_sorted use_global_device_ids custom_call_has_side_effect "
        "is_host_transfer constrain_layout is_scheduled alias_passthrough_params",
    ),
    (_WORD, "type api_version custom_call_schedule is_associative"),
    (
        _STRING,
        "custom_call_target infeed_config outfeed_config execution_thread async_execution_thread",
    ),
    (_WORDS, "operand_precision"),
    (_COMPUTATION, "async_wrapped"),
    (_COMPUTATIONS, "calls branch_computations called_computations"),
    (_PAIRS, "source_target_pairs"),
    (AttributeForm(_decode_instructions, _encode_computations), "control-predecessors"),
    (AttributeForm(_decode_replica_groups, _encode_replica_groups), "replica_groups"),
    (AttributeForm(_decode_accuracy, _encode_raw), "result_accuracy"),
    (AttributeForm(parse_sharding, str), "sharding"),
    (AttributeForm(_decode_slice, _encode_slice), "slice"),
    (AttributeForm(_decode_slice_sizes, _encode_slice_sizes), "slice_sizes"),
    (AttributeForm(window_text.decode_padding, window_text.encode_padding), "padding"),
    (AttributeForm(window_text.decode_window, window_text.encode_window), "window"),
    (AttributeForm(window_text.decode_dim_labels, window_text.encode_dim_labels), "dim_labels"),
    (AttributeForm(_decode_metadata, _encode_metadata), "metadata"),
    (
        AttributeForm(_decode_frontend_attributes, _encode_frontend_attributes),
        "frontend_attributes",
    ),
    (AttributeForm(_decode_backend_config, _encode_backend_config), "backend_config"),
    (AttributeForm(alias_text.decode_layout, alias_text.encode_layout), "entry_computation_layout"),
    (
        AttributeForm(alias_text.decode_input_output_alias, alias_text.encode_input_output_alias),
        "input_output_alias",
    ),
    (AttributeForm(alias_text.decode_buffer_donor, alias_text.encode_buffer_donor), "buffer_donor"),
    (
        AttributeForm(alias_text.decode_output_operand, alias_text.encode_output_operand),
        "output_to_operand_aliasing",
    ),
    (
        AttributeForm(alias_text.decode_shapes, alias_text.encode_shapes),
        "operand_layout_constraints",
    ),
)

FORMS: dict[str, AttributeForm] = {
    **{
        name: _BY_KIND[attribute.kind]
        for name, attribute in vars(HloInstruction).items()
        if isinstance(attribute, Attribute) and attribute.kind in _BY_KIND
        if name != "parameter_number"  # which stands between the parentheses
    },
    **{name: form for form, names in _BY_FORM for name in names.split()},
}
"""How the value of each known attribute is written; an absent name is kept as `RawText`.

Those that `HloInstruction` declares are written as their type is, but for what is listed above.
"""
