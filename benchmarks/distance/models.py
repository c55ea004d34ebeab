"""What tpuc makes of a model, by kernel, and what the reference makes of it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpu_sim.isa.source_digest import source_digest


@dataclass(frozen=True)
class KernelDistance:
    """All calls of a kernel from one place."""

    model: str
    name: str
    note: str
    calls: int
    cycles: int
    roofline: str
    roofline_cycles: float
    hbm_bytes: int
    least_bytes: int
    bound_by: str

    @property
    def lost(self) -> float:
        """Cycles beyond the roofline."""
        return max(0.0, self.cycles - self.roofline_cycles)

    @property
    def times(self) -> float:
        """Cycles over those at the roofline."""
        return self.cycles / max(1.0, self.roofline_cycles)

    @property
    def amplification(self) -> float:
        """Bytes moved over the least."""
        return self.hbm_bytes / max(1, self.least_bytes)

    @property
    def kind(self) -> str:
        """The fusion kind and the opcode of its root, as its note has them."""
        return " ".join(self.note.split(" grid ")[0].split()[1:3])


@dataclass(frozen=True)
class Model:
    """A model in numbers beside a reference (zeros where that has none)."""

    name: str
    cycles: int = 0
    hbm_bytes: int = 0
    seconds: float = 0.0
    kernels: tuple[KernelDistance, ...] = ()
    reference_cycles: int = 0
    reference_bytes: int = 0
    unestimated: bool = False
    error: str = ""

    @property
    def cycles_ratio(self) -> float:
        """Our cycles over the reference's, 0 without one."""
        return self.cycles / self.reference_cycles if self.reference_cycles else 0.0

    @property
    def bytes_ratio(self) -> float:
        """Our HBM bytes over the reference's, 0 without them."""
        return self.hbm_bytes / self.reference_bytes if self.reference_bytes else 0.0

    @property
    def line(self) -> str:
        """The model on one line, for the terminal."""
        return f"{self.name}: {self.error or f'{self.cycles:,} ({self.cycles_ratio:.2f})'}"


class Estimator:
    """Estimates models, each in a process of its own; results are kept by content."""

    def __init__(self, target: str, folder: Path, timeout: float) -> None:
        self.target = target
        self.folder = folder
        self.timeout = timeout
        self.digest = source_digest("compiler", "runtime", "tpu_sim")

    def estimate(
        self,
        path: Path,
        reference: Mapping[str, Mapping[str, Any]],
        options: Sequence[str] = (),
    ) -> Model:
        """The model of a file, compiled with further `options` of ``tpuc estimate``."""
        name = path.stem.removesuffix("_full")
        record = reference.get(name, {})
        found = self._report(path, options)
        error = str(found.get("error", ""))
        if error:
            return Model(name, error=error)
        return Model(
            name=name,
            cycles=found["cycles"],
            hbm_bytes=found["hbm_bytes"],
            seconds=found["compile_seconds"],
            kernels=tuple(_kernel(name, kernel) for kernel in found["kernels"]),
            reference_cycles=record.get("estimated_cycles", 0),
            reference_bytes=record.get("hbm_bytes", 0),
            unestimated=bool(record.get("no_estimate")),
        )

    def _report(self, path: Path, options: Sequence[str]) -> dict[str, Any]:
        words = " ".join([self.digest, self.target, *options])
        key = hashlib.sha256(words.encode() + path.read_bytes())
        kept = self.folder / f"{key.hexdigest()}.json"
        if kept.exists():
            found: dict[str, Any] = json.loads(kept.read_text())
            return found
        command = [sys.executable, "-m", "tpuc", "estimate", str(path), "--json"]
        command += ["--target", self.target, "--no-cache", *options]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=self.timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return {"error": f"no result within {self.timeout:g} s"}
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["(no message)"])[0]}
        self.folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(done.stdout)
        found = json.loads(done.stdout)
        return found


def _kernel(model: str, kernel: Mapping[str, Any]) -> KernelDistance:
    return KernelDistance(
        model=model,
        name=kernel["name"],
        note=kernel["note"],
        calls=kernel["calls"],
        cycles=kernel["cycles"],
        roofline=kernel["roofline"],
        roofline_cycles=kernel["roofline_cycles"],
        hbm_bytes=kernel["hbm_bytes"],
        least_bytes=kernel["least_bytes"],
        bound_by=kernel["bound_by"],
    )
