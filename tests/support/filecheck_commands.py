"""The commands of RUN lines that concern HLO text: parse, verify, opt and their failing forms.

parse %s                          prints the module back
parse-fails %s                    prints the error that parsing must raise
verify %s [--level=scheduled]     prints the module once it is verified
verify-fails %s [--level=...]     prints the error that verifying must raise
opt %s --passes=a,b [--chip=v5e]  prints the module after these passes (default: all)
opt-fails %s [--passes=a,b]       prints the error that a pass must raise
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from compiler.diagnostics import CompileError, VerifyError
from compiler.frontends.models import parse_model
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import Level, verify
from tests.support.filecheck import command
from tpu_sim.isa.chips import load_chip


def _parse(path: Path) -> HloModule:
    return parse_model(path.read_text(), path.name)


def option(arguments: Sequence[str], name: str, default: str = "") -> str:
    """The value of ``--name=value`` among a command's arguments."""
    for argument in arguments:
        if argument.startswith(f"--{name}="):
            return argument.partition("=")[2]
    return default


def _level(arguments: Sequence[str]) -> Level:
    return Level[option(arguments, "level", "parsed").upper().replace("-", "_")]


@command("parse")
def parse(path: Path, arguments: Sequence[str]) -> str:
    """Print the parsed module; printing it again after parsing that must change nothing."""
    text = print_module(_parse(path))
    assert print_module(parse_module(text)) == text, "parse and print are not inverse"
    return text


@command("parse-fails")
def parse_fails(path: Path, arguments: Sequence[str]) -> str:
    """Print the error message of a text that must not parse."""
    try:
        _parse(path)
    except CompileError as error:
        return str(error)
    raise AssertionError(f"{path.name} parses")


@command("verify")
def verify_command(path: Path, arguments: Sequence[str]) -> str:
    """Print the module after verifying it at a level."""
    module = _parse(path)
    verify(module, _level(arguments))
    return print_module(module)


@command("verify-fails")
def verify_fails(path: Path, arguments: Sequence[str]) -> str:
    """Print the error message of a module that parses but must not verify."""
    module = _parse(path)
    try:
        verify(module, _level(arguments))
    except VerifyError as error:
        return str(error)
    raise AssertionError(f"{path.name} verifies")


@command("opt")
def opt(path: Path, arguments: Sequence[str]) -> str:
    """Print the module after running passes named by ``--passes=``, verified after each."""
    module = _parse(path)
    pipeline = import_module("compiler.passes.pipeline")  # lazily: parsing needs no passes
    chip = load_chip(option(arguments, "chip", "v5e"))
    names = option(arguments, "passes")
    pipeline.run_pipeline(module, chip, passes=names.split(",") if names else None)
    return print_module(module)


@command("opt-fails")
def opt_fails(path: Path, arguments: Sequence[str]) -> str:
    """Print the error message of a module that some pass must refuse."""
    try:
        opt(path, arguments)
    except CompileError as error:
        return str(error)
    raise AssertionError(f"{path.name} passes")
