"""What a program says about shardings, read from its attributes.

Two worlds are told apart. Where the header lists meshes or an instruction carries Shardy's text
(``frontend_attributes={xla.sdy.sharding=...}``), that text alone counts. Otherwise ``sharding=``
counts, over one mesh that can express all of them; an assignment of devices that fits in no
common mesh gets one of its own.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator

import numpy as np

from compiler.diagnostics import CompileError
from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.escapes import unquote
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.hlo.sharding import HloSharding, leaf_count
from compiler.sharding.mesh import DimSharding, Mesh, TensorSharding
from compiler.sharding.placement import in_tiles
from compiler.sharding.shardy_text import parse_meshes, parse_shardings, parse_tensor_sharding

SHARDY = "xla.sdy."
_UNSPECIFIED = re.compile(r"unspecified_dims=\[([\d,\s]*)\]")


class Statements:
    """Reads the shardings that a module's instructions state."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        header = module.attrs.get("frontend_attributes")
        text = header.get(f"{SHARDY}meshes") if isinstance(header, FrontendAttributes) else None
        self.meshes = parse_meshes(text) if text is not None else {}
        self.is_shardy = text is not None or any(
            self.text(instr, name) is not None
            for instr in _instructions(module)
            for name in ("sharding", "in_shardings", "out_shardings")
        )
        self.mesh = self._first_mesh()
        self.device_count = self._device_count()

    def text(self, instr: HloInstruction, name: str) -> str | None:
        """Shardy's attribute ``xla.sdy.<name>``, its escapes undone."""
        found = instr.attrs.get("frontend_attributes")
        if not isinstance(found, FrontendAttributes):
            return None
        value = found.get(SHARDY + name)
        return None if value is None else unquote(f'"{value}"')

    def of(self, instr: HloInstruction) -> list[TensorSharding | None]:
        """What is stated for each array of the result; None where nothing is."""
        count = leaf_count(instr.shape)
        try:
            if self.is_shardy:
                text = self.text(instr, "sharding")
                return [None] * count if text is None else [*self._listed(instr, text, count)]
            return self._of_hlo(instr, count)
        except ValueError as error:
            raise CompileError(f"%{instr.name}: {error}", instr.span) from None

    def listed(self, instr: HloInstruction, name: str, count: int) -> list[TensorSharding]:
        """The shardings of `count` values that an attribute of Shardy lists."""
        text = self.text(instr, name)
        try:
            return self._listed(instr, text or "[]", count)
        except ValueError as error:
            raise CompileError(f"%{instr.name}: {name}: {error}", instr.span) from None

    def _listed(self, instr: HloInstruction, text: str, count: int) -> list[TensorSharding]:
        is_list = "per_value" in text or text.lstrip().startswith("[")
        if is_list:
            found = parse_shardings(text, self.meshes)
        else:
            found = [parse_tensor_sharding(text, self.meshes)]
        if len(found) != count:
            raise ValueError(f"{len(found)} shardings for {count} arrays")
        return found

    def _of_hlo(self, instr: HloInstruction, count: int) -> list[TensorSharding | None]:
        sharding = instr.attrs.get("sharding")
        if not isinstance(sharding, HloSharding):
            return [None] * count if self._is_free(instr) else self._replicated(instr)
        open_dims = _UNSPECIFIED.search(str(instr.attrs.get("backend_config", "")))
        opened = {int(d) for d in open_dims[1].split(",") if d.strip()} if open_dims else set()
        ranks = list(_ranks(instr.shape))
        if isinstance(instr.shape, TupleShape):
            sharding = sharding.for_leaves(count)
        return [self.converted(sharding.of_leaf(i), rank, opened) for i, rank in enumerate(ranks)]

    def _is_free(self, instr: HloInstruction) -> bool:
        """Whether propagation may decide: of a program's parameters only where the header says so."""
        if instr.opcode != "parameter" or instr.computation is not self.module.entry:
            return True
        allowed = self.module.attrs.get("allow_spmd_sharding_propagation_to_parameters")
        words = re.findall(r"true|false", str(allowed).lower())
        number = instr.attrs["parameter_number"] if len(words) > 1 else 0
        assert isinstance(number, int)
        return number < len(words) and words[number] == "true"

    def _replicated(self, instr: HloInstruction) -> list[TensorSharding | None]:
        return [TensorSharding.closed(self.mesh, rank) for rank in _ranks(instr.shape)]

    def converted(
        self, sharding: HloSharding, rank: int, opened: Iterable[int] = ()
    ) -> TensorSharding | None:
        """An array's `HloSharding` over the common mesh; None for one that says nothing."""
        if sharding.kind == "unknown":
            return None
        if sharding.kind == "maximal":
            return TensorSharding.closed(Mesh((), (sharding.device,)), rank)
        sharding = in_tiles(sharding)
        found = TensorSharding.from_hlo(sharding, self.mesh, rank)
        if found is None:
            found = _over_own_mesh(sharding, rank)
        dims = tuple(
            DimSharding(dim.axes, i in opened, dim.priority) for i, dim in enumerate(found.dims)
        )
        return TensorSharding(found.mesh, dims, found.replicated, found.unreduced, found.manual)

    def _first_mesh(self) -> Mesh:
        """The mesh of values about which nothing is said."""
        named = [mesh for mesh in self.meshes.values() if mesh.axes]
        if named:
            return named[0]
        shardings = [] if self.is_shardy else self._hlo_shardings()
        return common_mesh(shardings, self._header_count())

    def _hlo_shardings(self) -> list[HloSharding]:
        found: list[HloSharding] = []
        for instr in _instructions(self.module):
            sharding = instr.attrs.get("sharding")
            if isinstance(sharding, HloSharding):
                found += sharding.elements or [sharding]
        return [in_tiles(one) for one in found]

    def _header_count(self) -> int:
        count = self.module.attrs.get("num_partitions", 1)
        assert isinstance(count, int)
        return count

    def _device_count(self) -> int:
        """How many partitions there are; the header and the meshes must agree."""
        stated = self._header_count()
        found = max(self.mesh.device_count, 1)
        if stated not in (1, found):
            raise CompileError(
                f"the header says num_partitions={stated}, the shardings are for {found} devices"
            )
        return found


