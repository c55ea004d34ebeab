"""Random programs under random shardings: compiled for a slice and run there, against one device.

    python -m benchmarks.fuzz.sharded FIRST LAST      (what `python -m benchmarks.fuzz --sharded` starts)

A program of the generator gets a random mesh, and random shardings on its parameters and here and
there inside, as GSPMD or Shardy write them (`benchmarks.fuzz.annotations`). Results must be those of the
program without any on one device, as far as rounding goes. The partitioned program is evaluated for
all devices, with garbage in the padding of uneven arguments; every fourth one also runs on a slice.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.fuzz import run
from benchmarks.fuzz.annotations import annotated, speaks_of_devices, target_of, without_shardings
from benchmarks.fuzz.check import (
    GENERATOR,
    INTERNAL,
    OK,
    REFUSED,
    WRONG,
    Array,
    Outcome,
    internal,
    signature,
)
from benchmarks.fuzz.compare import Difference, difference
from benchmarks.fuzz.exactness import is_tainted, reads_bits
from benchmarks.fuzz.generator import generate
from benchmarks.fuzz.inputs import inputs_for
from benchmarks.fuzz.noise import evaluate_noisily
from benchmarks.limits import SlowError, processor_seconds, watch_memory
from compiler.diagnostics import ResourceExhaustedError, UnsupportedError
from compiler.driver import CompileOptions
from compiler.hlo.evaluator import evaluate, evaluate_devices
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import Shape, leaves
from compiler.hlo.sharding import HloSharding
from compiler.hlo.verifier import verify
from compiler.passes.context import PassContext
from compiler.passes.pipeline import PARTITIONING, hlo_passes
from compiler.sharding.placement import local_dims, tile_of
from runtime.api import compile as compile_model
from runtime.machines import MachineOptions
from tpu_sim.isa import chips

SECONDS = 60
EVERY = 4
OF_DEVICES = "of devices"


def cut_arrays(module: HloModule, arrays: Sequence[Array], count: int) -> list[list[Array]]:
    """Every device's pieces of the arguments; what lies past an array's end is anything."""
    shardings = [
        leaf
        for p in module.entry.parameters
        for leaf in _leaf_shardings(p.attrs.get("sharding"), p.shape)
    ]
    rows: list[list[Array]] = []
    for device in range(count):
        pieces = []
        for array, sharding in zip(arrays, shardings, strict=True):
            box = tile_of(sharding, array.shape, device)
            piece = np.full(local_dims(sharding, array.shape), _garbage(array), array.dtype)
            own = array[tuple(slice(a, b) for a, b in box)]
            piece[tuple(slice(0, n) for n in own.shape)] = own
            pieces.append(piece)
        rows.append(pieces)
    return rows


def _garbage(array: Array) -> object:
    is_float = array.dtype.kind in "fc" or array.dtype.kind == "V"
    return np.asarray(np.nan if is_float else 1).astype(array.dtype)


def _leaf_shardings(sharding: object, shape: Shape) -> list[HloSharding]:
    assert isinstance(sharding, HloSharding)
    return list(sharding.for_leaves(len(leaves(shape))).elements or ())


def join_arrays(
    module: HloModule, rows: list[list[Array]], dims: list[tuple[int, ...]]
) -> list[Array]:
    """The global results, each tile from the last device that holds it."""
    root = module.entry.root_instruction
    found = []
    for i, sharding in enumerate(_leaf_shardings(root.attrs.get("sharding"), root.shape)):
        whole = np.zeros(dims[i], rows[0][i].dtype)
        for device, row in enumerate(rows):
            box = tile_of(sharding, dims[i], device)
            own = tuple(slice(0, b - a) for a, b in box)
            whole[tuple(slice(a, b) for a, b in box)] = row[i][own]
        found.append(whole)
    return found


def partitioned(module: HloModule) -> HloModule:
    """The program of every device, made in place."""
    context = PassContext(chips.load_chip("v5e"))
    for one in hlo_passes(PARTITIONING):
        one.run(module, context)
    verify(module)
    return module


def on_devices(text: str, inputs: Sequence[Array]) -> list[Array]:
    """The global results of the partitioned program, evaluated."""
    module = parse_module(text)
    count = module.attrs["num_partitions"]
    assert isinstance(count, int)
    dims = [leaf.dims for leaf in leaves(module.entry.root_instruction.shape)]
    partitioned(module)
    rows = evaluate_devices(module, cut_arrays(module, inputs, count), run.PRECISION)
    return join_arrays(module, rows, dims)


def on_slice(text: str, target: str, inputs: Sequence[Array]) -> list[Array]:
    """The global results of the program on a slice."""
    options = CompileOptions(precision=run.PRECISION)
    executable = compile_model(
        text, target, machine=MachineOptions(threads=1, cache=False), options=options
    )
    return [np.asarray(r) for r in executable(*(np.array(a) for a in inputs))]


def check_annotated(text: str, seed: int) -> Outcome:
    """Judge a program with shardings against the same without any."""
    try:
        plain = without_shardings(text)
        verify(parse_module(plain))
        inputs = inputs_for(parse_module(plain), seed)
        want = list(evaluate(parse_module(plain), list(inputs), run.PRECISION))
    except UnsupportedError as error:
        return Outcome(REFUSED, f"by the evaluator: {error.message}", signature(error.message))
    except Exception as error:
        return Outcome(GENERATOR, str(error), signature(str(error)))

    def found(got: Sequence[Array]) -> Difference | None:
        return difference(
            got,
            want,
            lambda k, scale: evaluate_noisily(parse_module(plain), inputs, k, scale, parts=True),
            is_tainted(parse_module(plain)),
            times=4.0,
            reads_bits=reads_bits(parse_module(plain)),
        )

    ways: dict[str, Callable[[], list[Array]]] = {"partitioned": lambda: on_devices(text, inputs)}
    if seed % EVERY == 0:
        target = target_of(parse_module(text), seed)
        ways[f"on {target}"] = lambda: on_slice(text, target, inputs)
    for name, compute in ways.items():
        try:
            other = found(compute())
        except (UnsupportedError, ResourceExhaustedError) as error:
            return Outcome(REFUSED, f"{name}: {error.message}", signature(error.message))
        except Exception as error:
            return internal(error, f"{name}: ")
        if other is not None and other.kind != "zero sign":
            return Outcome(WRONG, f"{name}: output {other.output}: {other.text}", name)
    return Outcome(OK)


def check_sharded(plain: str, seed: int) -> Outcome:
    """Annotate a program and judge it."""
    if speaks_of_devices(parse_module(plain)):
        return Outcome(OF_DEVICES, "it speaks of devices itself", OF_DEVICES)
    try:
        text = annotated(plain, seed)
    except Exception as error:
        return internal(error, "while annotating: ")
    return check_annotated(text, seed)


def limited(check: Callable[[str, int], Outcome], text: str, seed: int) -> Outcome:
    """A check within `SECONDS` of processor time; a hang is an outcome."""
    try:
        with processor_seconds(SECONDS):
            return check(text, seed)
    except SlowError:
        return Outcome("hang", f"not done in {SECONDS} s", "hang")
    except MemoryError:
        return Outcome(INTERNAL, "MemoryError", "memory")


def main() -> None:
    """Run the seeds given on the command line, a line of JSON for each."""
    first, last = int(sys.argv[1]), int(sys.argv[2])
    watch_memory()
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for seed in range(first, last):
        out.write(json.dumps({"begin": seed}) + "\n")
        out.flush()
        started = time.perf_counter()
        outcome = limited(check_sharded, generate(seed), seed)
        seconds = round(time.perf_counter() - started, 2)
        out.write(json.dumps({"seed": seed, "seconds": seconds, **outcome.as_dict()}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
