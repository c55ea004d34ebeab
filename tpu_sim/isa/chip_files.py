"""What a chip file with a ``base`` says, as the settings that change this base (`chip_settings`).

Beside ``base`` and ``name`` stands what differs, a parameter of chip files or a word of `chip_settings`:

    vmem = "32MiB"                                      as behind a chip's name
    vmem_bytes = 33554432                               a number, in the unit of the parameter
    hbm_bandwidth = {value = "1.2TB/s", provenance = "assumed", source = "a guess"}
    [slots]                                             also slots.valu = 8
    valu = 8
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from tpu_sim.isa.chip_settings import Setting, SettingError, Tree

TABLES = ("slots", "latencies")
_WORDS = ("base", "name")
_ENTRY = {"value", "provenance", "source"}


def settings_of(tree: Tree, file: str) -> list[Setting]:
    """The settings that the entries beside ``base`` and ``name`` are; ``file`` is the source of those that
    name none. Raises SettingError for an entry that is none."""
    return [_setting(key, entry, file) for key, entry in _entries(tree)]


def check_words(tree: Tree) -> None:
    """Raise SettingError for a string whose key is not ``base`` or ``name``, but nearly."""
    for key, value in tree.items():
        near = difflib.get_close_matches(key.lower(), _WORDS, 1)
        if isinstance(value, str) and key not in _WORDS and near:
            raise SettingError(f"parameter {key} is unknown, did you mean {near[0]}?")


def _entries(tree: Tree) -> Iterator[tuple[str, object]]:
    for key, entry in tree.items():
        if key in _WORDS:
            continue
        if key not in TABLES:
            yield key, entry
        elif isinstance(entry, dict):
            yield from ((f"{key}.{inner}", value) for inner, value in entry.items())
        else:
            raise SettingError(f"parameter {key}: want a table, [{key}]")


def _setting(key: str, entry: object, file: str) -> Setting:
    fields = entry if isinstance(entry, dict) else {"value": entry}
    for word in fields:
        if word not in _ENTRY:
            near = difflib.get_close_matches(word, _ENTRY, 1)
            hint = f", did you mean {near[0]}?" if near else ", want value, provenance, source"
            raise SettingError(f"parameter {key}: {word} is unknown{hint}")
    value = fields.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SettingError(
            f"parameter {key}: want a number, a quantity such as '32MiB', or "
            "{value = .., provenance = .., source = ..}"
        )
    provenance = str(fields.get("provenance", "set"))
    default = f"set in {file}" if provenance == "set" else ""
    return Setting(key, str(value), provenance, str(fields.get("source") or default))
