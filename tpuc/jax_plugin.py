"""The entry point `jax_plugins`: registers the platforms "tpuc" and "tpu" with JAX. See docs/jax.md.

Nothing heavy is imported before somebody asks for the platform, by ``JAX_PLATFORMS=tpuc`` or
``jax.config.update("jax_platforms", "tpuc")``: JAX on its own does what it did before.

Programs written for TPUs say "tpu", so where the library of real ones (libtpu) is not installed that
name is ours, too. Both names stand for one client.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from functools import partial
from typing import Any

from tpu_sim.isa.collector import no_cyclic_gc

NAME = "tpuc"
REAL_NAME = "tpu"
"""JAX's own name for TPUs: taken where nothing else could answer to it."""

_log = logging.getLogger(__name__)


def initialize() -> None:
    """Register the platforms. What goes wrong is one line of the log, and JAX goes on without them."""
    names = [NAME] if _has_libtpu() else [NAME, REAL_NAME]
    try:
        bridge = importlib.import_module("jax._src.xla_bridge")
        config = importlib.import_module("jax").config
        for name in names:
            make = partial(_client, name, names)
            bridge.register_backend_factory(
                name, make, priority=-1, fail_quietly=True, make_topology=_topology
            )
    except Exception as error:
        _log.warning("tpuc: this jaxlib (%s) is not one that tpuc knows: %s", _version(), error)
        return
    asked = (config.jax_platforms or "").split(",")
    ours = [name for name in asked if name in names]
    if not ours:
        return
    after = asked.index(ours[-1]) + 1
    others = [name for name in names if name not in ours]
    # Callbacks and host arrays need the CPU too, as on a real TPU.
    behind = asked[after:] or ["cpu"]
    config.update("jax_platforms", ",".join([*asked[:after], *others, *behind]))


def _has_libtpu() -> bool:
    """Whether JAX would find the library of real TPUs."""
    return "TPU_LIBRARY_PATH" in os.environ or importlib.util.find_spec("libtpu") is not None


def _version() -> str:
    try:
        return str(importlib.import_module("jaxlib.version").__version__)
    except ImportError:
        return "none"


def _client(name: str, names: list[str]) -> Any:
    """The client; JAX asks for those of all platforms when the user has named none."""
    asked = (importlib.import_module("jax").config.jax_platforms or "").split(",")
    if name not in asked:
        raise RuntimeError(
            'set JAX_PLATFORMS=tpuc, or call jax.config.update("jax_platforms", "tpuc,cpu") first'
        )
    made = getattr(importlib.import_module("jax._src.xla_bridge"), "_backends", {})
    for other in names:
        if other in made:  # JAX makes the platforms one after another
            return made[other]
    with no_cyclic_gc():  # importing makes many objects that all stay, beside all that JAX has
        return importlib.import_module("runtime.pjrt.plugin").make_client(names)


def _topology(name: str, **options: Any) -> Any:
    """A slice to compile for, ``v5e:4x4``, without being asked for as a platform."""
    return importlib.import_module("runtime.pjrt.plugin").make_topology(name, options)
