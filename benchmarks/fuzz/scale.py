"""Random modules at real sizes, 1 MB to 1 GB an array: compiled and estimated, not executed.

    python -m benchmarks.fuzz.scale FIRST LAST [SERIES]   (what `python -m benchmarks.fuzz --scale` starts)

Everything that fits compiles, within `SECONDS`. Parameters and results that fill the chip's memory
by themselves are no finding.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings

from benchmarks.fuzz.check import INTERNAL, OK, REFUSED, Outcome, internal, signature
from benchmarks.fuzz.run import compiled
from benchmarks.fuzz.series import NOTHING, SERIES
from benchmarks.limits import SlowError, processor_seconds, watch_memory
from compiler.diagnostics import CompileError, ResourceExhaustedError, UnsupportedError
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape, leaves
from compiler.hlo.verifier import verify
from tpu_sim.isa.chips import load_chip

SECONDS = 60
TOO_LARGE = "too large"
_TARGET = "v5e"


def port_bytes(text: str) -> int:
    """What parameters and results take in the layout that the host gives them: row-major, tiled."""
    entry = parse_module(text).entry
    shapes = [*(p.shape for p in entry.parameters), entry.root_instruction.shape]
    return sum(_padded_bytes(leaf) for shape in shapes for leaf in leaves(shape))


def _padded_bytes(shape: ArrayShape) -> int:
    dims = list(shape.dims)
    for at, tile in ((-1, 128), (-2, 8)):
        if shape.rank >= -at:
            dims[at] = -(-dims[at] // tile) * tile
    return math.prod(dims) * max(8, shape.dtype.bits) // 8


def judge(text: str) -> Outcome:
    """Compile and estimate."""
    try:
        verify(parse_module(text))
    except CompileError as error:
        return Outcome("generator", str(error), signature(error.message))
    if port_bytes(text) > 0.9 * load_chip(_TARGET).hbm_bytes:
        return Outcome(TOO_LARGE)
    try:
        compiled(text, _TARGET).estimate()
    except (UnsupportedError, ResourceExhaustedError) as error:
        return Outcome(REFUSED, error.message, signature(error.message))
    except MemoryError:
        return Outcome(INTERNAL, "MemoryError", "memory")
    except Exception as error:
        return internal(error)
    return Outcome(OK)


def limited(text: str) -> Outcome:
    """`judge` within `SECONDS` of processor time."""
    try:
        with processor_seconds(SECONDS):
            return judge(text)
    except SlowError as error:
        trace, place = error.__traceback__, ""
        while trace is not None:
            code = trace.tb_frame.f_code
            if "/passes/" in code.co_filename or "/backend/" in code.co_filename:
                place = f"{code.co_filename.split('/')[-1]}:{code.co_name}"
            trace = trace.tb_next
        return Outcome("hang", f"not compiled in {SECONDS} s, in {place}", f"hang {place}")


def main() -> None:
    """Run the seeds given on the command line."""
    first, last = int(sys.argv[1]), int(sys.argv[2])
    series = SERIES[sys.argv[3] if len(sys.argv) > 3 else "random"]()
    watch_memory()
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for seed in range(first, last):
        out.write(json.dumps({"begin": seed}) + "\n")
        out.flush()
        started = time.perf_counter()
        text = series.real(seed)
        outcome = limited(text) if text else Outcome(NOTHING)
        seconds = round(time.perf_counter() - started, 2)
        out.write(json.dumps({"seed": seed, "seconds": seconds, **outcome.as_dict()}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
