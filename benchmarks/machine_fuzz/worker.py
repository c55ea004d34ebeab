"""A batch of seeds in a process of its own: a line of JSON when one begins and when it ends.

    python -m benchmarks.machine_fuzz.worker FIRST LAST FOLDER

Started by `benchmarks.seeds`. What differs is made small and written to the folder.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from pathlib import Path

from benchmarks.limits import SlowError, processor_seconds
from benchmarks.machine_fuzz.trial import assembly_of, smallest, try_seed
from tpu_sim.jit.installation import installed_library

_MEMORY_BYTES = 12 << 30  # mapped: of the chip's memories little is used
_SECONDS = 90.0


def main() -> None:
    """Run the seeds given on the command line."""
    first, last, out = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    installed_library(use_cache=True)
    os.environ["TPUC_NO_CACHE"] = "1"
    gc.freeze()  # modules: they are not looked through at each collection
    for seed in range(first, last):
        print(json.dumps({"begin": seed}), flush=True)
        kind, detail = _judged(seed, out)
        print(json.dumps({"seed": seed, "kind": kind, "detail": detail}), flush=True)
        gc.collect()  # of machines that are no longer used, the memories


def _judged(seed: int, out: Path) -> tuple[str, str]:
    """What became of a seed; its program as a file where that is wrong."""
    try:
        with processor_seconds(_SECONDS):
            case, verdict = try_seed(seed)
    except SlowError:
        return "wrong: hang", f"not done in {_SECONDS:.0f} s"
    if not verdict.is_wrong:
        return verdict.kind, ""
    text = assembly_of(case, verdict, smallest(case, verdict))
    (out / f"seed{seed}.tpu").write_text(text, encoding="utf-8")
    return f"wrong: {verdict.kind}", verdict.detail


if __name__ == "__main__":
    main()
