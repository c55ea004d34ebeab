"""Changes to a chip, written behind its name: ``v5e{vmem=32MiB,hbm_bandwidth=1.2TB/s}``.

A setting names a parameter of the chip file (``vregs``, ``slots.valu``, ``latencies.eup``) or one of the
words people think in:

    clock          the core clock; what takes its time outside of the core keeps its seconds
    hbm, vmem, smem  sizes
    hbm_bandwidth  the published rate; what a DMA gets of it keeps its share
    ici_bandwidth  of one link one way, likewise
    mxu_count      the slots that feed the MXUs grow with it

Sizes take B, kB, MB, GB, TB, KiB, MiB, GiB; rates these per second; times ns, us, ms, s; the clock Hz, kHz,
MHz, GHz. A number without a unit is in the unit of the chip file: bytes, cycles, bytes per cycle, Hz;
the bandwidths, which are no parameters of it, want one. A chip file with a ``base`` is read by the same
rules (`chip_files`).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tpu_sim.isa.geometry import WORD_BYTES

Tree = dict[str, object]

_FORM = re.compile(r"(?P<base>[^{}]+)(?:\{(?P<settings>[^{}]*)\})?(?P<tail>[^{}]*)")
_QUANTITY = re.compile(r"(?P<number>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*(?P<unit>[A-Za-z/]*)")
_SIZES = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_RATES = {f"{unit}/s": factor for unit, factor in _SIZES.items()}
_CLOCKS = {"Hz": 1, "kHz": 10**3, "MHz": 10**6, "GHz": 10**9}
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

_OUTSIDE_THE_CORE = (
    "dma_latency_cycles", "dma_wait_cycles", "call_overhead_cycles", "core_sync_cycles", "ici_hop_cycles",
    "ici_sync_cycles",
)  # fmt: skip
"""Times that HBM, the host and the links take: fitted or published in ns."""
_HBM_RATES = ("hbm_peak_bytes_per_cycle", "hbm_bytes_per_cycle")
_ICI_RATES = ("ici_peak_bytes_per_cycle", "ici_bytes_per_cycle")
_WORDS = {
    "clock": "clock_hz", "hbm": "hbm_bytes", "vmem": "vmem_bytes", "smem": "smem_words",
    "hbm_bandwidth": "hbm_peak_bytes_per_cycle", "ici_bandwidth": "ici_peak_bytes_per_cycle",
}  # fmt: skip
"""What people think in, and the parameter that each sets."""
WORDS = (*_WORDS, "mxu_count")
"""All that bring others with them."""


class SettingError(ValueError):
    """A setting is no change of a chip; the message names it."""


@dataclass(frozen=True)
class Setting:
    """One parameter and what it is set to, as written; whence the value is known."""

    key: str
    value: str
    provenance: str = "set"
    source: str = "set by hand"

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


def split_settings(name: str) -> tuple[str, tuple[Setting, ...]]:
    """A chip's name without its settings, and these in the order of their keys.

    Raises SettingError for text that is not of the form, or sets a key twice.
    """
    found = _FORM.fullmatch(name)
    if found is None or found["tail"]:
        raise SettingError(f"{name}: want CHIP or CHIP{{key=value,...}}")
    text = found["settings"]
    settings = [parse_setting(part) for part in text.split(",")] if text else []
    keys = [setting.key for setting in settings]
    for key in keys:
        if keys.count(key) > 1:
            raise SettingError(f"{name}: {key} is set twice")
    return found["base"], tuple(sorted(settings, key=lambda setting: setting.key))


def parse_setting(text: str) -> Setting:
    """``key=value``."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value):
        raise SettingError(f"setting {text!r}: want key=value")
    return Setting(key, value)


def with_settings(name: str, settings: Iterable[Setting]) -> str:
    """The name of a chip, or of a slice of it (``v5e:4x2``), changed further; later ones win."""
    found = _FORM.fullmatch(name)
    if found is None:
        raise SettingError(f"{name}: want CHIP or CHIP{{key=value,...}}")
    base, tail = found["base"], found["tail"]
    if found["settings"] is None:
        base, tail = _split_slice(base)
    before = split_settings(f"{base}{{{found['settings'] or ''}}}")[1]
    merged = {setting.key: setting for setting in (*before, *settings)}
    return named(base, merged.values()) + tail


def _split_slice(name: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.+?)(:\d+(?:x\d+)*|(?<!\.toml)-\d+)", name)
    return (found[1], found[2]) if found else (name, "")


def named(base: str, settings: Iterable[Setting]) -> str:
    """The name that says how a chip was changed."""
    ordered = sorted(settings, key=lambda setting: setting.key)
    return f"{base}{{{','.join(map(str, ordered))}}}" if ordered else base


def apply_settings(tree: Tree, settings: Iterable[Setting]) -> Tree:
    """The tree of a chip file with settings applied, in whatever order they are given.

    Entries that are set have the provenance of their setting; those that follow from others are of
    provenance ``set`` and say so. What is set by itself does not follow from another.
    Raises SettingError with what is wrong, also where two settings are of one parameter.
    """
    editor = _Editor(tree)
    ordered = sorted(settings, key=_turn)
    by_parameter: dict[str, str] = {}
    for setting in ordered:
        parameter = _WORDS.get(setting.key, setting.key)
        other = by_parameter.setdefault(parameter, setting.key)
        if other != setting.key:
            raise SettingError(f"{other} and {setting.key} both set {parameter}: want one of them")
    for setting in ordered:
        try:
            editor.apply(setting)
        except ValueError as error:
            raise SettingError(f"setting {setting}: {error}") from None
        except ArithmeticError:  # of a huge number, or of a chip file that has 0 for what is scaled
            raise SettingError(f"setting {setting}: what follows from it is no number") from None
    return editor.tree


