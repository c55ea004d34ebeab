"""What is measured: the small workloads as text, the models as files."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.performance import texts
from benchmarks.performance.agreement import TOLERANCE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    `text` makes the HLO; without it the file ``<name>_full.hlo`` is looked for. Integer inputs are
    uniform in [0, `integer_limit`), floats of parameters whose name has the word `positive` in it
    are not negative. Outputs may differ by `tolerance` from XLA:CPU's
    (`benchmarks.performance.agreement`). `counts` says whether the geometric means include the row; one
    that XLA:CPU cannot run here says why in `alone`.
    """

    name: str
    text: Callable[[], str] | None = None
    integer_limit: int = 16
    counts: bool = True
    alone: str = ""
    tolerance: float = TOLERANCE
    positive: str = ""


def _dots() -> list[Workload]:
    found = []
    for dtype in ("f32", "bf16"):
        for n in (512, 1024, 2048, 4096):
            found.append(Workload(f"dot_{dtype}_{n}", partial(texts.dot, dtype, n, n, n)))
        text = partial(texts.dot, dtype, 8, 4096, 4096)
        found.append(Workload(f"dot_{dtype}_8x4096x4096", text))
    for n in (512, 1024, 2048, 4096):
        text = partial(texts.dot, "f32", n, n, n, "highest")
        found.append(Workload(f"dot_f32_highest_{n}", text, counts=False))
    return found


WORKLOADS = (
    *_dots(),
    Workload("softmax", texts.softmax),
    Workload("layernorm", texts.layernorm),
    Workload("gelu", texts.gelu),
    Workload("reduce", texts.reduce),
    Workload("transpose", texts.transpose),
    Workload("gather", texts.gather, integer_limit=texts.SIZE),
    Workload("mlp_train", integer_limit=10),
    Workload("gpt2_fwd", integer_limit=50257),
    Workload("llama_fwd_scan", integer_limit=128256),
    # XLA:CPU's maximum drops the NaN of a negative variance; 53 layers of bf16 values: 0.03.
    Workload("resnet50_fwd", positive="var", tolerance=0.06),
    Workload("vit_b16_fwd"),
    Workload("lstm_train", integer_limit=10000),
    Workload("dlrm_train", integer_limit=100000),
    # Which centre is nearest hangs on the rounding of a bf16 pass; with --precision high: 2e-8.
    Workload("kmeans", tolerance=0.25),
    Workload("cg_while"),
    Workload("heat_stencil"),
    Workload("mandelbrot_while"),
    Workload("moe_gshard"),
    Workload("adi_heat"),
    Workload("fft_poisson"),
    Workload("flash_attention"),
    Workload(
        "gpt2_train",
        integer_limit=50257,
        counts=False,
        alone="XLA:CPU wants 28 GB of temporaries for it",
    ),
)


def chosen(patterns: Sequence[str]) -> list[Workload]:
    """The workloads whose names match one of the patterns (``*`` and ``?``); all for none.

    Raises ValueError for a pattern that matches none.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatch(w.name, pattern) for w in WORKLOADS):
            names = ", ".join(w.name for w in WORKLOADS)
            message = f"no workload matches {pattern!r}; there are {names}"
            raise ValueError(message)
    return [
        w for w in WORKLOADS if not patterns or any(fnmatch.fnmatch(w.name, p) for p in patterns)
    ]


def source_file(workload: Workload, models: Sequence[Path], scratch: Path) -> Path | None:
    """The workload's HLO file, written to `scratch` if it is generated; None if there is none."""
    if workload.text is not None:
        path = scratch / f"{workload.name}.hlo"
        path.write_text(workload.text())
        return path
    candidates = (folder / f"{workload.name}_full.hlo" for folder in (*models, EXAMPLES))
    return next((path for path in candidates if path.is_file()), None)
