"""``tpuc asm`` and ``tpuc disasm``: bundle text and program files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from runtime.api import read_source
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.container import read_tpux, write_tpux
from tpu_sim.isa.errors import ProgramError, TargetError
from tpuc.commands.models import named_chip
from tpuc.commands.terminal import writable


def asm(source: str, output: str, target: str | None) -> None:
    """``tpuc asm``: bundle text to .tpux, checked as a machine checks it."""
    from tpu_sim.isa.assembly_parser import parse_program

    writable(output)
    text, name = read_source(Path(source))
    if not isinstance(text, str):
        raise click.UsageError(f"{source} is no bundle text")
    program = parse_program(text, name)
    try:
        check_program(
            program, named_chip(target) if target is not None else load_chip(program.target)
        )
    except TargetError as error:
        raise click.UsageError(str(error)) from error
    except ProgramError as error:
        raise ProgramError(error.message, f"{name}: {error.where}", error.bundle) from error
    write_tpux(program, output)


def disasm(program: str, target: str | None) -> None:
    """``tpuc disasm``: .tpux to bundle text."""
    from tpu_sim.isa.assembly import print_program

    chip = named_chip(target) if target is not None else None
    try:
        found = read_tpux(program, chip)
    except TargetError as error:
        raise click.UsageError(str(error)) from error
    sys.stdout.write(print_program(found))
