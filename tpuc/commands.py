"""What each command does: load, call the library once, print.

The compiler and the evaluator are imported by what needs them, so that a model found in the cache
runs without them.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.text import Text

from compiler.diagnostics import CompileError, ElidedConstantsWarning, made_up_note
from compiler.frontends.recognition import is_bytecode, is_model_text
from compiler.hlo.ir import HloModule
from compiler.hlo.shape import ArrayShape, leaves
from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET, compile, load_executable, read_source
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.topology import Topology, parse_target
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import Chip, ChipError, load_chip
from tpu_sim.isa.container import read_tpux, write_tpux
from tpu_sim.isa.errors import ProgramError, TargetError
from tpu_sim.isa.files import check_writable
from tpu_sim.jit.host import processor_count
from tpuc import slice_table, tables
from tpuc.arrays import Difference, compare, load_arrays, loaded, randoms, save_arrays

Array = npt.NDArray[np.generic]
_TOLERANCE = {"highest": 2e-3}
_LOOSE_TOLERANCE = 2e-2
_errors = Console(stderr=True, markup=False, emoji=False)


@contextmanager
def _working(what: str) -> Iterator[None]:
    """Show a spinner on a terminal, nothing when piped."""
    if not _errors.is_terminal:
        yield
        return
    with _errors.status(Text(what)):
        yield


def run(
    model: str,
    inputs: str | None,
    expect: str | None,
    tol: float | None,
    outputs: str | None,
    seed: int,
    target: str | None,
    precision: str | None,
    f64_as_f32: bool,
    windows: tuple[str, ...],
    machine: str,
    threads: int | None,
    checked: bool,
    max_cycles: int | None,
    dump_ir: str | None,
    no_cache: bool,
    check: bool,
    trace: str | None,
    as_json: bool,
) -> None:
    """``tpuc run``: compile or load, execute, report; exit 1 when a comparison fails."""
    _writable(outputs)
    _writable(trace)
    _comparable(model, expect, check=check)
    options = MachineOptions(
        machine, threads or processor_count(), checked, max_cycles, not no_cache
    )
    choices = _Choices(target, precision, f64_as_f32, windows, dump_ir)
    executable = _executable(model, choices, options)
    _warn_of_made_up(executable.made_up, is_run=True)
    shapes = executable.argument_shapes
    each = _arguments(inputs, shapes, seed)
    arguments = list(each) if check else []  # else the host never holds them all
    expected = _expected(expect, executable.result_shapes)
    is_read = bool(outputs) or check or expected is not None
    with _working("executing"), _quiet():
        run = executable.call(arguments or each, on_device=not is_read)
        results = [np.asarray(result) for result in run.results] if is_read else []
        report = run.report()
    if outputs:
        save_arrays(outputs, results)
    if trace:
        report.write_trace(trace)
    precision = executable.program.metadata.get("precision", "default")
    wanted = _evaluated_anew(model, arguments, precision) if check else expected
    differences = compare(results, wanted) if wanted is not None else None
    tolerance = tol if tol is not None else _TOLERANCE.get(precision, _LOOSE_TOLERANCE)
    if as_json:
        record = report.to_json() | {"model": model, "random_inputs": inputs is None}
        _print_json(record, differences, tolerance)
    else:
        tables.print_report(report, model, random_seed=None if inputs else seed)
    _judge(differences, tolerance, quiet=as_json)


def estimate(
    model: str,
    target: str | None,
    precision: str | None,
    f64_as_f32: bool,
    windows: tuple[str, ...],
    trips: int,
    max_cycles: int | None,
    dump_ir: str | None,
    no_cache: bool,
    trace: str | None,
    as_json: bool,
) -> None:
    """``tpuc estimate``: compile or load, count cycles without values, report."""
    _writable(trace)
    options = MachineOptions(max_cycles=max_cycles, cache=not no_cache)
    choices = _Choices(target, precision, f64_as_f32, windows, dump_ir)
    executable = _executable(model, choices, options)
    _warn_of_made_up(executable.made_up, is_run=False)
    with _working("estimating"):
        report = executable.estimate(trips)
    if trace:
        report.write_trace(trace)
    if as_json:
        _print_json(report.to_json() | {"model": model}, None, 0.0)
    else:
        tables.print_report(report, model, random_seed=None)


def compile_model(
    model: str,
    output: str,
    target: str | None,
    precision: str | None,
    f64_as_f32: bool,
    windows: tuple[str, ...],
    dump_ir: str | None,
    no_cache: bool,
) -> None:
    """``tpuc compile``: write a .tpux."""
    if model.endswith(".tpux"):
        raise click.UsageError(f"{model} is compiled already")
    _writable(output)
    machine = MachineOptions(cache=not no_cache)
    choices = _Choices(target, precision, f64_as_f32, windows, dump_ir)
    executable = _executable(model, choices, machine)
    _warn_of_made_up(executable.made_up, is_run=False)
    executable.save(output)


def opt(
    model: str, passes: str | None, style: str | None, target: str | None, f64_as_f32: bool
) -> None:
    """``tpuc opt``: HLO in, HLO out; of a ``.llo`` text LLO."""
    if model.endswith(".llo"):
        if style is not None or f64_as_f32:
            raise click.UsageError(f"{model} is LLO: --style and --f64-as-f32 are for HLO")
        sys.stdout.write(_optimized_llo(model, passes, _chip(target or DEFAULT_TARGET)))
        return
    from compiler.driver import run_passes
    from compiler.hlo.printer import print_module
    from compiler.hlo.styled_printer import STYLES, print_styled
    from compiler.passes.pipeline import hlo_passes

    names = None if passes is None else _listed(passes)
    _usage(lambda: hlo_passes(names or ()))
    is_changed = names is None or bool(names) or f64_as_f32
    module = _parse(model, is_verified=is_changed or style is None)
    _warn_of_made_up(_made_up(module), is_run=False)
    _warn_of_f32(f64_as_f32)
    if is_changed:
        options = CompileOptions(f64_as_f32=f64_as_f32)
        run_passes(module, _chip(target or DEFAULT_TARGET), names, options)
    sys.stdout.write(print_module(module) if style is None else print_styled(module, STYLES[style]))


def _optimized_llo(path: str, passes: str | None, chip: Chip) -> str:
    """The kernels of a ``.llo`` text after LLO passes."""
    from compiler.llo.optimize import check_names, optimized_text
    from compiler.llo.passes.pipeline import LLO_PIPELINE

    names = LLO_PIPELINE if passes is None else _listed(passes)
    _usage(lambda: check_names(names))
    text, name = read_source(Path(path))
    if not isinstance(text, str):
        raise click.UsageError(f"{path} is no LLO text")
    return optimized_text(text, name, chip, names)


def _listed(passes: str) -> list[str]:
    """Pass names between commas, of which "none" is none."""
    names = [name.strip() for name in passes.split(",")]
    return [name for name in names if name not in ("", "none")]


def _usage(find: Callable[[], object]) -> None:
    """Look for passes; those that do not exist or may not come in this order are a usage error."""
    try:
        find()
    except CompileError as error:
        raise click.UsageError(str(error)) from error


def passes(model: str | None, target: str | None, f64_as_f32: bool, as_json: bool) -> None:
    """``tpuc passes``: what there is, and what each did to a model."""
    from compiler.driver import run_passes
    from tpuc import pass_tables

    timings = None
    if model is not None:
        module = _parse(model)
        _warn_of_f32(f64_as_f32)
        options = CompileOptions(f64_as_f32=f64_as_f32)
        timings = run_passes(module, _chip(target or DEFAULT_TARGET), None, options)
    if as_json:
        click.echo(json.dumps(pass_tables.as_json(timings)))
    elif model is None or timings is None:
        pass_tables.print_passes(tables.console())
    else:
        pass_tables.print_timings(tables.console(), model, timings)


def asm(source: str, output: str, target: str | None) -> None:
    """``tpuc asm``: bundle text to .tpux, checked as a machine checks it."""
    from tpu_sim.isa.assembly_parser import parse_program

    _writable(output)
    text, name = read_source(Path(source))
    if not isinstance(text, str):
        raise click.UsageError(f"{source} is no bundle text")
    program = parse_program(text, name)
    try:
        check_program(program, _chip(target) if target is not None else load_chip(program.target))
    except TargetError as error:
        raise click.UsageError(str(error)) from error
    except ProgramError as error:
        raise ProgramError(error.message, f"{name}: {error.where}", error.bundle) from error
    write_tpux(program, output)


def disasm(program: str, target: str | None) -> None:
    """``tpuc disasm``: .tpux to bundle text."""
    from tpu_sim.isa.assembly import print_program

    chip = _chip(target) if target is not None else None
    try:
        found = read_tpux(program, chip)
    except TargetError as error:
        raise click.UsageError(str(error)) from error
    sys.stdout.write(print_program(found))


def evaluate(
    model: str,
    inputs: str | None,
    expect: str | None,
    tol: float | None,
    outputs: str | None,
    seed: int,
    precision: str | None,
    f64_as_f32: bool,
    as_json: bool,
) -> None:
    """``tpuc eval``: the NumPy evaluator alone."""
    _writable(outputs)
    precision = precision or "default"
    module = _parse(model)
    _warn_of_made_up(_made_up(module), is_run=True)
    shapes = [leaf for p in module.entry.parameters for leaf in leaves(p.shape)]
    root = leaves(module.entry.root_instruction.shape)
    arguments = list(_arguments(inputs, shapes, seed))
    expected = _expected(expect, root)
    with _working("evaluating"):
        results = _evaluated(module, arguments, precision, f64_as_f32=f64_as_f32)
    if outputs:
        save_arrays(outputs, results)
    differences = compare(results, expected) if expected is not None else None
    tolerance = tol if tol is not None else _TOLERANCE.get(precision, _LOOSE_TOLERANCE)
    if as_json:
        record: dict[str, object] = {"model": model, "random_inputs": inputs is None}
        record["outputs"] = [{"dtype": str(r.dtype), "shape": list(r.shape)} for r in results]
        _print_json(record, differences, tolerance)
    else:
        tables.print_outputs(results, random_seed=None if inputs else seed)
    _judge(differences, tolerance, quiet=as_json)


def _evaluated(
    module: HloModule, arguments: list[Array], precision: str, *, f64_as_f32: bool
) -> list[Array]:
    """The evaluator's results in the module's types; with `f64_as_f32` computed in f32."""
    from compiler.driver import run_passes
    from compiler.hlo.evaluator import evaluate as evaluate_module

    if not f64_as_f32:
        return list(evaluate_module(module, arguments, precision))
    _warn_of_f32(f64_as_f32)
    types = [leaf.dtype.numpy for leaf in leaves(module.entry.root_instruction.shape)]
    run_passes(module, load_chip(DEFAULT_TARGET), ["double-precision-narrower"])
    inputs = [leaf for p in module.entry.parameters for leaf in leaves(p.shape)]
    narrow = [a.astype(s.dtype.numpy) for a, s in zip(arguments, inputs, strict=True)]
    results = evaluate_module(module, narrow, precision)
    return [np.asarray(r).astype(t) for r, t in zip(results, types, strict=True)]


def _warn_of_f32(f64_as_f32: bool) -> None:
    if f64_as_f32:
        click.echo("warning: --f64-as-f32: f64 is computed as f32, with 24 bits of 53", err=True)


def targets(chip: str | None, as_json: bool) -> None:
    """``tpuc targets``: the chips; one chip's parameters, or what a slice is, with provenance."""
    topology = _topology(chip) if chip is not None else None
    if topology is not None and chip is not None and topology.chip_count > 1:
        if as_json:
            click.echo(json.dumps(slice_table.slice_as_json(topology), indent=1))
        else:
            tables.print_table(slice_table.slice_table(topology, chip))
    elif as_json:
        click.echo(json.dumps(tables.chips_as_json(chip), indent=1))
    else:
        tables.print_chips(chip)


