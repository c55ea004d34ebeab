"""How far results are from an f64 evaluation: ours, and the expected values of a case.

    python -m benchmarks.conformance_errors CASES.zip NAME...

The archive holds `manifest.jsonl` and, for each case, a `.mlir` module and an `.npz` with inputs and
expected outputs. The same module with every float type made f64 is evaluated in NumPy; the largest
absolute errors of the first output are printed as a row of docs/conformance.md.
"""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tpuc
from compiler.frontends.models import parse_model
from compiler.hlo.evaluator import evaluate

Array = npt.NDArray[Any]
_NARROW = re.compile(r"(?<=[x<])(?:f16|bf16|f32)(?=>)")
_BITS = re.compile(r"dense<0x([0-9A-Fa-f]+)>(?= : tensor<(?:\d+x)*(f16|bf16|f32)>)")


def main() -> None:
    """Print one row for each named case."""
    path, *names = sys.argv[1:]
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("manifest.jsonl").decode().splitlines()
        cases = {case["name"]: case for case in map(json.loads, lines)}
        for name in names:
            ours, expected, size = _errors(archive, cases[name])
            print(f"| {name} | {ours:.3g} | {expected:.3g} | {size:.3g} |")


def _errors(archive: zipfile.ZipFile, case: dict[str, Any]) -> tuple[float, float, float]:
    """Largest errors of our results and of the expected values, and the largest exact value."""
    name = case["name"]
    text = archive.read(f"{name}.mlir").decode()
    arrays = np.load(io.BytesIO(archive.read(f"{name}.npz")))
    inputs = [_array(arrays, spec) for spec in (case["inputs"] or [[]])[0]]
    expected = _array(arrays, case["checks"][0])
    result = tpuc.compile(text, precision="highest")(*inputs)
    first = result[0] if isinstance(result, list | tuple) else result
    wide = parse_model(_NARROW.sub("f64", _BITS.sub(_wide_bits, text)))
    exact = evaluate(wide, [_wide(x) for x in inputs], "highest")[0]
    ours, theirs = (np.max(np.abs(_wide(v) - exact)) for v in (np.asarray(first), expected))
    return float(ours), float(theirs), float(np.max(np.abs(exact)))


def _wide_bits(match: re.Match[str]) -> str:
    """A constant given by its bits, as the bits of the same f64."""
    dtype = np.dtype({"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}[match[2]])
    bits = np.array(int(match[1], 16), f"u{dtype.itemsize}")
    value = bits.view(dtype).astype(np.float64).view(np.uint64)
    return f"dense<0x{int(value):016X}>"


def _array(arrays: Any, spec: dict[str, Any]) -> Array:
    dtype = np.dtype(getattr(ml_dtypes, spec["dtype"], None) or spec["dtype"])
    return np.frombuffer(arrays[spec["key"]].tobytes(), dtype).reshape(spec["shape"])


def _wide(value: Array) -> Array:
    if value.dtype.kind == "c":
        return value.astype(np.complex128)
    return value if value.dtype.kind in "biu" else value.astype(np.float64)


if __name__ == "__main__":
    main()
