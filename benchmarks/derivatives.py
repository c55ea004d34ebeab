"""Write into docs/autodiff.md which opcodes have no derivative: ``python -m benchmarks.derivatives``.

With ``--cycles`` also what derivatives cost beside those that JAX makes (needs JAX; about a minute).
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tpuc
from benchmarks.sections import put_section, version
from compiler.autodiff.modules import grad_module
from compiler.autodiff.rule import Constant, Refused
from compiler.autodiff.table import DERIVATIVES
from compiler.batching.loop import one_by_one
from compiler.batching.table import BATCHING
from compiler.frontends.models import parse_model
from compiler.hlo.printer import print_module

PAGE = Path(__file__).resolve().parents[1] / "docs" / "autodiff.md"


def main() -> int:
    """Replace the sections of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", action="store_true")
    put_section("opcodes", section(), PAGE, "# Derivatives\n")
    if parser.parse_args().cycles:
        put_section("cycles", cycles_section(), PAGE, "# Derivatives\n")
    return 0


def section() -> str:
    """Opcodes by what their rule says."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, rule in sorted(DERIVATIVES.items()):
        if isinstance(rule, Constant | Refused):
            kind = "zero" if isinstance(rule, Constant) else "refused"
            reasons.setdefault((kind, rule.reason), []).append(f"`{name}`")
    without = sum(len(names) for names in reasons.values())
    single = sum(rule is one_by_one for rule in BATCHING.values())
    lines = [
        f"Of {len(DERIVATIVES)} opcodes {len(DERIVATIVES) - without} have a derivative, and "
        f"{len(BATCHING) - single} a form for many examples at once. The others:",
        "",
        "| derivative | why | opcodes |",
        "|---|---|---|",
        *(
            f"| {kind} | {why} | {' '.join(names)} |"
            for (kind, why), names in sorted(reasons.items())
        ),
    ]
    return "\n".join(lines)


def cycles_section() -> str:
    """Values with gradients of a few functions, by JAX's derivatives and by ours."""
    jax = importlib.import_module("jax")
    lines = [
        f"{version()}, by `python -m benchmarks.derivatives --cycles`: cycles on a v5e of a value with "
        "its gradients by all arrays, JAX's program beside ours of JAX's forward program.",
        "",
        "| function | by JAX | by tpuc | ratio |",
        "|---|---|---|---|",
    ]
    for name, (function, *args) in _functions(jax).items():
        numbers = tuple(i for i, x in enumerate(args) if x.dtype == np.float32)
        theirs = _cycles(_lowered(jax, jax.value_and_grad(function, numbers), args), args)
        derived = grad_module(parse_model(_lowered(jax, function, args)))
        ours = _cycles(print_module(derived), args)
        lines.append(f"| {name} | {theirs:,} | {ours:,} | {ours / theirs:.2f} |")
    return "\n".join(lines)


def _lowered(jax: Any, function: Callable[..., Any], args: list[Any]) -> str:
    lowered = jax.jit(function).trace(*args).lower(lowering_platforms=("tpu",))
    text: str = lowered.as_text()
    return text


def _cycles(text: str, args: list[Any]) -> int:
    executable = tpuc.compile(text)
    executable(*args)
    return executable.report.cycles


def _functions(jax: Any) -> dict[str, Any]:
    jnp, lax = jax.numpy, jax.lax
    rng = np.random.default_rng(0)

    def r(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 0.1).astype(np.float32)

    def attention(x: Any, q: Any, k: Any, v: Any, out: Any) -> Any:
        share = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", x @ q, x @ k) / 8, -1)
        return (share @ (x @ v) @ out).sum()

    def convolutions(x: Any, first: Any, second: Any) -> Any:
        layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        y = jax.nn.relu(lax.conv_general_dilated(x, first, (1, 1), "SAME", **layout))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return lax.conv_general_dilated(y, second, (2, 2), "SAME", **layout).sum()

    def recurrence(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0].sum()

    places = rng.integers(0, 1000, 512).astype(np.int32)
    return {
        "perceptron": (
            lambda x, w, v: (jnp.tanh(x @ w) @ v).sum(),
            r(256, 512),
            r(512, 512),
            r(512, 256),
        ),
        "attention": (attention, r(4, 128, 256), *(r(256, 256) for _ in range(4))),
        "convolutions and pooling": (
            convolutions,
            r(4, 32, 32, 32),
            r(3, 3, 32, 64),
            r(3, 3, 64, 64),
        ),
        "scan of 8 steps": (recurrence, r(128, 256), r(8, 256, 256)),
        "embedding": (lambda e, i, w: jnp.tanh(e[i] @ w).sum(), r(1000, 128), places, r(128, 128)),
    }


if __name__ == "__main__":
    raise SystemExit(main())