@dataclass(frozen=True)
class _Choices:
    """The options of a command that compiles."""

    target: str | None
    precision: str | None
    f64_as_f32: bool
    windows: tuple[str, ...]
    dump_ir: str | None


def _executable(model: str, choices: _Choices, machine: MachineOptions) -> Executable:
    """Compile a model, or load a program, which leaves nothing to choose."""
    if choices.target is not None:
        _chip(choices.target)
    if model.endswith(".tpux"):
        return _loaded(model, choices, machine)
    _warn_of_f32(choices.f64_as_f32)
    options = CompileOptions(
        precision=choices.precision or "default",
        dump_dir=Path(choices.dump_ir) if choices.dump_ir else None,
        f64_as_f32=choices.f64_as_f32,
        windows=_windows(choices.windows),
    )
    with _working(f"compiling {model}"), _quiet():
        compiled = compile(
            _model_source(model), choices.target or DEFAULT_TARGET, machine=machine, options=options
        )
        _dump_texts(compiled, options.dump_dir)
    return compiled


@contextmanager
def _quiet() -> Iterator[None]:
    """No Python warnings of elided constants: `_warn_of_made_up` says it, of stored programs too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ElidedConstantsWarning)
        yield


def _warn_of_made_up(note: str | None, *, is_run: bool) -> None:
    """Say that constants were elided, and what that means for the values of a run."""
    if note is not None:
        end = ", so results mean nothing (cycles do)" if is_run else ""
        click.echo(f"warning: {note}{end}; print the model with its large constants", err=True)


def _made_up(module: HloModule) -> str | None:
    return made_up_note(module.made_up) if module.made_up else None


def _loaded(model: str, choices: _Choices, machine: MachineOptions) -> Executable:
    try:
        executable = load_executable(Path(model), machine, choices.target)
    except TargetError as error:
        raise click.UsageError(str(error)) from error
    saved = executable.program.metadata.get("precision", "default")
    if choices.precision not in (None, saved):
        raise click.UsageError(
            f"{model} was compiled with --precision {saved}, not {choices.precision}"
        )
    if choices.f64_as_f32 or choices.windows:
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
        if not name or len(numbers) != 3 or not all(n.isdecimal() for n in numbers):
            raise click.UsageError(f"--window {text}: want NAME=bm,bk,bn in elements")
        if name in found:
            raise click.UsageError(f"--window {name} is given twice")
        found[name] = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
    return found


def _dump_texts(executable: Executable, folder: Path | None) -> None:
    """Put the texts below HLO beside the passes' dumps."""
    if folder is not None:
        (folder / "kernels.llo").write_text(executable.text("llo"))
        (folder / "program.tpu").write_text(executable.text("tpu"))


