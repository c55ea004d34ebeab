r"""Quoted strings of HLO text, both ways: C escapes over the bytes of UTF-8.

>>> quote('a"b\n\xe9')
'"a\\"b\\n\\303\\251"'
>>> unquote('"\\303\\251\\x41"')
'éA'
"""

from __future__ import annotations

import re

_NAMED = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11}
_WRITTEN = {ord(c): f"\\{c}" for c in "\\\"'"} | {10: "\\n", 9: "\\t", 13: "\\r"}
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")


def quote(text: str) -> str:
    """Return a C-escaped string in double quotes, as XLA writes it."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return '"' + "".join(map(_written, text.encode("utf-8", "surrogateescape"))) + '"'


def _written(byte: int) -> str:
    if byte in _WRITTEN:
        return _WRITTEN[byte]
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def unquote(text: str) -> str:
    """Return what a quoted string stands for; ValueError when it is not quoted."""
    if len(text) < 2 or not text.startswith('"') or not text.endswith('"'):
        raise ValueError(f"want a quoted string, found {text[:40]!r}")
    if "\\" not in text:
        return text[1:-1]
    data = _ESCAPE.sub(_read, text[1:-1].encode("utf-8", "surrogateescape"))
    return data.decode("utf-8", "surrogateescape")


def _read(found: re.Match[bytes]) -> bytes:
    code = found[1].decode("latin-1")
    if code[0] == "x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[0].isdigit():
        return bytes([int(code, 8) & 0xFF])
    return bytes([_NAMED[code]]) if code in _NAMED else found[1]


_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*', re.DOTALL)


def without_comments(text: str) -> str:
    """Drop comments that stand outside of quoted strings.

    >>> without_comments('{1, /*k*/2, "/*s*/"} // rest')
    '{1, 2, "/*s*/"} '
    """
    if "/*" not in text and "//" not in text:
        return text
    return _COMMENT.sub(lambda found: found[1] or "", text)
