"""XLA's CPU backend on HLO text, by the client that jax brings along."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
from jax._src.lib import xla_client
from jaxlib import _jax
from jaxlib._hlo import hlo_module_from_text

from benchmarks.performance.protocol import Compiled, Place
from benchmarks.performance.texts import dot
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape, leaves


class XlaCpu:
    """Threads are those that the process may use: its affinity mask."""

    def __init__(self) -> None:
        self._client = jax.devices("cpu")[0].client
        self._devices = xla_client.DeviceList(tuple(self._client.devices()[:1]))
        self._text = ""
        self._executable: Any = None
        self._arguments: list[Any] = []
        self._make: Place | None = None
        self._shapes: list[ArrayShape] = []
        self._results: list[Any] = []

    def warm_up(self) -> None:
        """A small product."""
        self.compile(dot("f32", 8, 128, 128))
        self.place(lambda shape, _: jax.numpy.zeros(shape.dims, shape.dtype.numpy))
        self.execute()

    def compile(self, text: str) -> Compiled:
        """Parse and compile; the detour by StableHLO, which only this way in needs, is not timed."""
        started = time.perf_counter()
        proto = hlo_module_from_text(text).as_serialized_hlo_module_proto()
        parsed = time.perf_counter() - started
        stablehlo = _jax.mlir.hlo_to_stablehlo(proto)
        started = time.perf_counter()
        options = xla_client.CompileOptions()
        self._executable = self._client.compile_and_load(stablehlo, self._devices, options)
        self._text = text
        seconds = time.perf_counter() - started
        sizes = self._executable.get_compiled_memory_stats()
        needed = sum(
            getattr(sizes, f"{part}_size_in_bytes") for part in ("argument", "output", "temp")
        )
        return Compiled(parsed + seconds, {"parse": parsed, "compile": seconds}, needed)

    def place(self, make: Place) -> None:
        """Inputs as jax arrays."""
        module = parse_module(self._text, "<text>")
        self._make = make
        self._shapes = [leaf for p in module.entry.parameters for leaf in leaves(p.shape)]
        self._arguments = [jax.device_put(make(shape, n)) for n, shape in enumerate(self._shapes)]
        jax.block_until_ready(self._arguments)

    def replace_donated(self) -> None:
        """Inputs that were deleted, placed again."""
        assert self._make is not None
        for number, (array, shape) in enumerate(zip(self._arguments, self._shapes, strict=True)):
            if array.is_deleted():
                self._arguments[number] = jax.device_put(self._make(shape, number))
        jax.block_until_ready(self._arguments)

    def execute(self) -> None:
        """One call; results of the call before are freed first."""
        self._results = []
        called = self._executable.execute_sharded(self._arguments)
        self._results = [
            array for parts in called.disassemble_into_single_device_arrays() for array in parts
        ]
        for array in self._results:
            array.block_until_ready()

    def outputs(self) -> Sequence[object]:
        """jax arrays."""
        return self._results

    def facts(self) -> dict[str, object]:
        """Nothing."""
        return {}