def _turn(setting: Setting) -> tuple[int, str]:
    """The clock, by which times are counted, then what others follow from, then the rest."""
    if setting.key in ("clock", "clock_hz"):
        return 0, setting.key
    return (1 if setting.key in (*_WORDS, "mxu_count") else 2), setting.key


class _Editor:
    """Changes a copy of a chip's tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree: Tree = {
            key: dict(value) if isinstance(value, dict) else value for key, value in tree.items()
        }
        self._known_by = Setting("", "")  # whence what is written now is known
        self._words: dict[str, Callable[[str], None]] = {
            "clock": self._clock,
            "clock_hz": self._clock,
            "hbm": lambda text: self._write("hbm_bytes", _measured(text, _SIZES)),
            "vmem": lambda text: self._write("vmem_bytes", _measured(text, _SIZES)),
            "smem": lambda text: self._write("smem_words", _measured(text, _SIZES) / WORD_BYTES),
            "hbm_bandwidth": lambda text: self._bandwidth(text, *_HBM_RATES),
            "ici_bandwidth": lambda text: self._bandwidth(text, *_ICI_RATES),
            "mxu_count": self._mxu_count,
        }

    def apply(self, setting: Setting) -> None:
        """Raises ValueError with what is wrong."""
        self._known_by = setting
        if setting.key in self._words:
            self._words[setting.key](setting.value)
            return
        if setting.key not in parameters_of(self.tree):
            known = [*self._words, *parameters_of(self.tree)]
            near = difflib.get_close_matches(setting.key, known, 1)
            words = f", want one of {', '.join(self._words)} or a field of the chip's file"
            raise ValueError(
                "unknown parameter" + (f", did you mean {near[0]}?" if near else words)
            )
        self._write(setting.key, self._number(setting))

    def _number(self, setting: Setting) -> float:
        """The value in the unit of the chip file."""
        key, text = setting.key, setting.value
        if key.endswith("_bytes_per_cycle"):
            return self._per_cycle(text)
        if key.endswith("_cycles") or key.startswith("latencies."):
            return _measured(text, _TIMES, lambda seconds: round(seconds * self._read("clock_hz")))
        if key.endswith("_bytes"):
            return _measured(text, _SIZES)
        return _measured(text, {})

    def _per_cycle(self, text: str) -> float:
        return _measured(text, _RATES, lambda rate: rate / self._read("clock_hz"))

    def _clock(self, text: str) -> None:
        clock, before = _measured(text, _CLOCKS), self._read("clock_hz")
        if clock <= 0:
            raise ValueError("want a clock above 0")
        self._write("clock_hz", clock)
        if clock == before:
            return
        follows = f"follows from the clock, {clock / 1e9:g} GHz"
        for key in _OUTSIDE_THE_CORE:
            self._write(key, round(self._read(key) * clock / before), follows)
        for key in (*_HBM_RATES, *_ICI_RATES):
            self._write(key, self._read(key) * before / clock, follows)

    def _bandwidth(self, text: str, peak: str, got: str) -> None:
        if not unit_of(text):
            raise ValueError(f"want a unit, one of {', '.join(_RATES)}")
        share = self._read(got) / self._read(peak)
        rate = self._per_cycle(text)
        self._write(peak, rate)
        self._write(got, rate * share, f"{share:.3g} of the published rate, as before")

    def _mxu_count(self, text: str) -> None:
        count, before = _measured(text, {}), self._read("mxu_count")
        self._write("mxu_count", count)
        slots = max(1, round(self._read("slots.mxu") * count / before))
        self._write("slots.mxu", slots, "as many for each MXU as before")

    def _read(self, key: str) -> float:
        entry = self._entry(key)
        value = entry.get("value") if isinstance(entry, dict) else None
        if not isinstance(value, int | float):
            raise ValueError(f"the chip that it changes has no number for {key}")
        return float(value)

    def _entry(self, key: str) -> object:
        table, _, inner = key.rpartition(".")
        holder = self.tree.get(table) if table else self.tree
        return holder.get(inner) if isinstance(holder, dict) else None

    def _write(self, key: str, value: float, follows: str = "") -> None:
        """Write a value of the setting's own, or one that follows from it and why."""
        table, _, inner = key.rpartition(".")
        holder = self.tree.get(table) if table else self.tree
        assert isinstance(holder, dict)
        setting = self._known_by
        provenance, source = ("set", follows) if follows else (setting.provenance, setting.source)
        holder[inner] = {"value": value, "provenance": provenance, "source": source}


def parameters_of(tree: Tree) -> Iterator[str]:
    """The parameters of a chip file, those of its tables with the table's name before."""
    for key, entry in tree.items():
        if isinstance(entry, dict) and "value" in entry:
            yield key
        elif isinstance(entry, dict):
            yield from (f"{key}.{inner}" for inner in entry)


def unit_of(text: str) -> str:
    """The unit of a quantity, empty for a plain number; raises ValueError for text that is neither."""
    return _quantity(text)["unit"]


def _quantity(text: str) -> re.Match[str]:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r} is no quantity: want a number, with a unit or without (16MiB, 1.2TB/s, 940MHz, 500ns)"
        )
    return found


def _measured(
    text: str, units: dict[str, float] | dict[str, int], scale: Callable[[float], float] = float
) -> float:
    """A number, or a quantity in one of the units, which `scale` then turns into the file's unit."""
    found = _quantity(text)
    number, unit = float(found["number"]), found["unit"]
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is beyond what a number can be")
    if not unit:
        return number
    if unit not in units:
        known = f"want one of {', '.join(units)}" if units else "it is a plain number"
        raise ValueError(f"unit {unit!r}: {known}")
    return scale(number * units[unit])
