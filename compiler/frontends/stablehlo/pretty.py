"""The pretty form of operations -> the operands and attribute names of the generic form.

A pretty operation arrives as a flat list of items: value lists, ``key = value`` pairs, words,
brackets, a dictionary. `_KEYS` renames the keys; `_FINISH` takes apart what is not a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from lark import Token

from compiler.diagnostics import CompileError
from compiler.frontends.stablehlo.dense import integer
from compiler.frontends.stablehlo.syntax import Attribute, Dense, Operation, Raw, Region, Symbol

_USE = re.compile(r"%[\w$.\-]+(?:#\d+)?")
_RANGE = re.compile(r"\d+\s*:\s*\d+(?:\s*:\s*\d+)?")

_KEYS: dict[str, dict[str, str]] = {
    "stablehlo.broadcast": {"sizes": "broadcast_sizes"},
    "stablehlo.broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "stablehlo.concatenate": {"dim": "dimension"},
    "stablehlo.dynamic_broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "stablehlo.dynamic_iota": {"dim": "iota_dimension"},
    "stablehlo.dynamic_slice": {"sizes": "slice_sizes"},
    "stablehlo.einsum": {"config": "einsum_config"},
    "stablehlo.fft": {"type": "fft_type", "length": "fft_length"},
    "stablehlo.get_dimension_size": {"dim": "dimension"},
    "stablehlo.iota": {"dim": "iota_dimension"},
    "stablehlo.pad": {
        "low": "edge_padding_low",
        "high": "edge_padding_high",
        "interior": "interior_padding",
    },
    "stablehlo.reverse": {"dims": "dimensions"},
    "stablehlo.rng": {"distribution": "rng_distribution"},
    "stablehlo.rng_bit_generator": {"algorithm": "rng_algorithm"},
    "stablehlo.set_dimension_size": {"dim": "dimension"},
    "stablehlo.transpose": {"dims": "permutation"},
    "stablehlo.unary_einsum": {"config": "einsum_config"},
}


class _Items:
    """The items of one operation, sorted by kind; keys are still those of the pretty form."""

    def __init__(self) -> None:
        self.keys: dict[str, list[Token | dict[str, Attribute]]] = {}
        self.words: list[str] = []
        self.brackets: list[str] = []
        self.angles: list[str] = []
        self.symbols: list[str] = []
        self.strings: list[str] = []
        self.inits: list[str] = []
        self.loose: list[Token] = []  # everything that is neither operand nor key
        self.dense: str = ""
        self.bindings: str = ""


def normalise(op: Operation, children: Sequence[object]) -> None:
    """Fill in operands, attributes and regions of `op` from its items."""
    if len(children) == 1:  # the most frequent case by far: nothing but operands
        only = children[0]
        if isinstance(only, Token) and only.type == "VALUES":
            op.operands = _USE.findall(only) if "," in only else [only.rstrip()]
            return
    items = _sorted_items(op, children)
    name = _namesake(op.name)
    names = _KEYS.get(name, {})
    for key, values in items.keys.items():
        op.attributes[names.get(key, key)] = _value(op, key, values)
    finish = _FINISH.get(name)
    if finish is not None:
        finish(op, items)
    _check_loose(op, items)


def _namesake(name: str) -> str:
    """The operation that is written in the same way: ``mhlo`` has them from StableHLO and CHLO."""
    if name == "mhlo.scan":
        return "chlo.scan"
    return "stablehlo." + name.removeprefix("mhlo.") if name.startswith("mhlo.") else name


def _sorted_items(op: Operation, children: Sequence[object]) -> _Items:
    items = _Items()
    values: list[Token | dict[str, Attribute]] | None = None  # of the key that is open
    for child in children:
        if isinstance(child, Region):
            op.regions.append(child)
            for found in child.attributes:  # ``attributes {...} { ^bb0(...): ... }``
                op.attributes.update(found)
        elif isinstance(child, dict):
            if values is not None and not values:
                values.append(child)
            else:
                op.attributes.update(child)
        elif isinstance(child, Token) and child.type == "KEY":
            values = items.keys.setdefault(child.rstrip("= \t\n"), [])
        elif isinstance(child, Token) and child.type == "VALUES":
            op.operands.extend(_USE.findall(child))
            values = None
        elif isinstance(child, Token):
            if values is not None and (not values or _continues(values, child)):
                values.append(child)
            else:
                values = None
                _file_item(items, child)
    return items


def _check_loose(op: Operation, items: _Items) -> None:
    """Refuse what the operation has no place for: most often a signature without its colon."""
    kinds, words = _LOOSE.get(_namesake(op.name), ((), 0))
    seen_words = 0
    for token in items.loose:
        seen_words += token.type == "WORD"
        if token.type not in kinds or seen_words > words:
            message = f"{op.name}: expected a type signature (`: type`), found `{token}`"
            raise CompileError(message, op.source.span(token.start_pos or 0))


def _continues(values: list[Token | dict[str, Attribute]], token: Token) -> bool:
    """Whether a token belongs to the open key: the rest of ``[0] x [1]``."""
    last = values[-1]
    if token == "x":
        return isinstance(last, Token) and last.type == "BRACKETS"
    return token.type == "BRACKETS" and last == "x"


def _file_item(items: _Items, token: Token) -> None:
    items.loose.append(token)
    match token.type:
        case "WORD":
            items.words.append(str(token))
        case "BRACKETS":
            items.brackets.append(str(token))
        case "ANGLES":
            items.angles.append(str(token))
        case "SYMBOL":
            items.symbols.append(str(token))
        case "STRING":
            items.strings.append(str(token))
        case "INIT":
            items.inits.append(str(token))
        case "DENSE":
            items.dense = str(token)
        case "BINDINGS":
            items.bindings = str(token)


def _value(op: Operation, key: str, values: list[Token | dict[str, Attribute]]) -> Attribute:
    if not values:
        op.fail(f"{key} = has no value")
    if len(values) == 3:
        return tuple(_bracket(str(v)) for v in (values[0], values[2]))
    value = values[0]
    if isinstance(value, dict):
        return value
    match value.type:
        case "INTEGER":
            return integer(value)
        case "BRACKETS" if "<" not in value:
            return _bracket(value)
        case "STRING":
            return value[1:-1]
        case "WORD" if value in ("true", "false"):
            return str(value) == "true"
    return Raw(str(value))


def _bracket(text: str) -> Attribute:
    """``[[1, 2], [b, 0]]`` -> nested tuples of numbers, truth values and words."""
    stack: list[list[Attribute]] = [[]]
    for part in re.findall(r"\[|\]|[^\s,\[\]]+", text):
        if part == "[":
            stack.append([])
        elif part == "]":
            done = tuple(stack.pop())
            stack[-1].append(done)
        elif re.fullmatch(r"-?\d+", part):
            stack[-1].append(int(part))
        else:
            stack[-1].append(part == "true" if part in ("true", "false") else Raw(part))
    return stack[0][0]


def bindings(op: Operation) -> list[tuple[str, str]]:
    """The (argument, operand) pairs of a pretty while."""
    value = op.attributes.get("bindings", "")
    assert isinstance(value, str)
    names = _USE.findall(value)
    return list(zip(names[::2], names[1::2], strict=True))


# What is left of an operation when operands, keys and the dictionary are taken out.


def _compare(op: Operation, items: _Items) -> None:
    if not items.words:
        op.fail("want a direction: EQ, NE, LT, LE, GT or GE")
    op.attributes["comparison_direction"] = Raw(items.words[0])
    if len(items.words) > 1:
        op.attributes["compare_type"] = Raw(items.words[1])


def _constant(op: Operation, items: _Items) -> None:
    if items.dense:
        op.attributes["value"] = Dense(items.dense)


def _slice(op: Operation, items: _Items) -> None:
    if len(items.brackets) != 1:
        op.fail("want ranges: [start:limit:stride, ...]")
    inside = items.brackets[0][1:-1].strip()
    parts = [part.strip() for part in inside.split(",")] if inside else []
    if not all(_RANGE.fullmatch(part) for part in parts):
        op.fail("want ranges: [start:limit:stride, ...]")
    ranges = [[int(n) for n in part.split(":")] for part in parts]
    op.attributes["start_indices"] = tuple(r[0] for r in ranges)
    op.attributes["limit_indices"] = tuple(r[1] for r in ranges)
    op.attributes["strides"] = tuple(r[2] if len(r) == 3 else 1 for r in ranges)


def _get_tuple_element(op: Operation, items: _Items) -> None:
    index = items.brackets[0][1:-1].strip() if items.brackets else ""
    if not index.isdecimal():
        op.fail("want the number of an element: [index]")
    op.attributes["index"] = int(index)


def _dot_general(op: Operation, items: _Items) -> None:
    numbers: dict[str, Attribute] = {}
    for pretty, name in (("batching_dims", "batching"), ("contracting_dims", "contracting")):
        pair = op.attributes.pop(pretty, ((), ()))
        if not isinstance(pair, tuple) or len(pair) != 2:
            op.fail(f"{pretty}: want the dimensions of both sides, [..] x [..]")
        numbers[f"lhs_{name}_dimensions"], numbers[f"rhs_{name}_dimensions"] = pair
    op.attributes["dot_dimension_numbers"] = numbers
    _precision(op, items)


def _precision(op: Operation, items: _Items) -> None:
    if "precision" in op.attributes:
        op.attributes["precision_config"] = op.attributes.pop("precision")


def _convolution(op: Operation, items: _Items) -> None:
    op.attributes["dimension_numbers"] = op.attributes.pop("dim_numbers", Raw(""))
    window = op.attributes.pop("window", {})
    names = {
        "stride": "window_strides",
        "pad": "padding",
        "lhs_dilate": "lhs_dilation",
        "rhs_dilate": "rhs_dilation",
        "reverse": "window_reversal",
    }
    assert isinstance(window, dict)
    for key, value in window.items():
        if key not in names:
            op.fail(f"window = {{{key} = ...}}: want one of {', '.join(names)}")
        op.attributes[names[key]] = value


def _reduce(op: Operation, items: _Items) -> None:
    pairs = [_USE.findall(text) for text in items.inits]
    op.operands = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
    if "applies" in items.words:
        op.attributes["applies"] = items.words[items.words.index("applies") + 1]


def _while(op: Operation, items: _Items) -> None:
    op.attributes["bindings"] = items.bindings
    op.operands = [operand for _, operand in bindings(op)]


def _call(op: Operation, items: _Items) -> None:
    if len(items.symbols) != 1:
        op.fail("want the name of a function: @name")
    op.name = "func.call"
    op.attributes["callee"] = Symbol(items.symbols[0][1:].strip('"'))


def _custom_call(op: Operation, items: _Items) -> None:
    if len(items.symbols) != 1:
        op.fail("want the name of a target: @name")
    op.attributes["call_target_name"] = items.symbols[0][1:].strip('"')


def _composite(op: Operation, items: _Items) -> None:
    if items.strings:
        op.attributes["name"] = items.strings[0][1:-1]


def _reduce_precision(op: Operation, items: _Items) -> None:
    form = op.attributes.pop("format", None)
    found = re.fullmatch(r"e(\d+)m(\d+)", form.text) if isinstance(form, Raw) else None
    if found is not None:
        op.attributes["exponent_bits"] = int(found[1])
        op.attributes["mantissa_bits"] = int(found[2])


def _sharding_constraint(op: Operation, items: _Items) -> None:
    if items.angles:
        op.attributes["sharding"] = Raw(items.angles[0])


_FINISH: dict[str, Callable[[Operation, _Items], None]] = {
    "call": _call,
    "chlo.constant": _constant,
    "func.call": _call,
    "sdy.constant": _constant,
    "sdy.reshard": _sharding_constraint,
    "sdy.sharding_constraint": _sharding_constraint,
    "stablehlo.compare": _compare,
    "stablehlo.composite": _composite,
    "stablehlo.constant": _constant,
    "stablehlo.convolution": _convolution,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.dot": _precision,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_conv": _convolution,
    "stablehlo.get_tuple_element": _get_tuple_element,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.slice": _slice,
    "stablehlo.while": _while,
}

_LOOSE: dict[str, tuple[tuple[str, ...], int]] = {
    "chlo.constant": (("DENSE",), 0),
    "chlo.scan": (("WORD",), 1),
    "func.call": (("SYMBOL",), 0),
    "sdy.constant": (("DENSE",), 0),
    "sdy.reshard": (("ANGLES",), 0),
    "sdy.sharding_constraint": (("ANGLES",), 0),
    "stablehlo.compare": (("WORD",), 2),
    "stablehlo.composite": (("STRING",), 0),
    "stablehlo.constant": (("DENSE", "DIALECT_ATTRIBUTE"), 0),
    "stablehlo.custom_call": (("SYMBOL",), 0),
    "stablehlo.get_tuple_element": (("BRACKETS",), 0),
    "stablehlo.reduce": (("INIT", "WORD"), 3),
    "stablehlo.slice": (("BRACKETS",), 0),
    "stablehlo.while": (("BINDINGS",), 0),
}
"""Which items an operation may have beside operands and keys, and how many of them words."""