def _chip(name: str) -> Chip:
    """A chip named on the command line, by itself or by a slice of it."""
    return _topology(name).chip


def _topology(name: str) -> Topology:
    """A target named on the command line."""
    try:
        return parse_target(name)
    except ChipError as error:
        raise click.UsageError(str(error)) from error


def _model_source(model: str) -> str | bytes | Path:
    """The path of a model, which bundle text is none of; or what standard input holds (``-``)."""
    if not model:
        raise click.UsageError("the name of the model is empty")
    if model == "-":
        return _standard_input()
    if model.endswith(".tpu"):
        raise click.UsageError(f"{model} is bundle text: make a program of it with `tpuc asm`")
    return Path(model)


@cache
def _standard_input() -> str | bytes:
    """A model's text or bytecode; read once, for a command may ask for the model twice."""
    data = sys.stdin.buffer.read()
    if is_bytecode(data):
        return data
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"standard input is no UTF-8 text: byte 0x{data[error.start]:02x}"
        raise CompileError(message) from error
    if not is_model_text(text):
        raise CompileError("standard input holds no HLO or StableHLO")
    return text


def _parse(model: str, *, is_verified: bool = True) -> HloModule:
    """The model in a file, parsed and (unless it is only to be printed) verified."""
    from compiler.frontends.models import parse_model
    from compiler.hlo.verifier import verify

    text, name = read_source(_model_source(model))
    if text is None:
        raise click.UsageError(f"{model} is a compiled program, not a model")
    with _quiet():
        module = parse_model(text, name)
    if is_verified:
        verify(module)
    return module


