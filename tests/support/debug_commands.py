"""The command of RUN lines that concern the debugger.

debug MODEL [--target=v5e] [--machine=llvm]    prints what the file's commands print
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tpuc
from compiler.options import CompileOptions
from tests.support.filecheck import command
from tests.support.filecheck_commands import option
from tpuc.arrays import randoms
from tpuc.debugger.commands import CommandLoop
from tpuc.debugger.debugger import Debugger

ROOT = Path(__file__).resolve().parents[2]


@command("debug")
def debug(path: Path, arguments: Sequence[str]) -> str:
    """A transcript: each command, and what it prints; an error ends it."""
    model = next(a for a in arguments if not a.startswith("--") and not a.endswith(".dbg"))
    options = CompileOptions(text_file=model)
    exe = tpuc.compile(ROOT / model, option(arguments, "target", "v5e"), options=options)
    inputs = list(randoms(exe.argument_shapes, 0))
    commands = CommandLoop(Debugger(exe, inputs, option(arguments, "machine", "llvm")))
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            lines.append(f"(tpuc) {line}")
            try:
                lines.append(commands.execute(line))
            except ValueError as error:
                lines.append(f"error: {error}")
    return "\n".join(lines)
