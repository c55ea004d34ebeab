"""The ``tpuc`` command. Each command is a thin function over one library call.

Exit codes: 0 ok; 2 the command line is wrong, whatever its files hold: an option, a name or a value in it, or
two that exclude each other; 1 all else: a file that it names cannot be read or written or is wrong (a
model, a chip file, prices, arrays), the work fails, or a check does; 130 a Ctrl-C. Messages go to standard
error; with ``--json`` an error is also one JSON object on standard output (`tpuc.failures`).
"""

from __future__ import annotations

import os
import sys
import warnings

import click

from tpuc import __version__, completion
from tpuc import cli_options as option
from tpuc.cli_options import command, command_module
from tpuc.completion import files
from tpuc.failures import say, say_usage
from tpuc.option_types import FILE, WholeNumber
from tpuc.streams import give_up_output, prepare_streams


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tpuc")
def cli() -> None:
    """Compile models for a TPU, run them on an emulated chip, see where the cycles go."""


@cli.command()
@click.argument("model", shell_complete=files)
@option.data
@option.target
@option.precision
@option.machine
@click.option(
    "--threads", type=WholeNumber(1, 1024), help="host threads (default: one per processor)"
)
@click.option(
    "--workers",
    metavar="N|ADDRESS",
    help="processes that share a slice's devices, by Ray: 4, auto, 16@ray://head:10001",
)
@click.option(
    "--checked", is_flag=True, help="find races and uninitialised reads, on the NumPy machine"
)
@option.max_cycles
@option.f64_as_f32
@option.window
@option.skip
@option.dump_ir
@option.no_cache
@click.option("--check", is_flag=True, help="compare with the NumPy evaluator")
@option.trace
@option.chakra
@option.by
@option.listing
@option.json
def run(**options: object) -> None:
    """Run MODEL (or a .tpux) on the emulated chip and report."""
    _reporting_command("run.run", options)


@cli.command()
@click.argument("model", shell_complete=files)
@option.target
@option.precision
@option.trips
@option.max_cycles
@option.f64_as_f32
@option.window
@option.skip
@option.dump_ir
@option.no_cache
@option.trace
@option.chakra
@option.by
@option.listing
@click.option(
    "--fit", is_flag=True, help="find the smallest slice of the target's chip that it fits"
)
@option.json
def estimate(**options: object) -> None:
    """Count the cycles of a run of MODEL (or a .tpux), without values.

    With several targets, as in ``--target v5e:2x2,v5e:4x4``, a table says how it scales: the mesh of a
    sharded program grows along its first axis.
    """
    _reporting_command("run.estimate", options)


@cli.command("compile")
@click.argument("model", shell_complete=files)
@click.option("-o", "--output", required=True, type=FILE)
@option.target
@option.precision
@option.f64_as_f32
@option.window
@option.skip
@option.dump_ir
@option.no_cache
def compile_command(**options: object) -> None:
    """Compile MODEL to a program file (.tpux)."""
    _compiling_command("compile.compile_model", options)


@cli.command()
@click.argument("model", shell_complete=files)
@click.option(
    "--passes",
    default=None,
    shell_complete=completion.passes,
    help="comma-separated names, or none; all when left out",
)
@click.option(
    "--style",
    type=click.Choice(["default", "short"]),
    help="print exactly as XLA does; without this option nothing is elided or normalised",
)
@option.target
@option.f64_as_f32
def opt(**options: object) -> None:
    """Run HLO passes on MODEL (or LLO passes on a .llo); the text to standard output."""
    command("opt.opt")(**options)


@cli.command()
@click.argument("model", shell_complete=files, required=False)
@option.target
@option.f64_as_f32
@option.json
def passes(**options: object) -> None:
    """List the HLO passes in their order; with MODEL, what each did to it."""
    command("passes.passes")(**options)


@cli.command()
@click.argument("models", shell_complete=files, metavar="MODEL [MODEL]", nargs=-1, required=True)
@click.option("-o", "--output", type=FILE, help="the page (MODEL.html)")
@click.option("--run", "is_run", is_flag=True, help="run it; without, cycles are estimated")
@click.option("--inputs", type=FILE, help="in0.. as .npz, with --run")
@option.seed
@click.option(
    "--target",
    "targets",
    multiple=True,
    callback=option.each_with_settings,
    shell_complete=completion.targets,
    help="chip, slice or chip file (default v5e); given twice, the two are compared",
)
@option.set_
@option.precision
@option.f64_as_f32
@option.skip
@option.trips
def view(**options: object) -> None:
    """Write one HTML page about MODEL: passes, graph, kernels to the bundle, time, memory, costs.

    Two models, two targets, or a page made before and a model, are compared.
    """
    command("view.view")(**options)


