"""OpSharding -> ``{devices=[2,4]<=[8] last_tile_dim_replicate}``; OpMetadata -> ``{op_name="f/add"}``."""

from __future__ import annotations

from compiler.hlo.escapes import quote
from compiler.hlo.sharding import HloSharding, Tiles
from compiler.protobuf import Message

_KIND, _TILE_DIMS, _TILE_DEVICES, _TUPLE, _LAST_REPLICATED = 1, 3, 4, 5, 6
_METADATA, _LAST_DIMS, _IOTA, _IOTA_ORDER, _IN_GROUP, _GROUP, _GROUP_TYPE, _NAMED = (
    7, 8, 9, 10, 11, 12, 13, 14,
)  # fmt: skip
_KINDS = ("replicated", "maximal", "tuple", "tiled", "manual", "unknown", "unreduced")
_MAXIMAL, _TUPLE_KIND, _TILED = 1, 2, 3

_METADATA_TEXTS = {
    1: "op_type",
    2: "op_name",
    3: "source_file",
    12: "deduplicated_name",
    16: "scheduling_name",
}
_METADATA_NUMBERS = {
    4: "source_line", 17: "source_end_line", 18: "source_column", 19: "source_end_column",
    15: "stack_frame_id",
}  # fmt: skip


def metadata_text(metadata: Message) -> str:
    """``{op_name="..." source_line=3}``; empty where it says nothing that the text has a word for."""
    words = [
        f"{name}={quote(metadata.text(number))}"
        for number, name in _METADATA_TEXTS.items()
        if metadata.text(number)
    ]
    words += [
        f"{name}={metadata.integer(number)}"
        for number, name in _METADATA_NUMBERS.items()
        if metadata.integer(number)
    ]
    return "{" + " ".join(words) + "}" if words else ""


def sharding_text(sharding: Message) -> str:
    """The text of a sharding, braces included."""
    return _sharding(sharding).text()


def _sharding(sharding: Message) -> HloSharding:
    if _NAMED in sharding:
        return _named(sharding.message(_NAMED))
    kind = sharding.integer(_KIND)
    if kind == _TUPLE_KIND:
        return HloSharding.of_tuple(_sharding(part) for part in sharding.messages(_TUPLE))
    notes = tuple(filter(None, map(metadata_text, sharding.messages(_METADATA))))
    group = ""
    if sharding.integer(_IN_GROUP):
        word = "shard_like" if sharding.integer(_GROUP_TYPE) else "shard_as"
        group = f"{word} {sharding.integer(_GROUP)}"
    if kind == _TILED:
        tiles, subgroups = _tiles(sharding), _subgroups(sharding)
        return HloSharding(tiles=tiles, subgroups=subgroups, group=group, metadata=notes)
    if not 0 <= kind < len(_KINDS):
        message = f"type {kind} of OpSharding is not known"
        raise ValueError(message)
    device = sharding.integers(_TILE_DEVICES)[0] if kind == _MAXIMAL else 0
    return HloSharding(_KINDS[kind], device, group=group, metadata=notes)


def _tiles(sharding: Message) -> Tiles:
    iota, order = sharding.integers(_IOTA), sharding.integers(_IOTA_ORDER)
    dims, devices = sharding.integers(_TILE_DIMS), sharding.integers(_TILE_DEVICES)
    return Tiles(dims, iota, order or tuple(range(len(iota))), () if iota else devices)


def _subgroups(sharding: Message) -> tuple[str, ...]:
    if sharding.integer(_LAST_REPLICATED):
        return ("replicated",)
    return tuple(_KINDS[kind] for kind in sharding.integers(_LAST_DIMS))


def _named(sharding: Message) -> HloSharding:
    """A sharding over a mesh's axes; of a tuple, one for each of its arrays."""
    if 1 in sharding:
        return HloSharding.of_tuple(_named(part) for part in sharding.messages(1))
    head, names = _mesh(sharding.message(2))
    if not names:
        return HloSharding(named=f"{{{head}}}")
    dims = []
    for dim in sharding.messages(3):
        parts = [_axis(ref, names) for ref in dim.messages(1)]
        dims.append("{" + ", ".join(parts if dim.integer(2) else [*parts, "?"]) + "}")
    text = f"{head}, [{', '.join(dims)}]"
    for number, word in ((4, "replicated"), (5, "unreduced")):
        if number in sharding:
            refs = ", ".join(_axis(ref, names) for ref in sharding.messages(number))
            text += f", {word}={{{refs}}}"
    return HloSharding(named=f"{{{text}}}")


def mesh_groups_text(groups: Message) -> str:
    """``mesh['x'=2,'y'=4] {'x'}``: replica groups over axes of a mesh."""
    head, names = _mesh(groups.message(1))
    return f"{head} {{{','.join(_axis(ref, names) for ref in groups.messages(2))}}}"


def _mesh(mesh: Message) -> tuple[str, list[str]]:
    """A mesh's text and the names of its axes; none for one that is a single device."""
    axes = [(axis.text(1), axis.integer(2)) for axis in mesh.messages(1)]
    devices = mesh.integers(2)
    if not axes and devices:
        return f"maximal_mesh[device_id={devices[0]}]", []
    head = ",".join(f"'{name}'={size}" for name, size in axes)
    order = ",".join(map(str, devices))
    if 3 in mesh:  # a newer field: the order of devices as a transposed iota
        shape, perm = (",".join(map(str, mesh.message(3).integers(n))) for n in (1, 2))
        order = f"[{shape}]T({perm})" if perm else f"[{shape}]"
    order = f", device_ids=({order})" if order else ""
    return f"mesh[{head}]{order}", [name for name, _ in axes]


def _axis(ref: Message, names: list[str]) -> str:
    name = names[ref.integer(1)]
    if 2 not in ref:
        return f"'{name}'"
    part = ref.message(2)
    return f"'{name}':({part.integer(1)}){part.integer(2)}"
