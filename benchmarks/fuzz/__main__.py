"""Random valid HLO modules, run every way there is and compared.

    python -m benchmarks.fuzz --seeds 0:2000 [--jobs 2] [--no-xla] [--levels avx2,avx512,native]
                              [--numpy-cycles 20000] [--minimise] [--out DIR] [--write PAGE]
    python -m benchmarks.fuzz --jax --seeds 0:2000 [--scale]    random JAX programs
    python -m benchmarks.fuzz --networks --seeds 0:300 [--scale]    random networks, in JAX
    python -m benchmarks.fuzz --sharded --seeds 0:2000     random shardings, on slices
    python -m benchmarks.fuzz --show SEED          the module of a seed
    python -m benchmarks.fuzz --file X.hlo ..      judge files instead

Each module goes through the evaluator, XLA's CPU backend where jaxlib is, the compiler and the
LLVM machine; every fourth small one through the NumPy machine, which also looks for races. A
finding is a wrong value, a refusal, an internal error, a hang, or a process that dies. The exit
code is 1 if there are findings; `--write PAGE` keeps the counts. What became of each seed is kept in
`DIR/seeds.jsonl` as it ends: the same command again goes on where the last one was stopped. See
`benchmarks/fuzz/noise.py` for how values are compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from benchmarks.fuzz.annotations import annotated
from benchmarks.fuzz.check import OK, XLA, Ways
from benchmarks.fuzz.minimise import minimise, minimise_real, minimise_sharded
from benchmarks.fuzz.series import NOTHING, SERIES, target_of
from benchmarks.fuzz.sharded import OF_DEVICES, check_annotated
from benchmarks.fuzz.sharded import limited as sharded_limited
from benchmarks.fuzz.worker import limited
from benchmarks.fuzz.xla_process import XlaProcess, available
from benchmarks.sections import put_section
from benchmarks.seeds import Ledger, Plan, run

_FINE = (OK, XLA, "too large", OF_DEVICES, NOTHING)
_TITLE = "# Random programs\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0:200", help="FIRST:LAST, the last one not run")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--no-xla", action="store_true")
    parser.add_argument("--levels", default="", help="host features, each in its own processes")
    parser.add_argument("--numpy-cycles", type=int, default=30_000)
    parser.add_argument("--target", default="", help="else one of chance for each seed")
    parser.add_argument("--minimise", action="store_true", help="reduce one finding a signature")
    parser.add_argument("--out", type=Path, default=None, help="where findings are written")
    parser.add_argument("--write", type=Path, default=None, help="a page that gets the counts")
    parser.add_argument("--scale", action="store_true", help="real sizes: compile only")
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument("--jax", action="store_true", help="random JAX programs")
    origin.add_argument("--networks", action="store_true", help="random networks, in JAX")
    parser.add_argument("--sharded", action="store_true", help="random shardings, on slices")
    parser.add_argument("--show", type=int, default=None)
    parser.add_argument("--file", type=Path, nargs="+", default=[])
    return parser.parse_args()


def main() -> int:
    """The command line."""
    args = _arguments()
    if args.show is not None:
        print(_text(args.show, args))
        return 0
    use_xla = available() and not args.no_xla
    if args.file:
        return _judge_files(args.file, use_xla, args)
    first, last = (int(n) for n in args.seeds.split(":"))
    findings: list[dict[str, Any]] = []
    for level in args.levels.split(",") if args.levels else [""]:
        findings += _run(args, first, last, use_xla, level)
    if args.out is not None:
        _write(args.out, findings, args, use_xla)
    return int(bool(findings))


def _run(
    args: argparse.Namespace, first: int, last: int, use_xla: bool, level: str
) -> list[dict[str, Any]]:
    started = time.perf_counter()
    way = "scale" if args.scale else "sharded" if args.sharded else "random"
    origin = _series(args)
    name = f"{'' if origin == 'random' else f'{origin} '}{way} {level}".strip()
    ledger = Ledger(args.out, name, range(first, last))

    def tell(record: dict[str, Any]) -> None:
        ledger.keep(record)
        if record["kind"] not in _FINE:
            print(f"{record['seed']}: {record['kind']}: {record['detail'][:400]}", flush=True)

    plan = Plan("benchmarks.fuzz.worker", ledger.missing(), args.jobs)
    plan.environment = {"TPUC_HOST_FEATURES": level} if level else {}
    if args.sharded:
        plan.module = "benchmarks.fuzz.sharded"
    elif args.scale:
        plan.module = "benchmarks.fuzz.scale"
        plan.arguments = [origin]
    else:
        plan.arguments = ["--numpy-cycles", str(args.numpy_cycles), "--target", args.target]
        plan.arguments += ["--series", origin, *(["--xla"] if use_xla else [])]
    run(plan, tell)
    seconds = time.perf_counter() - started
    page = ledger.page(_told(args, use_xla), "outcome")
    print(f"{page}\n{seconds:.0f} s")
    if args.write is not None:
        put_section(name, f"### {name}\n\n{page}", args.write, _TITLE)
    findings = [record for record in ledger.records if record["kind"] not in _FINE]
    refusals = Counter(r["signature"] for r in findings if r["kind"] == "refused")
    for signature, count in refusals.most_common():
        print(f"  refused {count}: {signature}")
    return findings


def _series(args: argparse.Namespace) -> str:
    return "jax" if args.jax else "networks" if args.networks else "random"


def _told(args: argparse.Namespace, use_xla: bool) -> str:
    if args.sharded:
        return " for 2 to 12 devices (small, every fourth one executed, against one device)"
    if args.scale:
        return " for v5e (real sizes, compiled and estimated)"
    beside = "beside" if use_xla else "without"
    return f" for {args.target or 'several chips'} (small, executed, {beside} XLA)"


def _text(seed: int, args: argparse.Namespace) -> str:
    """The module of a seed."""
    series = SERIES[_series(args)]()
    text = series.real(seed) if args.scale else series.small(seed)[0]
    return annotated(text, seed) if args.sharded else text


def _write(
    out: Path, findings: list[dict[str, Any]], args: argparse.Namespace, use_xla: bool
) -> None:
    """The module of each finding, or of each signature a small one, where it is not there yet."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in findings:
        groups[record["kind"], record["signature"] or str(record["seed"])].append(record)
    for (kind, _), records in groups.items():
        seed = records[0]["seed"]
        path = out / f"{kind.replace(' ', '-')}-{seed}.hlo"
        if path.exists():
            continue
        text = _text(seed, args)
        if args.sharded and args.minimise and kind != "crash":
            text = minimise_sharded(text, kind, records[0]["signature"], seed)
        elif args.scale and args.minimise and kind not in ("crash", "generator"):
            text = minimise_real(text, kind, records[0]["signature"])
        elif args.minimise and kind not in ("crash", "hang", "generator"):
            target = target_of(seed, args.target)
            text = minimise(text, kind, records[0]["signature"], seed, use_xla, target)
        detail = records[0]["detail"].splitlines()[0][:300]
        note = f"// seed {seed}: {kind} for {target_of(seed, args.target)}: {detail}\n"
        path.write_text(note + text)


def _judge_files(paths: list[Path], use_xla: bool, args: argparse.Namespace) -> int:
    """Judge files as they are; the seed of the inputs is in the first line, if there is one."""
    xla = XlaProcess() if use_xla else None
    found = 0
    for path in paths:
        text = path.read_text()
        head = text.split(":", 1)[0]
        seed = int(head.split()[-1]) if head.startswith("// seed ") else 0
        ways = Ways(xla, args.numpy_cycles, target=args.target or "v5e", stablehlo=True)
        if args.sharded:
            outcome = sharded_limited(check_annotated, text, seed)
        else:
            outcome = limited(text, ways, seed)
        found += outcome.kind not in _FINE
        print(f"{path}: {outcome.kind}: {outcome.detail[:400]} {outcome.notes or ''}")
        if args.minimise and outcome.kind not in _FINE:
            print(minimise(text, outcome.kind, outcome.signature, seed, use_xla, ways.target))
    if xla is not None:
        xla.close()
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