def _arguments(path: str | None, shapes: list[ArrayShape], seed: int) -> Iterator[Array]:
    """The inputs, each read or made when it is asked for."""
    return randoms(shapes, seed) if path is None else loaded(path, "in", shapes)


def _comparable(model: str, expect: str | None, *, check: bool) -> None:
    """Refuse a comparison that cannot be made, before any work."""
    if check and expect is not None:
        raise click.UsageError("--check and --expect exclude each other")
    if check and model.endswith(".tpux"):
        raise click.UsageError(f"--check evaluates a model, {model} is compiled: use --expect")


def _expected(path: str | None, shapes: list[ArrayShape]) -> list[Array] | None:
    return None if path is None else load_arrays(path, "out", shapes)


def _evaluated_anew(model: str, arguments: list[Array], precision: str) -> list[Array]:
    """What the evaluator makes of the model as it was given."""
    from compiler.hlo.evaluator import evaluate as evaluate_module

    with _working("evaluating with NumPy"):
        return list(evaluate_module(_parse(model), arguments, precision))


def _judge(differences: list[Difference] | None, tolerance: float, *, quiet: bool) -> None:
    """Print the errors and exit 1 if one is beyond the tolerance."""
    if differences is None:
        return
    if not quiet:
        tables.print_differences(differences, tolerance)
    if any(not d.normalised <= tolerance for d in differences):
        raise click.exceptions.Exit(1)


def _print_json(
    record: dict[str, object], differences: list[Difference] | None, tolerance: float
) -> None:
    if differences is not None:
        record["tolerance"] = tolerance
        record["errors"] = [
            {
                "output": d.output,
                "absolute": _finite(d.absolute),
                "normalised": _finite(d.normalised),
                "ok": d.normalised <= tolerance,
            }
            for d in differences
        ]
    click.echo(json.dumps(record, allow_nan=False))


def _finite(value: float) -> float | None:
    """JSON has no infinity: null stands for it."""
    return value if math.isfinite(value) else None


def _writable(path: str | None) -> None:
    """Refuse an output that cannot be written before any long work."""
    if path is None:
        return
    try:
        check_writable(path)
    except OSError as error:
        raise CompileError(f"cannot write {path}: {error.strerror}") from error
