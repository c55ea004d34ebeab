"""How JAX finds the platform: a factory that makes the client when somebody asks for it by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from jaxlib import xla_client

from runtime.pjrt.interface import capsule

NAME = "tpuc"
"""What JAX_PLATFORMS and `jax.devices` call it."""


def make_client(names: Sequence[str] = (NAME,)) -> Any:
    """Load the plug-in into jaxlib under its names and make its client."""
    _load(names)
    return xla_client.make_c_api_client(NAME, {}, None)


def make_topology(name: str, options: dict[str, Any]) -> Any:
    """Load the plug-in into jaxlib and make a topology (`runtime.pjrt.topologies`)."""
    _load((NAME,))
    return xla_client.make_c_api_device_topology(capsule(), name, **options)


def _load(names: Sequence[str]) -> None:
    for name in names:
        if not xla_client.pjrt_plugin_loaded(name):
            xla_client.load_pjrt_plugin_with_c_api(name, capsule())
            if name == NAME:
                _register_profiler()
        if not xla_client.pjrt_plugin_initialized(name):
            xla_client.initialize_pjrt_plugin(name)


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
