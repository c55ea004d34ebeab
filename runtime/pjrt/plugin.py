"""How JAX finds the platform: a factory that makes the client when somebody asks for it by name."""

from __future__ import annotations

from typing import Any

from jaxlib import xla_client

from runtime.pjrt.interface import capsule

NAME = "tpuc"
"""What JAX_PLATFORMS and `jax.devices` call it."""


def make_client() -> Any:
    """Load the plug-in into jaxlib and make its client."""
    if not xla_client.pjrt_plugin_loaded(NAME):
        xla_client.load_pjrt_plugin_with_c_api(NAME, capsule())
    if not xla_client.pjrt_plugin_initialized(NAME):
        xla_client.initialize_pjrt_plugin(NAME)
    return xla_client.make_c_api_client(NAME, {}, None)
