"""What the NumPy evaluator makes of a model, for a run to be compared with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from runtime.executable import Executable
from runtime.slice_executable import SliceExecutable
from tpuc.commands.models import parsed
from tpuc.commands.terminal import working

Array = npt.NDArray[np.generic]


def evaluated_anew(
    model: str, executable: Executable, arguments: list[Array], precision: str
) -> list[Array]:
    """The results of the model as it was given; those of a program for a slice that says itself what each
    device does (regions of device-own shapes, collectives) are those of all its devices."""
    from compiler.driver import run_passes
    from compiler.hlo.evaluator import evaluate, evaluate_devices
    from compiler.passes.expanders.single_device import speaks_of_devices
    from compiler.passes.pipeline import PARTITIONING

    module = parsed(model)
    with working("evaluating with NumPy"):
        if not isinstance(executable, SliceExecutable) or not speaks_of_devices(module):
            return list(evaluate(module, arguments, precision))
        run_passes(module, executable.device.chip, PARTITIONING)
        pairs = zip(executable.spreads_in, arguments, strict=True)
        pieces = [spread.cut(argument) for spread, argument in pairs]
        rows = [list(row) for row in zip(*pieces, strict=True)]
        made = evaluate_devices(module, rows or [[]] * executable.device_count, precision)
        return [
            spread.join([row[number] for row in made])
            for number, spread in enumerate(executable.spreads_out)
        ]
