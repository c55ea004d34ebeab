"""The array API standard's own tests (data-apis/array-api-tests) on `tpuc.numpy`.

    python -m benchmarks.array_api PATH                         and a section in docs/tpuc-numpy.md
    python -m benchmarks.array_api PATH --results FILE          outcomes are kept; a later run does the rest
    python -m benchmarks.array_api PATH --results FILE --again  those that failed run again
    python -m benchmarks.array_api PATH -k sorting              a part, printed only

PATH is a checkout with its submodule, its requirements.txt installed.
What is not run is in `SKIPPED`, with reasons. Each eager call on
arrays of a new shape is compiled, so that a run of few examples takes an hour on two cores; arrays are small.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.array_api.plugin import VARIABLE, VERSION, read
from benchmarks.sections import put_section, version
from tpuc.numpy import __array_api_version__

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tpuc-numpy.md"
_HAVE_RUN = (0, 1)  # pytest's exit codes of tests that ran, all well or not
LARGEST = 128
"""Elements of the largest array that a test makes."""

_NO_CHANGE = "`x[i] = v`: arrays do not change"
SKIPPED: dict[str, str] = {
    "array_api_tests/test_array_object.py::test_setitem": _NO_CHANGE,
    "array_api_tests/test_array_object.py::test_setitem_masking": _NO_CHANGE,
    "array_api_tests/test_creation_functions.py::test_asarray_arrays": _NO_CHANGE
    + " (the test changes what was not copied)",
}
"""Tests that are not run, by the suite's names, and why."""

REASONS: dict[str, str] = {
    r"real\(x|imag\(x": "a complex function at infinities, NaN or signed zeros",
    r"floor_divide|__floordiv__|__ifloordiv__": "NumPy's value, NaN or -1, is not the standard's",
    r"dunder_dlpack": "asked for DLPack without a copy, which is refused by name",
    r"is_integer\(\)": "the test takes an f64 that f32 does not hold",
}
"""Why tests fail whose names match."""

Outcomes = dict[str, dict[str, str]]


def run(path: Path, results: Path, examples: int, jobs: int, chosen: str) -> None:
    """Run what has no outcome yet, in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        skips = Path(folder) / "skips.txt"
        skips.write_text("".join(f"{name}\n" for name in SKIPPED))
        command = [
            sys.executable, "-m", "pytest", "-q", "array_api_tests", "--disable-deadline", "--tb=short",
            "-p", "no:cacheprovider", "-p", "benchmarks.array_api.plugin", "--max-examples", str(examples),
            "--skips-file", str(skips),
            *(["-n", str(jobs)] if jobs > 1 else []), *(["-k", chosen] if chosen else []),
        ]  # fmt: skip
        code = subprocess.run(command, cwd=path, env=_environment(results), check=False).returncode
        if code not in _HAVE_RUN:
            sys.exit(f"pytest ended with {code}: nothing is written")


def _environment(results: Path) -> dict[str, str]:
    """Programs of a shape that comes once are not kept on disk."""
    return os.environ | {
        "ARRAY_API_TESTS_MODULE": "tpuc.numpy",
        "ARRAY_API_TESTS_VERSION": __array_api_version__,
        "ARRAY_API_TESTS_SKIP_DTYPES": "float64,complex128",
        "ARRAY_API_TESTS_MAX_ARRAY_SIZE": str(LARGEST),
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        "TPUC_NO_CACHE": "1",
        VARIABLE: str(results.resolve()),
        VERSION: version(),
    }


def summary(outcomes: Outcomes) -> str:
    """The counts, by file, and what failed, with the reason where it is known."""
    total = Counter(found["outcome"] for found in outcomes.values())
    lines = [
        f"**{total['passed']} of {len(outcomes)} pass**; {total['failed']} fail, {total['skipped']} are "
        "skipped (below, or of another version of the standard).",
        "",
        "| file | passed | failed | skipped |",
        "|---|---|---|---|",
    ]
    for file in sorted({_file(test) for test in outcomes}):
        count = Counter(o["outcome"] for test, o in outcomes.items() if _file(test) == file)
        lines.append(f"| {file} | {count['passed']} | {count['failed']} | {count['skipped']} |")
    failed = sorted(test for test, found in outcomes.items() if found["outcome"] == "failed")
    if failed:
        lines += ["", "| fails | why |", "|---|---|"]
        lines += [
            f"| {_short(test)} | {_why(test, outcomes[test]['message'])} |" for test in failed
        ]
    lines += ["", "| not run | why |", "|---|---|"]
    lines += [f"| {_short(test)} | {why} |" for test, why in SKIPPED.items()]
    return "\n".join(lines)


def _file(test: str) -> str:
    return test.split("::")[0].removeprefix("array_api_tests/").removesuffix(".py")


def _short(test: str) -> str:
    return _cell(test.split("::", 1)[1])


def _why(test: str, message: str) -> str:
    known = (reason for pattern, reason in REASONS.items() if re.search(pattern, test))
    return ": ".join(part for part in (next(known, ""), _cell(message)) if part)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")[:160]


def _suite_version(path: Path) -> str:
    command = ["git", "log", "-1", "--format=%h of %as"]
    found = subprocess.run(command, cwd=path, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "of unknown version"


def _versions(outcomes: Outcomes) -> str:
    """Of what the outcomes tell: kept ones may be of earlier versions."""
    return "; ".join(sorted({found["version"] for found in outcomes.values()}))


def _forget_failures(results: Path) -> None:
    kept = [found for found in read(results).values() if found["outcome"] != "failed"]
    results.write_text("".join(json.dumps(line) + "\n" for line in kept))


def main() -> None:
    """Run the suite; write the section if it was the whole of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="a checkout of data-apis/array-api-tests")
    parser.add_argument("--examples", type=int, default=3, help="of each test (default 3)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--results", type=Path, help="where outcomes are kept")
    parser.add_argument("--again", action="store_true", help="what failed before runs again")
    parser.add_argument("-k", dest="chosen", default="", help="tests by name, as pytest's -k")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder) / "results.jsonl"
        if options.again:
            _forget_failures(results)
        run(options.path, results, options.examples, options.jobs, options.chosen)
        read_again = read(results)
        text = summary(read_again)
    print(text)
    if options.chosen:
        return
    made = (
        f"{_versions(read_again)}: `python -m benchmarks.array_api PATH --examples {options.examples}`, "
        f"array-api-tests {_suite_version(options.path)},\nstandard {__array_api_version__}, arrays of at "
        f"most {LARGEST} elements, without the types f64 and c128, which no chip has.\n\n"
    )
    put_section("array-api", made + text, PAGE, "")


if __name__ == "__main__":
    main()
