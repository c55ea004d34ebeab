"""Where a process stands that does not go on, as far as this machine can say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_GDB_SECONDS = 60.0
"""Assumed: on a busy host gdb takes some seconds."""
_LIBRARIES = "libc|libpython|libpthread"
"""Of which symbols are read. Those of jaxlib and LLVM take gdb minutes on a busy host."""


def where(process: int) -> str:
    """The native frames of all threads of a process, by gdb; what the kernel says where there is no gdb.

    Python's own frames are not enough: a forked child may hang before its first step of Python.
    """
    debugger = shutil.which("gdb")
    if debugger is None:
        return "no gdb to ask; " + _by_the_kernel(process)
    command = [debugger, "-iex", "set auto-solib-add off", "-p", str(process), "-batch"]
    command += ["-ex", f"sharedlibrary {_LIBRARIES}", "-ex", "thread apply all bt 60"]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=_GDB_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"gdb did not end in {_GDB_SECONDS:g} s; " + _by_the_kernel(process)
    frames = [line for line in said.stdout.splitlines() if line.startswith(("#", "Thread"))]
    return "\n".join(frames) or said.stderr


def _by_the_kernel(process: int) -> str:
    found = []
    for thread in sorted(Path(f"/proc/{process}/task").iterdir()):
        for name in ("wchan", "syscall"):
            try:
                found.append(f"thread {thread.name} {name}: {(thread / name).read_text().strip()}")
            except OSError as error:
                found.append(f"thread {thread.name} {name}: {error.strerror}")
    return "\n".join(found)
