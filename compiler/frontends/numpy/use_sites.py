"""What the user's program was doing when it asked for a value: the expression, and what to write for it.

Python and NumPy ask for values from native code (``table[i]``, ``np.array([x, y])``), which does not say why.
The instruction that the user's frame is at does, and its place in the source has the user's own names.
"""

from __future__ import annotations

import ast
import dis
import linecache
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType

from compiler.diagnostics import users_frame

_LOOKUP, _STORE = "BINARY_SUBSCR", "STORE_SUBSCR"


@dataclass(frozen=True)
class UseSite:
    """What asks for a value: `use`, a phrase before "needs the value of", and `advice`, what to write."""

    use: str
    advice: str


def site_of_use(default: UseSite) -> UseSite:
    """What the user's program asks for; `default` where that is nothing known here, or has no source."""
    frame, _ = users_frame()
    if frame is None:
        return default
    opcode, expression = _opcode(frame), _expression(frame)
    if isinstance(expression, ast.Subscript) and opcode in (_LOOKUP, _STORE):
        return (_lookup if opcode == _LOOKUP else _store)(expression)
    if isinstance(expression, ast.Call):
        return _call(expression) or default
    return default


def stored_at() -> tuple[str, str]:
    """The array that the user's program stores in, and the key, as they are written there."""
    frame, _ = users_frame()
    expression = None if frame is None else _expression(frame)
    if isinstance(expression, ast.Subscript):
        return ast.unparse(expression.value), _key(expression)
    return "x", "..."


def _lookup(expression: ast.Subscript) -> UseSite:
    array, key = ast.unparse(expression.value), _key(expression)
    return UseSite(
        f"{array}[{key}], an array or list of the host indexed by a traced value,",
        f"write tpuc.numpy.asarray({array})[{key}], which makes the table part of the program",
    )


def _store(expression: ast.Subscript) -> UseSite:
    array, key = ast.unparse(expression.value), _key(expression)
    return UseSite(
        f"{array}[{key}] = ..., storing in an array that NumPy made on the host,",
        f"make {array} with tpuc.numpy (tpuc.numpy.zeros, ...) or np.zeros_like of a traced array, or write "
        f"{array} = tpuc.numpy.asarray({array}) before",
    )


def _call(expression: ast.Call) -> UseSite | None:
    """A function of NumPy's, by whatever name the user knows the module."""
    function = expression.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return None
    if function.value.id not in ("np", "numpy"):
        return None
    written = ast.unparse(expression)
    inner = written[len(function.value.id) + 1 :]
    return UseSite(
        f"{function.value.id}.{function.attr}, of what NumPy does not take for traced arrays (a list, an "
        "index into an array of the host),",
        f"write tpuc.numpy.{inner}",
    )


def _key(expression: ast.Subscript) -> str:
    key = ast.unparse(expression.slice)
    return key[1:-1] if isinstance(expression.slice, ast.Tuple) and len(key) > 2 else key


def _opcode(frame: FrameType) -> str:
    """The instruction that the frame is at."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def _expression(frame: FrameType) -> ast.expr | None:
    """The expression that the instruction belongs to; None where its source is not known."""
    first, last, start, end = _position(frame.f_code, frame.f_lasti)
    if first is None or last is None or start is None or end is None:
        return None
    lines = [linecache.getline(frame.f_code.co_filename, n) for n in range(first, last + 1)]
    texts = [line.encode() for line in lines]  # columns count bytes
    texts[-1] = texts[-1][:end]
    texts[0] = texts[0][start:]
    try:
        return ast.parse(b"(" + b"".join(texts) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _position(code: CodeType, offset: int) -> tuple[int | None, ...]:
    return next(islice(code.co_positions(), offset // 2, None), (None,) * 4)
