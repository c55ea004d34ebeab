"""The options that several commands share, with what they are called in ``--help``.

A command's body is loaded on first use (`command`), so that ``--help`` and ``--version`` stay instant.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tpuc import completion
from tpuc.option_types import FILE, FOLDER, Number, WholeNumber, number
from tpuc.option_types import top as top_count

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., None])


def command(name: str) -> Callable[..., Any]:
    """The body of a command: a function of a file of `tpuc.commands`, as ``file.function``."""
    module, _, function_name = name.partition(".")
    function: Callable[..., Any] = getattr(command_module(module), function_name)
    return function


def command_module(name: str) -> Any:
    """A file of `tpuc.commands`."""
    return importlib.import_module(f"tpuc.commands.{name}")


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


def with_settings(
    context: click.Context, parameter: click.Parameter, target: str | None
) -> str | None:
    """The target with what ``--set`` says."""
    texts: tuple[str, ...] = context.meta.get(_SETTINGS, ())
    if not texts:
        return target
    changed: Callable[[str | None, tuple[str, ...]], str] = command("models.changed_target")
    return changed(target, texts)


def each_with_settings(
    context: click.Context, parameter: click.Parameter, targets: tuple[str, ...]
) -> tuple[str, ...]:
    """Each of several targets, or the default one, with what ``--set`` says."""
    changed = (with_settings(context, parameter, target) for target in targets or (None,))
    return tuple(target for target in changed if target is not None)


_SETTINGS = "tpuc.settings"
set_ = click.option(
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
target = _options(
    click.option(
        "--target",
        default=None,
        callback=with_settings,
        shell_complete=completion.targets,
        help="chip, slice such as v5e:4x2 or v5e-8, or chip file (default v5e)",
    ),
    set_,
)
target_file = click.option("--target", help="the chip file, for a program of one")
precision = click.option(
    "--precision",
    type=click.Choice(["default", "high", "highest"]),
    default=None,
    help="meaning of DEFAULT on a dot",
)
f64_as_f32 = click.option(
    "--f64-as-f32", is_flag=True, help="compute f64 as f32 (a TPU has no f64)"
)
dump_ir = click.option(
    "--dump-ir",
    type=FOLDER,
    help="write the IR after each stage to this folder",
)
window = click.option(
    "--window",
    "windows",
    multiple=True,
    metavar="NAME=bm,bk,bn",
    help="blocks of M, K and N of a dot, convolution or its kernel (repeatable)",
)
skip = click.option(
    "--skip",
    metavar="PASS,..",
    shell_complete=completion.passes,
    help="leave out HLO passes (`tpuc passes` lists them)",
)
trips = click.option(
    "--trips",
    type=WholeNumber(0, 2**31 - 1),
    default=10,
    show_default=True,
    help="iterations of loops whose trip count depends on data",
)
max_cycles = click.option(
    "--max-cycles", type=WholeNumber(min=1), help="stop with a fault after this many"
)
no_cache = click.option(
    "--no-cache", is_flag=True, help="do not read or write what was compiled before on disk"
)
trace = click.option(
    "--trace",
    type=FILE,
    help="write a trace: NAME.json for ui.perfetto.dev, NAME.xplane.pb for xprof and TensorBoard",
)
chakra = click.option(
    "--chakra",
    type=FOLDER,
    metavar="DIR",
    help="write Chakra execution traces of a slice's devices",
)
by = click.option(
    "--by",
    type=click.Choice(["kernel", "line", "op"]),
    default="kernel",
    show_default=True,
    help="what costs most: kernels, source lines or operation names",
)
prices = click.option("--prices", type=FILE, help="a price file: [chip_hour] v5e = 1.2")
listing = _options(
    click.option(
        "--top",
        default="12",
        show_default=True,
        metavar="N|all",
        callback=top_count,
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
    prices,
    click.option("--tokens", type=WholeNumber(min=1), help="tokens of a step, for their price"),
)
inputs = click.option("--inputs", type=FILE, help="in0.. as .npz")
seed = click.option("--seed", type=WholeNumber(min=0), default=0, help="seed of random inputs")
machine = click.option(
    "--machine", type=click.Choice(["llvm", "numpy"]), default="llvm", show_default=True
)
json = click.option("--json", "as_json", is_flag=True, help="print one JSON object")
data = _options(
    inputs,
    click.option("--expect", type=FILE, help="out0.. as .npz to compare with"),
    click.option(
        "--tol",
        type=Number(min=0),
        callback=number,
        help="largest normalised error allowed",
    ),
    click.option("--outputs", type=FILE, help="write out0.. to this .npz"),
    seed,
)
