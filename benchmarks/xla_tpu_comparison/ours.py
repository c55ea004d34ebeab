"""What tpuc makes of a model: compiled and estimated, kept on disk by content."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.compile_all import one_line
from compiler.analysis.fusion_body import fusion_body
from compiler.driver import CompiledModule, compile_module
from compiler.frontends.models import parse_model
from compiler.hlo.ir import HloComputation, HloInstruction
from runtime.client import client_for
from runtime.executable import Executable
from tpu_sim.isa.chips import load_chip

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("compiler", "runtime", "tpu_sim")
ROW_BYTES = 512


@dataclass(frozen=True)
class OurKernel:
    """All calls of a kernel from one place. `multiply_adds` and `outputs` are of one call."""

    name: str
    calls: int
    cycles: int
    multiply_adds: int
    outputs: int
    hbm_bytes: int
    note: str
    causes: dict[str, int]


@dataclass(frozen=True)
class Ours:
    """A model in numbers; `error` is empty when it compiles. `seconds` is what finding out took."""

    cycles: int = 0
    kernels: int = 0
    hbm_bytes: int = 0
    vmem_bytes: int = 0
    seconds: float = 0.0
    parts: tuple[OurKernel, ...] = ()
    error: str = ""
    causes: dict[str, int] = field(default_factory=dict)


class Estimator:
    """Estimates models for one chip; results are kept under what they depend on."""

    def __init__(self, target: str, folder: Path) -> None:
        self.target = target
        self.folder = folder
        self.digest = _sources_digest()

    def estimate(self, text: str) -> Ours:
        """Compile and estimate, unless the same sources did it before."""
        key = hashlib.sha256(f"{self.digest}\n{self.target}\n{text}".encode()).hexdigest()
        path = self.folder / f"{key}.json"
        if path.exists():
            return _from_json(path.read_text())
        found = _estimated(text, self.target)
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(asdict(found)))
        scratch.replace(path)
        return found


def _from_json(text: str) -> Ours:
    record = json.loads(text)
    record["parts"] = tuple(OurKernel(**part) for part in record["parts"])
    return Ours(**record)


def _sources_digest() -> str:
    found = hashlib.sha256(Path(__file__).read_bytes())
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".lark"):
                found.update(path.read_bytes())
    return found.hexdigest()


def _estimated(text: str, target: str) -> Ours:
    started = time.process_time()
    try:
        compiled = compile_module(parse_model(text, "model"), load_chip(target))
    except Exception as error:  # one workload's bug shall not hide all others
        return Ours(error=one_line(error))
    report = Executable(compiled.program, client_for(target).devices[0]).estimate()
    products = _products(compiled)
    parts = []
    for kernel in report.kernels:
        multiply_adds, outputs = products.get(kernel.name, (0, 0))
        causes = {name: count for name, count in kernel.causes.items() if count}
        counts = (kernel.calls, kernel.cycles, multiply_adds, outputs, kernel.hbm_bytes)
        parts.append(OurKernel(kernel.name, *counts, kernel.note, causes))
    kernels = compiled.program.kernels.values()
    rows = max((sum(w.rows for w in kernel.windows) for kernel in kernels), default=0)
    return Ours(
        cycles=report.cycles,
        kernels=len(parts),
        hbm_bytes=report.hbm_bytes,
        vmem_bytes=rows * ROW_BYTES,
        seconds=time.process_time() - started,
        parts=tuple(parts),
        causes=report.causes,
    )


def _products(compiled: CompiledModule) -> dict[str, tuple[int, int]]:
    """Multiply-adds and results of the matrix product of each fusion that has one, by its name."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for computation in compiled.module.computations.values():
        for instr in computation:
            dot = _dot(instr)
            if dot is not None:
                outputs = math.prod(dot.array.dims)
                found[instr.name] = (outputs * dot.operands[0].array.dims[-1], outputs)
    return found


def _dot(instr: HloInstruction) -> HloInstruction | None:
    is_fusion = instr.opcode == "fusion" and isinstance(instr.attrs.get("calls"), HloComputation)
    return fusion_body(instr).dot if is_fusion and instr.attrs["kind"] != "kCustom" else None
