"""What a trace file is by its name: the ending says which program is to read it."""

from __future__ import annotations

from pathlib import Path

from tpu_sim.isa.errors import TpucError

JSON_ENDING = ".json"
XSPACE_ENDING = ".xplane.pb"


class TraceNameError(TpucError, ValueError):
    """The name of a trace file has no ending that says what to write."""


def is_xspace_name(path: Path | str) -> bool:
    """Whether a trace of this name is an XSpace (`runtime.xspace`), not JSON (`runtime.trace`).

    A pipe or a device, whose name says nothing, gets JSON. Raises TraceNameError for another ending.
    """
    if str(path).endswith(XSPACE_ENDING):
        return True
    is_stream = Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir()
    if str(path).endswith(JSON_ENDING) or is_stream:
        return False
    raise TraceNameError(
        f"the name of a trace says what it is: want NAME{JSON_ENDING} (for ui.perfetto.dev) or "
        f"NAME{XSPACE_ENDING} (for xprof and TensorBoard), not {path}"
    )
