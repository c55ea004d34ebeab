"""The little of protocol buffers that is needed here: fields in, fields out.

A message is a sequence of (tag, value); a tag is a field's number and a wire type. What is read are
varints, and fields with a length. Fixed-width fields are passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WORD = (1 << 64) - 1


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer at a place in `data`, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field of a message: its number, and an integer or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = varint(data, at)
            yield tag >> 3, value
        elif wire == _LENGTH:
            size, at = varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            message = f"wire type {wire} in a protocol buffer"
            raise ValueError(message)


def encoded(value: int) -> bytes:
    """An integer as a varint; a negative one as the 64 bits of its two's complement."""
    value &= _WORD
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(number: int, value: int) -> bytes:
    """A field that holds an integer."""
    return encoded(number << 3 | _VARINT) + encoded(value)


def bytes_field(number: int, data: bytes) -> bytes:
    """A field that holds bytes: a string, or a message."""
    return encoded(number << 3 | _LENGTH) + encoded(len(data)) + data


def text_field(number: int, text: str) -> bytes:
    """A field that holds a string; what UTF-8 has not is replaced."""
    return bytes_field(number, text.encode("utf-8", "replace"))


def double_field(number: int, value: float) -> bytes:
    """A field that holds a float of 64 bits."""
    return encoded(number << 3 | _FIXED64) + struct.pack("<d", value)
