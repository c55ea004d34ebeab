"""A program of a mesh put on another number of devices: the mesh's first axes grow or shrink."""

from __future__ import annotations

import math
from dataclasses import replace

from compiler.diagnostics import DeviceCountError
from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.escapes import quote, unquote
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.sharding.mesh import Mesh
from compiler.sharding.shardy_text import mesh_text, parse_meshes

_MESHES = "xla.sdy.meshes"


def resize_mesh(module: HloModule, count: int) -> None:
    """Make a module's meshes ones of `count` devices; global shapes and names of axes stay.

    What is to say of a single device is nothing. Raises DeviceCountError where shardings name devices
    (GSPMD's ``sharding=`` without a mesh), where exchanges do, and where a mesh has no such size.
    """
    header = module.attrs.get("frontend_attributes")
    text = header.get(_MESHES) if isinstance(header, FrontendAttributes) else None
    if text is None or not isinstance(header, FrontendAttributes):
        raise DeviceCountError(
            f"HloModule {module.name}: its shardings are no mesh's, so it has one number of devices; "
            "export it with Shardy's meshes to put it on others"
        )
    known = parse_meshes(unquote(f'"{text}"') if "\\" in text else text)
    meshes = [f"{name} = {mesh_text(_resized(mesh, count))}" for name, mesh in known.items()]
    made = "{" + ", ".join(meshes) + "}"
    items = tuple(
        (key, quote(made) if key == _MESHES and "\\" in text else made if key == _MESHES else value)
        for key, value in header.items
    )
    module.attrs["frontend_attributes"] = FrontendAttributes(items)
    module.attrs["num_partitions"] = count
    for computation in module.computations.values():
        for instr in computation:
            _refuse_named_devices(instr)
            # Shardy's text says it, over the mesh as it is now
            instr.attrs.pop("sharding", None)


def _refuse_named_devices(instr: HloInstruction) -> None:
    """What an exchange in a region of device-own shapes says is of one number of devices."""
    if any(instr.attrs.get(name) for name in ("replica_groups", "source_target_pairs")):
        raise DeviceCountError(
            f"%{instr.name}: {instr.opcode} names its devices, so the program has one number of them; "
            "export it anew for a slice of another size",
            instr.span,
        )


def _resized(mesh: Mesh, count: int) -> Mesh:
    """Shrunk from the first axis on, grown along the first."""
    if mesh.is_maximal:
        return mesh
    less = mesh.device_count // math.gcd(mesh.device_count, count)
    more = count // math.gcd(mesh.device_count, count)
    axes = []
    for name, size in mesh.axes:
        gone = math.gcd(size, less)
        less //= gone
        axes.append((name, size // gone))
    if less > 1 or tuple(mesh.device_ids) not in ((), tuple(range(mesh.device_count))):
        raise DeviceCountError(f"mesh @{mesh.name} of {dict(mesh.axes)} on {count} devices")
    first, size = axes[0]
    return replace(mesh, axes=((first, size * more), *axes[1:]), device_ids=())
