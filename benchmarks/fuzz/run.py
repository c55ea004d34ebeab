"""The ways to run a module: evaluator, compiled on both machines, printed and read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.driver import CompileOptions
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from runtime.api import compile as compile_model
from runtime.client import client_for
from runtime.executable import Executable
from runtime.machines import MachineOptions

Array = npt.NDArray[Any]
PRECISION = "highest"


def evaluated(text: str, inputs: Sequence[Array]) -> list[Array]:
    """What the evaluator computes."""
    return list(evaluate(parse_module(text), list(inputs), PRECISION))


def compiled(text: str, target: str = "v5e") -> Executable:
    """The program, for the LLVM machine; nothing is kept on disk."""
    options = CompileOptions(precision=PRECISION)
    machine = MachineOptions(threads=1, cache=False)
    return compile_model(text, target, machine=machine, options=options)


def on_numpy(executable: Executable) -> Executable:
    """The same program for the NumPy machine, which looks for races and unwritten memory."""
    device = client_for(executable.program.target).devices[0]
    machine = MachineOptions(machine="numpy", checked=True, cache=False)
    return Executable(executable.program, device, machine)


def executed(executable: Executable, inputs: Sequence[Array]) -> tuple[list[Array], int]:
    """Outputs and cycles."""
    outputs = [np.asarray(r) for r in executable(*(np.array(a) for a in inputs))]
    assert executable.report is not None
    return outputs, executable.report.cycles


def is_printed_as_read(text: str) -> bool:
    """Whether a printed module reads as what it was."""
    printed = print_module(parse_module(text))
    return print_module(parse_module(printed)) == printed
