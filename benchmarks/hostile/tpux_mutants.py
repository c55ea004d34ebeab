"""Changes to ``.tpux`` files that leave their digest and lengths right."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import struct
from typing import Any

_PREFIX = struct.Struct("<5sHIQQ")
_VALUES: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 255, 256, 1023, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**63 - 1,
    2**63, -(2**63), 2**64, 10**30, 0.5, -1.5, 1e300, None, True, False, "", "x", "k0", [], {}, [0], [[]],
)  # fmt: skip


def mutated_tpux(data: bytes, source: random.Random) -> bytes:
    """The file after a few changes to its header, its code or its bytes."""
    magic, version, header_bytes, code_bytes, data_bytes = _PREFIX.unpack_from(data)
    at = _PREFIX.size
    text = data[at : at + header_bytes]
    code = bytearray(data[at + header_bytes : at + header_bytes + code_bytes])
    rest = data[at + header_bytes + code_bytes : -32]
    kind = source.random()
    if kind < 0.05:
        return _flipped(bytearray(data), source)
    if kind < 0.45 and code:
        code = bytearray(_flipped(code, source))
    elif kind < 0.5:
        text = _flipped(bytearray(text), source)
    else:
        header = json.loads(text)
        for _ in range(source.choice([1, 1, 1, 2, 3])):
            header = _changed(header, source)
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if source.random() < 0.03:
            depth = source.choice([100, 3000, 100_000])
            text = text.replace(b"[", b"[" * depth, 1).replace(b"]", b"]" * depth, 1)
    sizes = [len(text), len(code), data_bytes]
    if source.random() < 0.02:
        sizes[source.randrange(3)] = source.choice([0, 1, 2**31, 2**32 - 1])
    body = _PREFIX.pack(magic, version, *sizes) + text + bytes(code) + rest
    return body + hashlib.sha256(body).digest()


def _flipped(data: bytearray, source: random.Random) -> bytes:
    for _ in range(source.choice([1, 1, 2, 5, 20])):
        at = source.randrange(len(data))
        kind = source.random()
        if kind < 0.6:
            data[at] ^= 1 << source.randrange(8)
        elif kind < 0.9:
            data[at] = source.randrange(256)
        elif len(data) > 1:
            del data[at]
    return bytes(data)


def _changed(header: Any, source: random.Random) -> Any:
    """The header with one value, deep inside or not, changed."""
    header = copy.deepcopy(header)
    holder: Any = None
    key: Any = None
    value = header
    while isinstance(value, (dict, list)) and value:
        if holder is not None and source.random() < 0.08:
            break
        holder = value
        key = (
            source.choice(list(value)) if isinstance(value, dict) else source.randrange(len(value))
        )
        value = holder[key]
    kind = source.random()
    if kind < 0.1:
        del holder[key]
    elif kind < 0.2 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(value))
    elif kind < 0.5 and isinstance(value, int):
        holder[key] = value + source.choice([-1, 1, -8, 8, 512])
    elif kind < 0.6 and isinstance(holder, list):
        holder[key] = copy.deepcopy(source.choice(holder))
    else:
        holder[key] = copy.deepcopy(source.choice(_VALUES))
    return header
