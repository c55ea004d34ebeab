"""Random shardings for a random program: GSPMD's annotations, or Shardy's over a mesh of named axes.

A program is annotated as text, so that what fails can be kept in a file and made small. The mesh may
have any count of devices, also such as are no power of two, and one to three axes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import PrintOptions, print_module
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from compiler.hlo.sharding import HloSharding, Tiles, leaf_count
from compiler.partitioner.grid import Cut, Grid
from compiler.sharding.mesh import Axes, Axis, DimSharding, Mesh, TensorSharding
from compiler.sharding.placement import local_dims, tile_counts
from compiler.sharding.shardy_text import mesh_text, tensor_sharding_text

TARGETS = {
    2: ("v5e:2x1",), 3: ("v5e:3x1",), 4: ("v5e:2x2", "v5e:4x1"), 5: ("v5e:5x1",),
    6: ("v5e:3x2", "v5e:2x3"), 8: ("v5e:4x2", "v5p:2x2x2"), 12: ("v5e:4x3", "v5p:3x2x2"),
}  # fmt: skip
"""Slices by their counts of devices."""
_ON_ONE = 0.02
"""How many arrays are on one device."""
COUNTS = (2, 3, 4, 4, 4, 5, 6, 6, 6, 8, 8, 8, 8, 12)
_OF_DEVICES = {name for name, row in OPCODES.items() if row.has(Trait.COLLECTIVE)}
_OF_DEVICES |= {"partition-id", "replica-id", "async-start"}
_FULL_TO_SHARD, _SHARD_TO_FULL = "SPMDFullToShardShape", "SPMDShardToFullShape"
_MARKS = ("Sharding", _FULL_TO_SHARD, _SHARD_TO_FULL)
_PLAIN = PrintOptions(percent=False, signatures=False)
_UNTOUCHED = frozenset({"parameter", "after-all", "constant"})


def speaks_of_devices(module: HloModule) -> bool:
    """Whether the program means something else on several devices by itself."""
    return any(i.opcode in _OF_DEVICES for c in module.computations.values() for i in c)


def annotated(text: str, seed: int) -> str:
    """The program for several partitions, with random shardings on parameters and here and there."""
    module = parse_module(text)
    rng = random.Random(seed)
    annotate(module, rng.choice((Gspmd, Shardy))(module, rng.choice(COUNTS), rng))
    return print_module(module, _PLAIN)


def annotate(module: HloModule, writer: Gspmd | Shardy) -> None:
    """Make it a program of several partitions, in place."""
    rng = writer.rng
    module.attrs["num_partitions"] = writer.count
    _may_alias(module)
    often = rng.choice((0.1, 0.2, 0.5, 0.9))
    for computation in control_computations(module):
        for instr in list(computation):
            if rng.random() < often / 4 and isinstance(writer, Gspmd) and writer.manual(instr):
                continue
            is_given = instr.opcode == "parameter" and computation is module.entry
            if is_given or rng.random() < often:
                writer.annotate(instr)
            elif rng.random() < often / 2:
                _constrain(instr, writer, computation)
        computation.sort()


def _may_alias(module: HloModule) -> None:
    """A result and a parameter that are cut differently cannot have one place."""
    aliases = module.attrs.get("input_output_alias")
    if isinstance(aliases, tuple):
        may = tuple(replace(alias, kind="may-alias") for alias in aliases)
        module.attrs["input_output_alias"] = may


def without_shardings(text: str) -> str:
    """An annotated program as it was before."""
    module = parse_module(text)
    module.attrs.pop("num_partitions", None)
    module.attrs.pop("frontend_attributes", None)
    for computation in module.computations.values():
        for instr in list(computation):
            if instr.attrs.get("custom_call_target") == _FULL_TO_SHARD:
                for user in instr.users:
                    user.shape = replace(user.array, dims=instr.operands[0].array.dims)
        for instr in list(computation):
            instr.attrs.pop("sharding", None)
            instr.attrs.pop("frontend_attributes", None)
            if instr.attrs.get("custom_call_target") in _MARKS:
                instr.replace_all_uses_with(instr.operands[0])
                computation.remove(instr)
    return print_module(module, _PLAIN)


def target_of(module: HloModule, seed: int) -> str:
    """A slice for an annotated program."""
    count = module.attrs["num_partitions"]
    assert isinstance(count, int)
    return random.Random(seed).choice(TARGETS[count])


def _constrain(instr: HloInstruction, writer: Gspmd | Shardy, where: HloComputation) -> None:
    """All users of an array, or some, take it as a constraint wants it."""
    users = list(instr.users)
    if not isinstance(instr.shape, ArrayShape) or instr.opcode in _UNTOUCHED or not users:
        return
    attrs: dict[str, object] = {"custom_call_target": "Sharding"}
    made = HloInstruction("custom-call", f"{instr.name}.s", instr.shape, (instr,), attrs)
    where.add(made)
    writer.annotate(made)
    for user in writer.rng.sample(users, writer.rng.randint(1, len(users))):
        for index, operand in enumerate(user.operands):
            if operand is instr:
                user.set_operand(index, made)
    if not made.users:
        where.remove(made)


def _call(
    where: HloComputation,
    target: str,
    operand: HloInstruction,
    shape: ArrayShape,
    sharding: HloSharding,
) -> HloInstruction:
    """A custom call that marks a value."""
    attrs: dict[str, object] = {"custom_call_target": target, "sharding": sharding}
    made = HloInstruction("custom-call", f"{operand.name}.m", shape, (operand,), attrs)
    where.add(made)
    return made


class Gspmd:
    """Writes ``sharding=``, of tiles that any order of axes makes, or any order of the devices."""

    def __init__(self, module: HloModule, count: int, rng: random.Random) -> None:
        self.grid, self.count, self.rng = Grid.of(count, []), count, rng

    def annotate(self, instr: HloInstruction) -> None:
        """Give each array of the result a random sharding."""
        shapes = leaves(instr.shape)
        if not shapes or leaf_count(instr.shape) != len(shapes):
            return
        parts = [self._sharding(shape) for shape in shapes]
        is_tuple = isinstance(instr.shape, TupleShape)
        instr.attrs["sharding"] = HloSharding.of_tuple(parts) if is_tuple else parts[0]
        if instr.opcode == "custom-call" and not is_tuple and self.rng.random() < 0.3:
            rank = shapes[0].rank
            opened = [d for d in range(rank) if self.rng.random() < 0.5]
            if opened:
                instr.attrs["backend_config"] = f"unspecified_dims={opened}".replace(" ", "")

    def manual(self, instr: HloInstruction) -> bool:
        """Let an operation on elements see a device's shapes, where all tiles are whole; whether it does."""
        where, row = instr.computation, OPCODES[instr.opcode]
        dims = instr.array.dims if isinstance(instr.shape, ArrayShape) else ()
        if where is None or not dims or 0 in dims or not row.has(Trait.ELEMENTWISE):
            return False
        if any(operand.array.dims != dims for operand in instr.operands):
            return False
        sharding = self._sharding(instr.array)
        local = local_dims(sharding, dims)
        has_order = sharding.tiles is not None and bool(sharding.tiles.devices)
        if (
            sharding.kind == "maximal"
            or has_order
            or any(n % k for n, k in zip(dims, local, strict=True))
        ):
            return False
        counts = tile_counts(sharding, len(dims))
        if any(n % k for n, k in zip(dims, counts, strict=True)):
            return False
        users, whole = list(instr.users), instr.array
        for index, operand in enumerate(list(instr.operands)):
            held = _call(where, "Sharding", operand, operand.array, sharding)
            shape = replace(operand.array, dims=local)
            cut = _call(where, _FULL_TO_SHARD, held, shape, HloSharding("manual"))
            instr.set_operand(index, cut)
        instr.shape = replace(whole, dims=local)
        instr.attrs["sharding"] = HloSharding("manual")
        made = _call(where, _SHARD_TO_FULL, instr, whole, sharding)
        for user in users:
            for index, operand in enumerate(user.operands):
                if operand is instr:
                    user.set_operand(index, made)
        if where.root is instr:
            where.root = made
        return True

    def _sharding(self, shape: ArrayShape) -> HloSharding:
        grid, rng = self.grid, self.rng
        if rng.random() < _ON_ONE:
            return HloSharding.maximal(rng.randrange(self.count))
        axes = list(range(len(grid.sizes)))
        rng.shuffle(axes)
        dims: list[tuple[int, ...]] = [()] * shape.rank
        for axis in axes[: rng.randint(0, len(axes))]:
            fitting = [
                d for d, n in enumerate(shape.dims) if grid.count((*dims[d], axis)) <= max(n, 1)
            ]
            if fitting:
                chosen = rng.choice(fitting)
                dims[chosen] = (*dims[chosen], axis)
        found = grid.sharding(Cut(tuple(dims)))
        if found.tiles is None or rng.random() < 0.9:
            return found
        devices = list(range(grid.device_count))
        rng.shuffle(devices)
        return HloSharding.tiled(Tiles(found.tiles.dims, devices=tuple(devices)), found.subgroups)