@cli.command()
@click.argument("model", shell_complete=files)
@option.inputs
@option.seed
@option.target
@option.precision
@option.f64_as_f32
@option.window
@option.skip
@option.machine
@click.option("-x", "script", type=FILE, help="execute this file's commands")
@click.option("--command", "commands", multiple=True, help="execute a command (repeatable)")
def debug(**options: object) -> None:
    """Debug a run of MODEL (or a .tpux): stop it anywhere, look at values and registers, go on and back.

    Commands come from a prompt, from -x and --command, or from standard input. Try help.
    """
    _compiling_command("debug.debug", options)


@cli.command()
@click.argument("source", shell_complete=files, metavar="FILE.tpu")
@click.option("-o", "--output", required=True, type=FILE)
@option.target_file
def asm(**options: object) -> None:
    """Assemble bundle text to a program file (.tpux)."""
    command("assembly.asm")(**options)


@cli.command()
@click.argument("program", shell_complete=files, metavar="FILE.tpux")
@option.target_file
def disasm(**options: object) -> None:
    """Print a program file as bundle assembly."""
    command("assembly.disasm")(**options)


@cli.command("eval")
@click.argument("model", shell_complete=files)
@option.data
@option.precision
@option.f64_as_f32
@option.json
def eval_command(**options: object) -> None:
    """Evaluate MODEL with NumPy alone: no compiler, no chip."""
    command("evaluate.evaluate")(**options)


@cli.command()
@click.argument("models", shell_complete=files, nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--set",
    "settings",
    multiple=True,
    required=True,
    metavar="KEY=VALUE,VALUE..",
    shell_complete=completion.settings,
    help="a parameter of the chip and the values to try; several make all combinations",
)
@click.option(
    "--target",
    default="v5e",
    show_default=True,
    shell_complete=completion.targets,
    help="the chip or slice to change",
)
@option.precision
@option.trips
@click.option("--jobs", type=WholeNumber(1, 256), help="processes (default: one per processor)")
@click.option(
    "--workers",
    metavar="N|ADDRESS",
    help="processes that share the variants, by Ray: 4, auto, 16@ray://head:10001",
)
@click.option(
    "--results",
    type=FILE,
    help="keep each result in this file (JSON lines); what it holds already is not run again",
)
@click.option(
    "--cost",
    type=click.Choice(["lists", "energy", "price"]),
    help="what the best are the fastest for: places in the lists, energy or price of a step",
)
@option.prices
@click.option("--csv", "csv_file", type=FILE, help="write a table as CSV")
@click.option(
    "--plot",
    type=FILE,
    help="draw it: a .svg, .png or .pdf (needs tpuc[plots])",
)
@option.json
def sweep(**options: object) -> None:
    """Estimate MODELs on many variants of a chip: table, best variants, what each parameter does."""
    command("sweep.sweep")(**options)


@cli.command()
@click.argument(
    "chip", required=False, callback=option.with_settings, shell_complete=completion.targets
)
@option.set_
@option.json
def targets(**options: object) -> None:
    """List the chips; or every parameter of one, or what a slice such as v5e:16x16 is, with provenance."""
    command("targets.targets")(**options)


@cli.command()
def schema() -> None:
    """Print the JSON schema of what run and estimate give with --json."""
    command("schema.schema")()


def _compiling_command(name: str, options: dict[str, object]) -> None:
    """A command whose body takes what is chosen about compiling as one argument, ``choices``."""
    choices = command_module("models").Choices.taken_from(options)
    command(name)(choices=choices, **options)


def _reporting_command(name: str, options: dict[str, object]) -> None:
    """Such a command whose body takes what it reports, and where, as two more: ``shown`` and ``files``."""
    reporting = command_module("reporting")
    shown, files = reporting.Shown.taken_from(options), reporting.Files.taken_from(options)
    _compiling_command(name, {**options, "shown": shown, "files": files})


def main() -> None:
    """Entry point: run a command; turn a user's error into one message and an exit code."""
    prepare_streams()
    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=UserWarning)
        warnings.showwarning = _show_warning
        _run()


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A line for people: where in this program a warning comes from is no matter of theirs."""
    text = " ".join(str(message).split())
    click.echo(f"warning: {text}", err=True)


def _run() -> None:
    try:
        code = cli.main(standalone_mode=False)  # an Exit comes back as its code
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        say_usage(error, sys.argv[1:])
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:  # nobody reads any more
        give_up_output()
        sys.exit(1)
    except Exception as error:
        if os.environ.get("TPUC_DEBUG"):
            raise
        say(error, sys.argv[1:])
        give_up_output()
        sys.exit(1)
