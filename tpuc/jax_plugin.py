"""The entry point `jax_plugins`: registers the platform "tpuc" with JAX. See docs/jax.md.

Nothing heavy is imported before somebody asks for the platform, by ``JAX_PLATFORMS=tpuc`` or
``jax.config.update("jax_platforms", "tpuc")``: JAX on its own does what it did before.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

NAME = "tpuc"
_log = logging.getLogger(__name__)


def initialize() -> None:
    """Register the platform. What goes wrong is one line of the log, and JAX goes on without it."""
    try:
        bridge = importlib.import_module("jax._src.xla_bridge")
        config = importlib.import_module("jax").config
        bridge.register_backend_factory(NAME, _client, priority=-1, fail_quietly=True)
    except Exception as error:
        _log.warning("tpuc: this jaxlib (%s) is not one that tpuc knows: %s", _version(), error)
        return
    if config.jax_platforms == NAME:  # callbacks and host arrays need the CPU too, as on a real TPU
        config.update("jax_platforms", f"{NAME},cpu")


def _version() -> str:
    try:
        return str(importlib.import_module("jaxlib.version").__version__)
    except ImportError:
        return "none"


def _client() -> Any:
    """Make the client; JAX asks for those of all platforms when the user has named none."""
    config = importlib.import_module("jax").config
    if NAME not in (config.jax_platforms or "").split(","):
        raise RuntimeError(
            'set JAX_PLATFORMS=tpuc, or call jax.config.update("jax_platforms", "tpuc,cpu") first'
        )
    return importlib.import_module("runtime.pjrt.plugin").make_client()
