"""What XLA's TPU compiler says of a model: the records of a folder.

manifest.json        the workloads; of each its id, family and the file name of its HLO text
open.FAMILY.json     {workload: {chip: record}}
open.kernels.jsonl   one line per kernel with an estimate
inputs.zip           the HLO texts
"""

from __future__ import annotations

import itertools
import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.window_text import decode_dim_labels, decode_window

Json = dict[str, Any]


@dataclass(frozen=True)
class Product:
    """A matrix product in a kernel.

    `multiply_adds` meet two elements; `padded` are all, those with padding or dilation included.
    """

    multiply_adds: int
    padded: int
    outputs: int
    is_windowed: bool  # a convolution with more than one tap


@dataclass(frozen=True)
class XlaKernel:
    """A kernel with its estimate; `trips` is how often a loop around it runs it."""

    name: str
    kind: str
    cycles: int
    trips: int
    products: tuple[Product, ...]
    is_plain: bool  # a product and nothing else


@dataclass(frozen=True)
class Record:
    """A workload. Bytes; cycles are the sum of the estimates, loops counted by their trips."""

    name: str
    family: str
    text: str
    cycles: int
    kernels: int
    unestimated: int
    hbm_bytes: int
    vmem_bytes: int
    parts: tuple[XlaKernel, ...]


PLAIN_OPERATIONS = frozenset({"convolution", "convert", "copy", "bitcast", "transpose", "reshape"})


def read_records(folder: Path, chip: str) -> list[Record]:
    """All workloads for one device of `chip` that have a record and an input, in manifest order."""
    workloads = json.loads((folder / "manifest.json").read_text())["open"]
    found: dict[str, Json] = {}
    for path in sorted(folder.glob("open.*.json")):
        for name, chips in json.loads(path.read_text()).items():
            if chip in chips and not chips[chip].get("mesh"):
                found[name] = chips[chip]
    kernels: dict[str, list[Json]] = {}
    for line in (folder / "open.kernels.jsonl").read_text().splitlines():
        kernel = json.loads(line)
        if kernel["c"] == chip:
            kernels.setdefault(kernel["w"], []).append(kernel)
    with zipfile.ZipFile(folder / "inputs.zip") as archive:
        texts = {PurePosixPath(n).name: n for n in archive.namelist()}
        return [
            _record(w, found[w["id"]], kernels.get(w["id"], []), archive.read(texts[name]).decode())
            for w in workloads
            if w["id"] in found and (name := PurePosixPath(w["input"]).name) in texts
        ]


def _record(workload: Json, record: Json, kernels: list[Json], text: str) -> Record:
    trips = {loop["name"]: loop["trip"] for loop in record["loops"]}
    scoped = [entry.get("scoped_vmem", 0) for entry in record["entry"]]
    return Record(
        name=workload["id"],
        family=workload["family"],
        text=text,
        cycles=record["estimated_cycles"],
        kernels=record["kernels"],
        unestimated=record["kernels"] - record["kernels_with_estimate"],
        hbm_bytes=record["hbm_bytes"],
        vmem_bytes=record["vmem_result_bytes"] + max(scoped, default=0),
        parts=tuple(_kernel(k, _trips(k, trips)) for k in kernels),
    )


def _trips(kernel: Json, trips: dict[str, int]) -> int:
    return max(1, math.prod(trips.values())) if kernel.get("loop") else 1


def _kernel(kernel: Json, trips: int) -> XlaKernel:
    products = tuple(_product(dot) for dot in kernel.get("dot") or ())
    operations = set(kernel.get("ops") or {})
    return XlaKernel(
        name=kernel["n"],
        kind=kernel.get("k") or kernel["op"],
        cycles=kernel["cyc"],
        trips=trips,
        products=products,
        is_plain=len(products) == 1 and operations <= PLAIN_OPERATIONS,
    )


def _product(dot: Json) -> Product:
    """Every product is a convolution to XLA; batches are windows that meet one element each."""
    labels = decode_dim_labels(dot["dim_labels"])
    left, right, out = (dot[key][1:] for key in ("lhs", "rhs", "out"))
    window = decode_window(dot["window"]) if dot["window"] else Window()
    met = padded = _features(labels, right, out)
    is_windowed = False
    sizes = zip(window.dims, labels.input_spatial, labels.output_spatial, strict=True)
    for dim, source, result in sizes:
        pairs = _meetings(dim, left[source], out[result])
        is_windowed |= pairs > max(left[source], out[result], dim.size)
        met *= pairs
        padded *= dim.size * out[result]
    return Product(met, padded, math.prod(out), is_windowed)


def _features(labels: ConvDims, right: list[int], out: list[int]) -> int:
    """Multiply-adds of one position and tap."""
    rows = out[labels.output_batch] * out[labels.output_feature]
    return rows * right[labels.kernel_input_feature]


def _meetings(dim: WindowDim, size: int, results: int) -> int:
    """Pairs of an output position and a tap that meet an element of the input."""
    last = (size - 1) * dim.base_dilation
    places = (
        position * dim.stride + tap * dim.window_dilation - dim.pad_low
        for position, tap in itertools.product(range(results), range(dim.size))
    )
    return sum(0 <= place <= last and place % dim.base_dilation == 0 for place in places)