def _instructions(module: HloModule) -> Iterator[HloInstruction]:
    for computation in module.computations.values():
        yield from computation


def _ranks(shape: Shape) -> Iterator[int]:
    if isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from _ranks(element)
    else:
        yield shape.rank if isinstance(shape, ArrayShape) else 0


def common_mesh(shardings: Iterable[HloSharding], device_count: int) -> Mesh:
    """Axes of which tile assignments can be made: device numbers cut where any of them cuts.

    >>> from compiler.sharding.placement import parse_sharding
    >>> common_mesh([parse_sharding("{devices=[4,2]<=[2,4]T(1,0)}")], 8).axes
    (('axis_0', 2), ('axis_1', 4))
    """
    count = device_count
    cuts = {1}
    for sharding in shardings:
        if sharding.tiles is None:
            continue
        count = max(count, math.prod(sharding.tiles.dims))
        below = 1
        for size in reversed(sharding.tiles.reshape):
            below *= size
            cuts.add(below)
        devices = sharding.tiles.array()
        for dim, size in enumerate(devices.shape):
            line = np.moveaxis(devices, dim, 0).reshape(size, -1)[:, 0]
            if size > 1 and line[1] > line[0]:
                cuts.update((int(line[1] - line[0]), int(line[1] - line[0]) * size))
    chain = [1]
    for cut in sorted({*cuts, count}):
        if cut > chain[-1] and cut % chain[-1] == 0 and count % cut == 0:
            chain.append(cut)
    sizes = [high // low for low, high in itertools.pairwise(chain)]
    return Mesh(tuple((f"axis_{i}", size) for i, size in enumerate(reversed(sizes))))


def _over_own_mesh(sharding: HloSharding, rank: int) -> TensorSharding:
    """A tile assignment over a mesh made for it alone: an axis for each dimension that it cuts."""
    tiles = sharding.tiles
    assert tiles is not None
    sizes = [(f"own_{i}", size) for i, size in enumerate(d for d in tiles.dims if d > 1)]
    devices = tuple(tiles.array().reshape(-1).tolist())
    mesh = Mesh(tuple(sizes), devices)
    found = TensorSharding.from_hlo(sharding, mesh, rank)
    if found is None:
        raise ValueError(f"sharding {sharding} does not fit an array of {rank} dimensions")
    return found
