"""Write into docs/autodiff.md which opcodes have no derivative: ``python -m benchmarks.derivatives``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sections import put_section
from compiler.autodiff.rule import Constant, Refused
from compiler.autodiff.table import DERIVATIVES
from compiler.batching.loop import one_by_one
from compiler.batching.table import BATCHING

PAGE = Path(__file__).resolve().parents[1] / "docs" / "autodiff.md"


def main() -> int:
    """Replace the section of the page."""
    put_section("opcodes", section(), PAGE, "# Derivatives\n")
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


if __name__ == "__main__":
    raise SystemExit(main())
