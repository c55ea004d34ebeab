"""The ``tpuc`` command. Each command is a thin function over one library call.

Exit codes: 0 ok; 2 the command line is wrong, whatever its files hold: an option, a name or a value in it, or
two that exclude each other; 1 all else: a file that it names cannot be read or written or is wrong (a
model, a chip file, prices, arrays), the work fails, or a check does; 130 a Ctrl-C. Messages go to standard
error; with ``--json`` an error is also one JSON object on standard output (`tpuc.failures`).
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tpuc import __version__, completion
from tpuc.completion import files
from tpuc.failures import say, say_usage
from tpuc.option_types import FILE, FOLDER, Number, WholeNumber, number, top
from tpuc.streams import give_up_output, prepare_streams

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., None])


_PRECISION = click.Choice(["default", "high", "highest"])


def _options(
    *decorators: Callable[[CommandFunction], CommandFunction],
) -> Callable[[CommandFunction], CommandFunction]:
    def apply(function: CommandFunction) -> CommandFunction:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


def _keep_settings(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> None:
    """Settings of the target, which are known before it (`is_eager`)."""
    context.meta[_SETTINGS] = texts


def _with_settings(
    context: click.Context, parameter: click.Parameter, target: str | None
) -> str | None:
    """The target with what ``--set`` says."""
    texts: tuple[str, ...] = context.meta.get(_SETTINGS, ())
    if not texts:
        return target
    changed: Callable[[str | None, tuple[str, ...]], str] = _command("models.changed_target")
    return changed(target, texts)


def _each_with_settings(
    context: click.Context, parameter: click.Parameter, targets: tuple[str, ...]
) -> tuple[str, ...]:
    """Each of several targets, or the default one, with what ``--set`` says."""
    changed = (_with_settings(context, parameter, target) for target in targets or (None,))
    return tuple(target for target in changed if target is not None)


_SETTINGS = "tpuc.settings"
_set = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    is_eager=True,
    expose_value=False,
    callback=_keep_settings,
    shell_complete=completion.settings,
    help="change the chip: --set vmem=32MiB --set hbm_bandwidth=1.2TB/s (repeatable)",
)
_target = _options(
    click.option(
        "--target",
        default=None,
        callback=_with_settings,
        shell_complete=completion.targets,
        help="chip, slice such as v5e:4x2 or v5e-8, or chip file (default v5e)",
    ),
    _set,
)
_target_file = click.option("--target", help="the chip file, for a program of one")
_precision = click.option(
    "--precision", type=_PRECISION, default=None, help="meaning of DEFAULT on a dot"
)
_f64_as_f32 = click.option(
    "--f64-as-f32", is_flag=True, help="compute f64 as f32 (a TPU has no f64)"
)
_dump_ir = click.option(
    "--dump-ir",
    type=FOLDER,
    help="write the IR after each stage to this folder",
)
_window = click.option(
    "--window",
    "windows",
    multiple=True,
    metavar="NAME=bm,bk,bn",
    help="blocks of M, K and N of a dot, convolution or its kernel (repeatable)",
)
_skip = click.option(
    "--skip",
    metavar="PASS,..",
    shell_complete=completion.passes,
    help="leave out HLO passes (`tpuc passes` lists them)",
)
_trips = click.option(
    "--trips",
    type=WholeNumber(0, 2**31 - 1),
    default=10,
    show_default=True,
    help="iterations of loops whose trip count depends on data",
)
_max_cycles = click.option(
    "--max-cycles", type=WholeNumber(min=1), help="stop with a fault after this many"
)
_no_cache = click.option(
    "--no-cache", is_flag=True, help="do not read or write what was compiled before on disk"
)
_trace = click.option(
    "--trace",
    type=FILE,
    help="write a trace: NAME.json for ui.perfetto.dev, NAME.xplane.pb for xprof and TensorBoard",
)
_chakra = click.option(
    "--chakra",
    type=FOLDER,
    metavar="DIR",
    help="write Chakra execution traces of a slice's devices",
)
_by = click.option(
    "--by",
    type=click.Choice(["kernel", "line", "op"]),
    default="kernel",
    show_default=True,
    help="what costs most: kernels, source lines or operation names",
)
_prices = click.option("--prices", type=FILE, help="a price file: [chip_hour] v5e = 1.2")
_listing = _options(
    click.option(
        "--top",
        default="12",
        show_default=True,
        metavar="N|all",
        callback=top,
        help="so many kernels or source lines",
    ),
    click.option(
        "--sort",
        type=click.Choice(["cycles", "calls", "mxu", "hbm", "waste", "order"]),
        default="cycles",
        show_default=True,
        help="the order of kernels; waste: cycles above the roof",
    ),
    click.option(
        "--csv",
        "csv_file",
        type=FILE,
        help="write what --by lists as CSV (- to standard output)",
    ),
    _prices,
    click.option("--tokens", type=WholeNumber(min=1), help="tokens of a step, for their price"),
)
_inputs = click.option("--inputs", type=FILE, help="in0.. as .npz")
_seed = click.option("--seed", type=WholeNumber(min=0), default=0, help="seed of random inputs")
_machine = click.option(
    "--machine", type=click.Choice(["llvm", "numpy"]), default="llvm", show_default=True
)
_json = click.option("--json", "as_json", is_flag=True, help="print one JSON object")
_data = _options(
    _inputs,
    click.option("--expect", type=FILE, help="out0.. as .npz to compare with"),
    click.option(
        "--tol",
        type=Number(min=0),
        callback=number,
        help="largest normalised error allowed",
    ),
    click.option("--outputs", type=FILE, help="write out0.. to this .npz"),
    _seed,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tpuc")
def cli() -> None:
    """Compile models for a TPU, run them on an emulated chip, see where the cycles go."""


@cli.command()
@click.argument("model", shell_complete=files)
@_data
@_target
@_precision
@_machine
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
@_max_cycles
@_f64_as_f32
@_window
@_skip
@_dump_ir
@_no_cache
@click.option("--check", is_flag=True, help="compare with the NumPy evaluator")
@_trace
@_chakra
@_by
@_listing
@_json
def run(**options: object) -> None:
    """Run MODEL (or a .tpux) on the emulated chip and report."""
    _compiling_command("run.run", options)


@cli.command()
@click.argument("model", shell_complete=files)
@_target
@_precision
@_trips
@_max_cycles
@_f64_as_f32
@_window
@_skip
@_dump_ir
@_no_cache
@_trace
@_chakra
@_by
@_listing
@click.option(
    "--fit", is_flag=True, help="find the smallest slice of the target's chip that it fits"
)
@_json
def estimate(**options: object) -> None:
    """Count the cycles of a run of MODEL (or a .tpux), without values.

    With several targets, as in ``--target v5e:2x2,v5e:4x4``, a table says how it scales: the mesh of a
    sharded program grows along its first axis.
    """
    _compiling_command("run.estimate", options)


@cli.command("compile")
@click.argument("model", shell_complete=files)
@click.option("-o", "--output", required=True, type=FILE)
@_target
@_precision
@_f64_as_f32
@_window
@_skip
@_dump_ir
@_no_cache
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
@_target
@_f64_as_f32
def opt(**options: object) -> None:
    """Run HLO passes on MODEL (or LLO passes on a .llo); the text to standard output."""
    _command("opt.opt")(**options)


@cli.command()
@click.argument("model", shell_complete=files, required=False)
@_target
@_f64_as_f32
@_json
def passes(**options: object) -> None:
    """List the HLO passes in their order; with MODEL, what each did to it."""
    _command("passes.passes")(**options)


@cli.command()
@click.argument("models", shell_complete=files, metavar="MODEL [MODEL]", nargs=-1, required=True)
@click.option("-o", "--output", type=FILE, help="the page (MODEL.html)")
@click.option("--run", "is_run", is_flag=True, help="run it; without, cycles are estimated")
@click.option("--inputs", type=FILE, help="in0.. as .npz, with --run")
@_seed
@click.option(
    "--target",
    "targets",
    multiple=True,
    callback=_each_with_settings,
    shell_complete=completion.targets,
    help="chip, slice or chip file (default v5e); given twice, the two are compared",
)
@_set
@_precision
@_f64_as_f32
@_skip
@_trips
def view(**options: object) -> None:
    """Write one HTML page about MODEL: passes, graph, kernels to the bundle, time, memory, costs.

    Two models, two targets, or a page made before and a model, are compared.
    """
    _command("view.view")(**options)


@cli.command()
@click.argument("model", shell_complete=files)
@_inputs
@_seed
@_target
@_precision
@_f64_as_f32
@_window
@_skip
@_machine
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
@_target_file
def asm(**options: object) -> None:
    """Assemble bundle text to a program file (.tpux)."""
    _command("assembly.asm")(**options)


@cli.command()
@click.argument("program", shell_complete=files, metavar="FILE.tpux")
@_target_file
def disasm(**options: object) -> None:
    """Print a program file as bundle assembly."""
    _command("assembly.disasm")(**options)


@cli.command("eval")
@click.argument("model", shell_complete=files)
@_data
@_precision
@_f64_as_f32
@_json
def eval_command(**options: object) -> None:
    """Evaluate MODEL with NumPy alone: no compiler, no chip."""
    _command("evaluate.evaluate")(**options)


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
@_precision
@_trips
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
@_prices
@click.option("--csv", "csv_file", type=FILE, help="write a table as CSV")
@click.option(
    "--plot",
    type=FILE,
    help="draw it: a .svg, .png or .pdf (needs tpuc[plots])",
)
@_json
def sweep(**options: object) -> None:
    """Estimate MODELs on many variants of a chip: table, best variants, what each parameter does."""
    _command("sweep.sweep")(**options)


@cli.command()
@click.argument("chip", required=False, callback=_with_settings, shell_complete=completion.targets)
@_set
@_json
def targets(**options: object) -> None:
    """List the chips; or every parameter of one, or what a slice such as v5e:16x16 is, with provenance."""
    _command("targets.targets")(**options)


@cli.command()
def schema() -> None:
    """Print the JSON schema of what run and estimate give with --json."""
    _command("schema.schema")()


def _command(name: str) -> Callable[..., Any]:
    """Load the command's body on first use, so that --help and --version stay instant."""
    module, _, function_name = name.partition(".")
    function: Callable[..., Any] = getattr(_commands(module), function_name)
    return function


def _commands(module: str) -> Any:
    return importlib.import_module(f"tpuc.commands.{module}")


def _compiling_command(name: str, options: dict[str, object]) -> None:
    """A command whose body takes what is chosen about compiling as one argument, ``choices``."""
    choices = _commands("models").Choices.taken_from(options)
    _command(name)(choices=choices, **options)


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