class Shardy:
    """Writes ``xla.sdy.sharding`` over one mesh: whole axes and parts, open dimensions, priorities."""

    def __init__(self, module: HloModule, count: int, rng: random.Random) -> None:
        self.count, self.rng = count, rng
        sizes = _axis_sizes(count, rng)
        self.mesh = Mesh(tuple((f"a{k}", size) for k, size in enumerate(sizes)))
        meshes = f"{{mesh = {mesh_text(self.mesh)}}}"
        module.attrs["frontend_attributes"] = _attributes("meshes", meshes)
        self.has_priorities = rng.random() < 0.3

    def annotate(self, instr: HloInstruction) -> None:
        """Give each array of the result a random sharding."""
        shapes = leaves(instr.shape)
        if not shapes or leaf_count(instr.shape) != len(shapes):
            return
        parts = [tensor_sharding_text(self._sharding(shape)) for shape in shapes]
        text = parts[0]
        if isinstance(instr.shape, TupleShape):
            inner = ", ".join(part.removeprefix("#sdy.sharding") for part in parts)
            text = f"#sdy.sharding_per_value<[{inner}]>"
        instr.attrs["frontend_attributes"] = _attributes("sharding", text)
        if instr.opcode == "custom-call":
            instr.attrs["sharding"] = HloSharding("replicated")

    def _sharding(self, shape: ArrayShape) -> TensorSharding:
        rng = self.rng
        axes = [part for axis in self.mesh.all_axes() for part in self._parts(axis)]
        rng.shuffle(axes)
        dims: list[Axes] = [()] * shape.rank
        kept: list[Axis] = []
        for axis in axes[: rng.randint(0, len(axes))]:
            fitting = [
                d
                for d, n in enumerate(shape.dims)
                if prod(a.size for a in dims[d]) * axis.size <= max(n, 1)
            ]
            if fitting and rng.random() < 0.9:
                chosen = rng.choice(fitting)
                dims[chosen] = (*dims[chosen], axis)
            elif rng.random() < 0.3:
                kept.append(axis)
        replicated = tuple(sorted(kept, key=lambda axis: (axis.name, axis.before)))
        return TensorSharding(self.mesh, tuple(map(self._dim, dims)), replicated=replicated)

    def _dim(self, axes: Axes) -> DimSharding:
        is_open = self.rng.random() < 0.4
        has_priority = self.has_priorities and (axes or is_open) and self.rng.random() < 0.5
        return DimSharding(axes, is_open, self.rng.randint(0, 2) if has_priority else None)

    def _parts(self, axis: Axis) -> list[Axis]:
        """The axis, or now and then two parts of it."""
        cuts = [n for n in range(2, axis.size) if axis.size % n == 0]
        if not cuts or self.rng.random() < 0.8:
            return [axis]
        cut = self.rng.choice(cuts)
        return [self.mesh.axis(axis.name, 1, cut), self.mesh.axis(axis.name, cut, axis.size // cut)]


def _axis_sizes(count: int, rng: random.Random) -> list[int]:
    """One to three sizes whose product is the count."""
    sizes = [count]
    for _ in range(rng.randint(0, 2)):
        large = max(sizes)
        cuts = [n for n in range(2, large) if large % n == 0]
        if cuts:
            first = rng.choice(cuts)
            at = sizes.index(large)
            sizes[at : at + 1] = [first, large // first]
    return sizes


def _attributes(name: str, text: str) -> FrontendAttributes:
    """Meshes stand as they are, all else in quotes."""
    quoted = text if name == "meshes" else '"' + text.replace('"', '\\"') + '"'
    return FrontendAttributes(((f"xla.sdy.{name}", quoted),))
