"""Attributes that only debuggers and numerics tools read, in XLA's form: origins, accuracies."""

from __future__ import annotations

import re

_BETWEEN = re.compile(r"(?<=[})]),\s*(?=[{(])")
_FIELD = re.compile(r"(atol|rtol|ulps)\s*=\s*([-+\w.]+)")


def canonical_origin(text: str) -> str:
    """``{({"a"},{"b"})}`` -> ``{({"a"}, {"b"})}``."""
    return re.sub(r"\(\s+", "(", _BETWEEN.sub(", ", text))


def canonical_accuracy(text: str) -> str:
    """``{tolerance={rtol=0.5, atol=1.0}}`` -> ``{tolerance={atol=1,rtol=0.5,ulps=0}}``.

    A mode is a word in small letters; the default mode is not printed at all: empty.
    """
    if "tolerance" not in text:
        text = re.sub(r"\s", "", text.lower())
        return "" if text == "{mode=default}" else text
    fields = {name: float(value) for name, value in _FIELD.findall(text)}
    atol, rtol = (f"{fields.get(name, 0.0):g}" for name in ("atol", "rtol"))
    return f"{{tolerance={{atol={atol},rtol={rtol},ulps={int(fields.get('ulps', 0))}}}}}"
