"""How JAX finds the platform: a factory that makes the client when somebody asks for it by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from jaxlib import xla_client

from runtime.pjrt.interface import capsule

NAME = "tpuc"
"""What JAX_PLATFORMS and `jax.devices` call it."""


def make_client() -> Any:
    """Load the plug-in into jaxlib and make its client."""
    if not xla_client.pjrt_plugin_loaded(NAME):
        xla_client.load_pjrt_plugin_with_c_api(NAME, capsule())
        _register_profiler()
    if not xla_client.pjrt_plugin_initialized(NAME):
        xla_client.initialize_pjrt_plugin(NAME)
    return xla_client.make_c_api_client(NAME, {}, None)


def _register_profiler() -> None:
    """Let `jax.profiler` know of the plug-in's; the function has moved from one jaxlib to another."""
    for module in ("jaxlib._profiler", "jaxlib._jax", "jaxlib.xla_extension"):
        try:
            home = import_module(module)
        except ImportError:
            continue
        home = getattr(home, "profiler", home)
        if hasattr(home, "register_plugin_profiler"):
            home.register_plugin_profiler(capsule())
            return
