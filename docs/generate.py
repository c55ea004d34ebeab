"""Fill the generated parts of README.md and of pages of docs/: ``python docs/generate.py``.

A part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import tpuc
from compiler.llo.passes.pipeline import LLO_PASSES, LLO_PIPELINE

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EXAMPLE = ROOT / "examples" / "dot_bias_relu.hlo"


DEBUG_NAN = ("break nan", "run", "list source", "evaluate subtract.8", "backtrace", "list")
"""The session of docs/debugging.md."""

SWEPT = ("--set", "mxu_count=4,8", "--set", "hbm_bandwidth=0.8,1.6TB/s")
"""The sweep of README.md."""


def run(*arguments: str, is_first: bool = False) -> str:
    """Return what a tpuc command prints; `is_first`: where nothing was compiled before."""
    command = [sys.executable, "-m", "tpuc", *arguments]
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | ({"TPUC_CACHE_DIR": cache} if is_first else {})
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment
        )
    return done.stdout


def indented(text: str, limit: int = 110) -> str:
    """A code block; long lines are cut with an ellipsis."""
    lines = (
        line if len(line) <= limit else line[: limit - 3] + "..." for line in text.splitlines()
    )
    return "\n".join(f"    {line}".rstrip() for line in lines)


def excerpt(text: str, start: str, count: int) -> str:
    """`count` lines from the first that contains `start`."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if start in line)
    return "\n".join(lines[first : first + count])


def without_sources(text: str) -> str:
    """Drop the ``@"..."`` that names where an instruction comes from."""
    return re.sub(r' @"[^"]*"', "", text)


def without_blank_edges(text: str) -> str:
    """Drop empty lines at both ends and trailing spaces."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def parts() -> dict[str, str]:
    """All generated parts by name."""
    executable = tpuc.compile(EXAMPLE)
    llo, tpu = executable.text("llo"), executable.text("tpu")
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "d.tpux")
        run("compile", str(EXAMPLE), "-o", program, "--dump-ir", folder)
        disassembly = run("disasm", program)
        plan = (Path(folder) / "kernels" / "fusion" / "00.plan.txt").read_text()
    disassembly, tpu = without_sources(disassembly), without_sources(tpu)
    lines = [line.strip() for line in tpu.splitlines() if "vmatmul" in line]
    matmul = max(lines, key=lambda line: line.count(";"))
    block = run("run", "examples/transformer_block.hlo", "--check", is_first=True)
    costs = run("estimate", "examples/attention.mlir", "--by", "line", "--top", "6")
    sweep = run("sweep", "examples/attention.mlir", *SWEPT)
    session = [f"--command={line}" for line in DEBUG_NAN]
    debugging = run("debug", "examples/diverging.mlir", *session)
    return {
        "debug-nan": indented(debugging, 150),
        "run": indented(block, 132),
        "sweep": indented(without_blank_edges(sweep), 132),
        "lines": indented(without_blank_edges(costs[costs.index("dearest") :]), 132),
        "disasm": indented(excerpt(disassembly, matmul, 5), 160),
        "hlo": indented(EXAMPLE.read_text()),
        "opt": indented(without_blank_edges(run("opt", str(EXAMPLE)))),
        "plan": indented(without_blank_edges(plan), 132),
        "llo": indented(excerpt(llo, "window w0", 11) + "\n    ...\n" + excerpt(llo, "loop s", 24)),
        "tpu": indented(excerpt(tpu, matmul, 12), 160),
        "llo-passes": "\n".join(f"- `{n}` {LLO_PASSES[n].summary}" for n in LLO_PIPELINE),
    }


def main() -> None:
    """Rewrite the pages in place."""
    found = parts()
    for path in (ROOT / "README.md", DOCS / "architecture.md", DOCS / "debugging.md"):
        text = path.read_text()
        for name, body in found.items():
            pattern = rf"(<!-- begin {name} -->\n).*?(\n<!-- end {name} -->)"
            text = re.sub(pattern, lambda m, body=body: m[1] + body + m[2], text, flags=re.DOTALL)
        path.write_text(text)


if __name__ == "__main__":
    main()
