"""Random programs under random shardings: partitioned, and run on several devices at once.

    python -m benchmarks.fuzz.sharded --from 0 --to 200

A program of the generator gets a random mesh, and a random sharding on every parameter and here and
there inside. Results must be those of the program on one device, as far as rounding goes.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback

import numpy as np

from benchmarks.fuzz.check import INTERNAL, OK, REFUSED, WRONG, Array, Outcome, signature
from benchmarks.fuzz.compare import difference
from benchmarks.fuzz.generator import generate
from benchmarks.fuzz.inputs import inputs_for
from benchmarks.fuzz.noise import evaluate_noisily, is_tainted, reads_bits
from compiler.diagnostics import CompileError
from compiler.hlo.call_graph import control_computations
from compiler.hlo.evaluator import evaluate, evaluate_devices
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from compiler.hlo.sharding import HloSharding, Tiles, leaf_count
from compiler.hlo.verifier import verify
from compiler.partitioner.grid import Cut, Grid
from compiler.partitioner.partitioner import partition_module
from compiler.passes.context import PassContext
from compiler.passes.layout_stripping import strip_layouts
from compiler.sharding.placement import local_dims, tile_of
from tpu_sim.isa import chips

_OF_DEVICES = {name for name, row in OPCODES.items() if row.has(Trait.COLLECTIVE)}
_OF_DEVICES |= {"partition-id", "replica-id", "async-start"}
_COUNTS = (2, 4, 4, 6, 8, 8)


def shard(module: HloModule, seed: int) -> int:
    """Make the module one of several partitions, with random shardings; returns how many."""
    rng = random.Random(seed)
    count = rng.choice(_COUNTS)
    module.attrs["num_partitions"] = count
    grid = Grid.of(count, [])
    often = rng.choice((0.2, 0.5, 0.9))
    for computation in control_computations(module):
        for instr in computation:
            if instr.opcode == "parameter" or rng.random() < often:
                _annotate(instr, grid, rng)
    return count


def _annotate(instr: HloInstruction, grid: Grid, rng: random.Random) -> None:
    shapes = leaves(instr.shape)
    if not shapes or leaf_count(instr.shape) != len(shapes):
        return
    parts = [_random_sharding(shape, grid, rng) for shape in shapes]
    is_tuple = isinstance(instr.shape, TupleShape)
    instr.attrs["sharding"] = HloSharding.of_tuple(parts) if is_tuple else parts[0]


def _random_sharding(shape: ArrayShape, grid: Grid, rng: random.Random) -> HloSharding:
    axes = list(range(len(grid.sizes)))
    rng.shuffle(axes)
    dims: list[tuple[int, ...]] = [()] * shape.rank
    for axis in axes[: rng.randint(0, len(axes))]:
        fitting = [d for d, n in enumerate(shape.dims) if grid.count((*dims[d], axis)) <= max(n, 1)]
        if fitting:
            chosen = rng.choice(fitting)
            dims[chosen] = (*dims[chosen], axis)
    found = grid.sharding(Cut(tuple(dims)))
    if found.tiles is None or rng.random() < 0.9:
        return found
    devices = list(range(grid.device_count))
    rng.shuffle(devices)
    return HloSharding.tiled(Tiles(found.tiles.dims, devices=tuple(devices)), found.subgroups)


def cut_arrays(module: HloModule, arrays: list[Array], count: int) -> list[list[Array]]:
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


def _leaf_shardings(sharding: object, shape: object) -> list[HloSharding]:
    assert isinstance(sharding, HloSharding)
    return list(sharding.for_leaves(len(leaves(shape))).elements or ())  # type: ignore[arg-type]


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


def check_sharded(text: str, seed: int) -> Outcome:
    """Partition a program and compare what its devices compute with what one does."""
    module = parse_module(text)
    if any(i.opcode in _OF_DEVICES for c in module.computations.values() for i in c):
        return Outcome(REFUSED, "it speaks of devices itself", "of devices")
    inputs = inputs_for(module, seed)
    try:
        want = evaluate(parse_module(text), inputs, "highest")
    except CompileError as error:
        return Outcome(REFUSED, f"by the evaluator: {error.message}", signature(error.message))
    context = PassContext(chips.load_chip("v5e"))
    try:
        strip_layouts(module, context)
        count = shard(module, seed)
        partition_module(module, context)
        verify(module)
        rows = evaluate_devices(module, cut_arrays(module, inputs, count), "highest")
        got = join_arrays(module, rows, [array.shape for array in want])
    except CompileError as error:
        return Outcome(REFUSED, error.message, signature(error.message))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        return Outcome(INTERNAL, text, f"{type(error).__name__} {last.name}")
    found = difference(
        got,
        want,
        lambda k, scale: evaluate_noisily(parse_module(text), inputs, k, scale),
        is_tainted(parse_module(text)),
        times=4.0,
        reads_bits=reads_bits(parse_module(text)),
    )
    if found is None or found.kind == "zero sign":
        return Outcome(OK)
    return Outcome(WRONG, f"output {found.output}: {found.text}", found.kind)


def main() -> None:
    """Judge a range of seeds, each failure on a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="last", type=int, default=100)
    args = parser.parse_args()
    tally: dict[str, int] = {}
    for seed in range(args.first, args.last):
        outcome = check_sharded(generate(seed), seed)
        tally[outcome.kind] = tally.get(outcome.kind, 0) + 1
        if outcome.kind != OK:
            print(f"{seed} {outcome.kind}: {outcome.detail[:300]}", flush=True)
    print(tally)
    sys.exit(0 if set(tally) <= {OK, REFUSED} else 1)


if __name__ == "__main__":
    main()
