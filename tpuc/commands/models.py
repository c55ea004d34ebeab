"""What commands share: the model, the chip and the program that the words of a command line name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import click

from compiler.backend.forks import may_fork
from compiler.diagnostics import CompileError, UnreadableFileError, made_up_note
from compiler.frontends.hlo_proto.modules import Snapshot, read_snapshot
from compiler.frontends.recognition import is_binary, is_model_text
from compiler.hlo.ir import HloModule
from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET, compile, load_executable, read_source
from runtime.energy import parse_prices, read_prices
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.topology import Topology, parse_target
from runtime.workers import WorkerChoice
from tpu_sim.isa.chip_settings import SettingError, parse_setting, with_settings
from tpu_sim.isa.chips import Chip, ChipError, ChipFileError
from tpu_sim.isa.container import MAGIC
from tpu_sim.isa.errors import TargetError
from tpu_sim.jit.host import processor_count
from tpuc.commands.terminal import compiling, quiet, warn_of_f32
from tpuc.own_lines import text_file

WANTED_TARGET = "want a chip (v5e), a slice of it (v5e:4x2), or several with commas between"
_BETWEEN_TARGETS = re.compile(r",(?![^{}]*\})")


def named_chip(name: str) -> Chip:
    """A chip named on the command line, by itself or by a slice of it."""
    return named_topology(name).chip


def named_topology(name: str) -> Topology:
    """A target named on the command line. A chip file that is wrong is no wrong command line: like a
    model's or a price file's, its error goes through."""
    try:
        return parse_target(name)
    except ChipFileError:
        raise
    except ChipError as error:
        raise click.UsageError(str(error)) from error


def several_targets(names: str) -> list[str]:
    """The targets of a list with commas between; those inside of ``{..}`` are of settings."""
    targets = [name.strip() for name in _BETWEEN_TARGETS.split(names)]
    for number, target in enumerate(targets):
        if not target:
            raise click.UsageError(f"--target {names!r}: a name is empty; {WANTED_TARGET}")
        if target in targets[:number]:
            raise click.UsageError(f"--target {target} is given twice")
    return targets


def changed_target(names: str | None, settings: tuple[str, ...]) -> str:
    """A target, or several (the default one for None), with settings of the command line applied to
    the chip of each."""
    try:
        parsed_settings = [parse_setting(text) for text in settings]
        keys = [setting.key for setting in parsed_settings]
        for key in keys:
            if keys.count(key) > 1:
                raise SettingError(f"--set {key} is given twice")
        targets = [
            with_settings(name, parsed_settings)
            for name in several_targets(names or DEFAULT_TARGET)
        ]
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    for target in targets:
        named_topology(target)
    return ",".join(targets)


def model_source(model: str) -> str | bytes | Path:
    """The path of a model, which bundle text is none of; or what standard input holds (``-``)."""
    if not model:
        raise click.UsageError("the name of the model is empty")
    if model == "-":
        return standard_input()
    if model.endswith(".tpu"):
        raise click.UsageError(f"{model} is bundle text: make a program of it with `tpuc asm`")
    return Path(model)


@cache
def standard_input() -> str | bytes:
    """A model's text or bytecode; read once, for a command may ask for the model twice."""
    data = sys.stdin.buffer.read()
    if is_binary(data):
        return data
    if data.startswith(MAGIC):
        raise CompileError("standard input holds a compiled program: name its .tpux file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"standard input is no UTF-8 text: byte 0x{data[error.start]:02x}"
        raise CompileError(message) from error
    if not text.strip():
        raise CompileError("standard input is empty: want HLO text or StableHLO")
    if not is_model_text(text):
        raise CompileError("standard input holds no HLO or StableHLO")
    return text


def prices_in(path: str, models: Iterable[str]) -> dict[str, float]:
    """What an hour of each chip costs by a price file, read once, for it may be a pipe; ``-`` is standard
    input, which a model may want too."""
    if path == "-" and "-" in models:
        raise click.UsageError("the model and --prices both want standard input")
    if path == "-":
        return parse_prices(sys.stdin.buffer.read(), "standard input")
    return read_prices(path)


def worker_choice(text: str | None) -> WorkerChoice | None:
    """What ``--workers`` says."""
    try:
        return None if text is None else WorkerChoice.parse(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def snapshot_of(model: str) -> Snapshot | None:
    """The arguments and results that lie beside the module in an HloSnapshot; None for other models."""
    if model.endswith(".tpux"):
        return None
    data, _ = read_source(model_source(model))
    return read_snapshot(data) if isinstance(data, bytes) else None


def expect_program(path: str) -> None:
    """Refuse a file that its name alone calls a program."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        raise UnreadableFileError(f"cannot read {path}: {error.strerror}") from error
    if start != MAGIC:
        raise CompileError(f"{path}: not a .tpux file: it does not start with its magic number")


def parsed(model: str, *, is_verified: bool = True) -> HloModule:
    """The model in a file, parsed and (unless it is only to be printed) verified."""
    from compiler.frontends.models import parse_model
    from compiler.hlo.verifier import verify

    text, name = read_source(model_source(model))
    if text is None:
        expect_program(model)
        raise click.UsageError(f"{model} is a compiled program, not a model")
    with quiet():
        module = parse_model(text, name)
    if is_verified:
        verify(module)
    return module


def listed(passes: str) -> list[str]:
    """Pass names between commas, of which "none" is none."""
    names = [name.strip() for name in passes.split(",")]
    if "" in names:
        raise click.UsageError(f"{passes!r}: the name of a pass is empty (none: no pass)")
    if "none" in names and len(names) > 1:
        raise click.UsageError(f"{passes!r}: none (no pass) goes with no other name")
    return [] if names == ["none"] else names


def as_usage_error(find: Callable[[], object]) -> None:
    """Look for passes; those that do not exist or may not come in this order are a usage error."""
    try:
        find()
    except CompileError as error:
        raise click.UsageError(str(error)) from error


def made_up(module: HloModule) -> str | None:
    """What to say of constants that the text elided; None where it gives all."""
    return made_up_note(module.made_up) if module.made_up else None


@dataclass(frozen=True)
class Choices:
    """The options of a command that compiles."""

    target: str | None
    precision: str | None
    f64_as_f32: bool
    windows: tuple[str, ...]
    skip: str | None
    dump_ir: str | None = None
    resize_mesh: bool = False
    has_lines: bool = False  # of a model that names no origins, those of its own text

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Choices:
        """Those of a command's options, which are taken out of `options`."""
        return cls(**{f.name: options.pop(f.name) for f in fields(cls) if f.name in options})


def skipped_passes(names: str | None) -> tuple[str, ...]:
    """The passes of ``--skip``. An unknown name is a usage error."""
    if names is None:
        return ()
    from compiler.passes.pipeline import hlo_passes

    found = listed(names)
    as_usage_error(lambda: hlo_passes(found))
    return tuple(found)


def compiling_processes() -> int:
    """How many processes a command compiles with: one per processor, where forks are sound."""
    return processor_count() if may_fork() else 1


def compiled_or_loaded(model: str, choices: Choices, machine: MachineOptions) -> Executable:
    """Compile a model, or load a program, which leaves nothing to choose."""
    if choices.target is not None:
        named_chip(choices.target)
    if model.endswith(".tpux"):
        return _loaded(model, choices, machine)
    warn_of_f32(choices.f64_as_f32)
    options = CompileOptions(
        precision=choices.precision or "default",
        dump_dir=Path(choices.dump_ir) if choices.dump_ir else None,
        f64_as_f32=choices.f64_as_f32,
        windows=_windows(choices.windows),
        skip=skipped_passes(choices.skip),
        resize_mesh=choices.resize_mesh,
        text_file=text_file(model) if choices.has_lines else None,
        processes=compiling_processes(),
    )
    with compiling(model) as progress, quiet():
        compiled = compile(
            model_source(model),
            choices.target or DEFAULT_TARGET,
            machine=machine,
            options=replace(options, progress=progress),
        )
        _dump_texts(compiled, options.dump_dir)
    return compiled


def _loaded(model: str, choices: Choices, machine: MachineOptions) -> Executable:
    try:
        executable = load_executable(Path(model), machine, choices.target)
    except TargetError as error:
        raise click.UsageError(str(error)) from error
    saved = executable.program.metadata.get("precision", "default")
    if choices.precision not in (None, saved):
        raise click.UsageError(
            f"{model} was compiled with --precision {saved}, not {choices.precision}"
        )
    if choices.f64_as_f32 or choices.windows or choices.skip:
        raise click.UsageError(f"{model} is compiled already; give the model it came from")
    if choices.dump_ir is not None:
        raise click.UsageError(f"{model} holds no IR to dump; give the model it came from")
    return executable


def _windows(texts: tuple[str, ...]) -> dict[str, tuple[int, int, int]]:
    """The windows of ``--window NAME=bm,bk,bn``."""
    found: dict[str, tuple[int, int, int]] = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        numbers = [n.strip() for n in sizes.split(",")]
        name = name.strip().removeprefix("%")
        if not name or len(numbers) != 3 or not all(n.isdecimal() and int(n) for n in numbers):
            raise click.UsageError(f"--window {text}: want NAME=bm,bk,bn in elements, from 1 on")
        if name in found:
            raise click.UsageError(f"--window {name} is given twice")
        found[name] = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
    return found


def _dump_texts(executable: Executable, folder: Path | None) -> None:
    """Put the texts below HLO beside the passes' dumps."""
    if folder is not None:
        (folder / "kernels.llo").write_text(executable.text("llo"))
        (folder / "program.tpu").write_text(executable.text("tpu"))
