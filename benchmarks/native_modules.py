"""What LLVM keeps of native code that is gone.

    python -m benchmarks.native_modules [--count 300]

links modules of three small functions one after the other, looks one function up in each, lets go of
them, and prints how much more malloc holds for each of them afterwards. Needs glibc 2.33 or newer.
"""

from __future__ import annotations

import argparse
import ctypes
import time

from tpu_sim.jit.engine import Engine, NativeModule, detect_host

_FIELDS = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
    "keepcost",
)  # fmt: skip
_SECONDS_TO_UNLOAD = 1.0
"""A thread of its own unloads what nobody needs any more (`tpu_sim.jit.engine`)."""


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def held_bytes() -> int:
    """Bytes that malloc has given out."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


def grown(code: bytes, count: int, *, is_looked_up: bool) -> float:
    """Bytes that are held more for each module that was linked and let go of."""
    before = held_bytes()
    for _ in range(count):
        module = NativeModule(code)
        if is_looked_up:
            module.address("f0")
        del module
    time.sleep(_SECONDS_TO_UNLOAD)
    return (held_bytes() - before) / count


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="modules")
    count = parser.parse_args().count
    functions = (f"define i64 @f{n}(i64 %x) {{\n  ret i64 %x\n}}" for n in range(3))
    code = Engine(detect_host(), None).object_code("\n".join(functions))
    for name, is_looked_up in (("linked", False), ("linked, one function looked up", True)):
        grown(code, 30, is_looked_up=is_looked_up)  # what is made once
        print(f"{name}: {grown(code, count, is_looked_up=is_looked_up) / 1e3:.1f} kB each")


if __name__ == "__main__":
    main()
