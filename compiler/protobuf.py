"""The little of protocol buffers that is needed here: fields in, fields out.

A message is a sequence of (tag, value); a tag is a field's number and a wire type. `fields` goes through one,
`Message` looks fields up by number. What is no protocol buffer, or one that ends too early, is a ValueError.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WORD = (1 << 64) - 1
_MOST_BITS = 63  # of a varint's last byte: ten bytes of seven bits


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer at a place in `data`, and the place behind it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > _MOST_BITS:
            message = f"no integer at byte {at} of a protocol buffer"
            raise ValueError(message)
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field of a message: its number, and an integer or bytes (little-endian ones of a fixed width)."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        if wire == _LENGTH:
            size, at = varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            message = f"wire type {wire} in a protocol buffer"
            raise ValueError(message)
        if at + size > len(data):
            message = f"a field of {size} bytes reaches beyond its protocol buffer"
            raise ValueError(message)
        yield tag >> 3, data[at : at + size]
        at += size


def signed(value: int) -> int:
    """An integer of 64 bits as two's complement has it."""
    value &= _WORD
    return value - (_WORD + 1) if value >> 63 else value


class Message:
    """The fields of one message by number. An absent field reads as empty or zero, as in proto3."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = defaultdict(list)
        for number, value in fields(data):
            self._fields[number].append(value)

    def __contains__(self, number: int) -> bool:
        return bool(self._fields.get(number))

    @property
    def numbers_present(self) -> set[int]:
        """The numbers of all fields that it has."""
        return set(self._fields)

    def integer(self, number: int) -> int:
        """A signed integer; the last one if the field is repeated."""
        found = self._fields.get(number)
        value = found[-1] if found else 0
        return signed(value) if isinstance(value, int) else signed(int.from_bytes(value, "little"))

    def integers(self, number: int) -> tuple[int, ...]:
        """A repeated field of signed integers, packed or not."""
        found: list[int] = []
        for value in self._fields.get(number, ()):
            found += [signed(value)] if isinstance(value, int) else packed_integers(value).tolist()
        return tuple(found)

    def integers_of(self, *numbers: int) -> tuple[int, ...]:
        """One integer of each of these fields."""
        return tuple(map(self.integer, numbers))

    def raw(self, number: int) -> bytes:
        """Bytes; those of a repeated field one after another, as packed numbers may be cut."""
        return b"".join(v for v in self._fields.get(number, ()) if isinstance(v, bytes))

    def float32(self, number: int) -> float:
        """A float of 32 bits."""
        data = self.raw(number)[-4:]
        return float(struct.unpack("<f", data)[0]) if len(data) == 4 else 0.0

    def float64(self, number: int) -> float:
        """A float of 64 bits."""
        data = self.raw(number)[-8:]
        return float(struct.unpack("<d", data)[0]) if len(data) == 8 else 0.0

    def text(self, number: int) -> str:
        """A string; bytes that are no UTF-8 become surrogates, which `compiler.hlo.escapes` writes."""
        found = self._fields.get(number)
        value = found[-1] if found else b""
        return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)

    def texts(self, number: int) -> list[str]:
        """A repeated string."""
        return [v.decode("utf-8", "surrogateescape") for v in self._parts(number)]

    def message(self, number: int) -> Message:
        """A message within this one; an empty one if it is not there."""
        return Message(self.raw(number))

    def messages(self, number: int) -> list[Message]:
        """A repeated message."""
        return [Message(value) for value in self._parts(number)]

    def _parts(self, number: int) -> list[bytes]:
        return [value for value in self._fields.get(number, ()) if isinstance(value, bytes)]


def packed_integers(data: bytes) -> npt.NDArray[np.int64]:
    """The integers of a packed field; unsigned ones of 64 bits as two's complement has them."""
    septets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(septets < 128)
    if septets.size and (not ends.size or ends[-1] != septets.size - 1):
        message = "packed integers of a protocol buffer end within one"
        raise ValueError(message)
    starts = np.concatenate([[0], ends[:-1] + 1]) if ends.size else ends
    lengths = ends - starts + 1
    values = np.zeros(ends.size, np.uint64)
    for place in range(int(lengths.max(initial=0))):
        at = np.flatnonzero(lengths > place)
        part = (septets[starts[at] + place] & 127).astype(np.uint64)
        values[at] |= part << np.uint64(min(7 * place, 63))
    return values.view(np.int64)


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
