"""Chips: every parameter of the machine model, read from a TOML file, each with its provenance.

A chip file holds one table per parameter, ``key = {value = .., provenance = .., source = ..}``.
``provenance`` is ``published`` (then `source` says where), ``fitted`` (to which points), ``assumed``,
or ``set`` by whoever changed the chip. A file may start from another chip: ``base = "v5e"`` and only
what differs (`chip_files`). A name may be followed by changes, ``v5e{vmem=32MiB}``: one set of rules
(`chip_settings`) says for both what follows from what. One `Chip` describes one TensorCore, which is
what a program runs on.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path

from tpu_sim.isa.chip_files import TABLES as _TABLES
from tpu_sim.isa.chip_files import check_words, settings_of
from tpu_sim.isa.chip_limits import complaints, units_of_mxu
from tpu_sim.isa.chip_settings import (
    Setting,
    SettingError,
    apply_settings,
    named,
    parameters_of,
    split_settings,
)
from tpu_sim.isa.errors import TpucError
from tpu_sim.isa.geometry import UNIT_DIM
from tpu_sim.isa.instruction import ROWS, Slot
from tpu_sim.isa.rows import mxu as _mxu_rows

_DATA = Path(__file__).parent / "chip_data"
_ALIASES = {"tpu7x": "7x", "v7x": "7x", "v5litepod": "v5e", "v5p-core": "v5p"}
_PROVENANCES = ("published", "fitted", "assumed", "set")
_PASS_FLOPS = 2 * 16 * UNIT_DIM * UNIT_DIM

assert _mxu_rows.VMATMUL.name in ROWS  # the table is full: latency classes are read from it below


class ChipError(TpucError, ValueError):
    """A chip name is unknown or its file is wrong; the message names the parameter."""


class ChipFileError(ChipError):
    """A chip file cannot be read, or what it says is no chip."""


@dataclass(frozen=True)
class Chip:
    """One TensorCore's parameters. Cycles are core clock cycles.

    `slots` counts issue slots by `Slot.value`; `latencies` gives cycles by latency class.
    Matrix instructions name *units* of 128x128: an MXU of `mxu_dim` 256 is four of them behind one
    issue slot. `matmul_cycles` is how long a 16-row ``vmatmul`` occupies its unit at the published
    peak, `mxu_sustained` the share of that rate that passes keep up. `load_indexed_cycles` and
    `store_indexed_cycles` are the cycles ``vld.idx`` / ``vst.idx`` hold their slot.
    `int8_rate` is how many products of 8-bit integers a pass makes for each of bf16; 0: it takes none.
    `hbm_peak_bytes_per_cycle` is the published rate, `hbm_bytes_per_cycle` the one a DMA gets, and
    `hbm_copy_efficiency` the share of that which is left when it both reads and writes HBM.
    `call_overhead_cycles` is the floor of a kernel's launch, `core_sync_cycles` what it takes the cores of
    a device that shared one to know that all are through.
    Links between chips (ICI): rates are those of one link one way, as published and as a transfer gets
    it; a byte takes `ici_hop_cycles` over each, a flag alone `ici_sync_cycles` to a neighbour.
    `ici_wrap_size`, `ici_wrap_whole`: see `tpu_sim.isa.torus`. `cloud_units` is what a chip counts in
    the cloud's names of slices, 0 if none is known. What work costs in energy (`runtime.energy`): a
    multiply-add of the MXU, an operation on an element, a byte of HBM, a byte over a link, and what a core
    takes whatever it does.
    """

    name: str
    clock_hz: float
    cores_per_device: int
    devices_per_chip: int
    mxu_count: int
    mxu_dim: int
    matmul_cycles: int
    mxu_sustained: float
    int8_rate: int
    vregs: int
    vmasks: int
    sregs: int
    mrf_entries: int
    eup_entries: int
    xlu_entries: int
    hbm_bytes: int
    hbm_peak_bytes_per_cycle: float
    hbm_bytes_per_cycle: float
    hbm_copy_efficiency: float
    dma_setup_cycles: int
    dma_latency_cycles: int
    dma_issue_cycles: int
    dma_wait_cycles: int
    vmem_bytes: int
    smem_words: int
    load_indexed_cycles: int
    store_indexed_cycles: int
    loop_overhead_cycles: int
    call_overhead_cycles: int
    core_sync_cycles: int
    ici_dimensions: int
    ici_links: int
    ici_peak_bytes_per_cycle: float
    ici_bytes_per_cycle: float
    ici_hop_cycles: int
    ici_sync_cycles: int
    ici_setup_cycles: int
    ici_wrap_size: int
    ici_wrap_whole: int
    host_chips: int
    cloud_units: int
    most_chips: int
    mac_picojoules: float
    vector_picojoules: float
    hbm_picojoules_per_byte: float
    ici_picojoules_per_byte: float
    idle_watts: float
    slots: dict[str, int] = field(hash=False)
    latencies: dict[str, int] = field(hash=False)
    spec: dict[str, str] = field(hash=False, compare=False)

    @property
    def family(self) -> str:
        """The chip's name without what was changed of it."""
        return self.name.partition("{")[0]

    @property
    def vmem_rows(self) -> int:
        """Rows of 512 bytes in VMEM."""
        return self.vmem_bytes // 512

    @property
    def units_per_mxu(self) -> int:
        """128x128 units of one MXU."""
        return units_of_mxu(self.mxu_dim)

    @property
    def mxu_units(self) -> int:
        """128x128 units that matrix instructions may name."""
        return self.mxu_count * self.units_per_mxu

    @property
    def peak_flops(self) -> float:
        """bf16 floating-point operations per second of this core, as published."""
        return self.mxu_units * _PASS_FLOPS / self.matmul_cycles * self.clock_hz

    @property
    def device_peak_flops(self) -> float:
        """The same of all cores of a device."""
        return self.peak_flops * self.cores_per_device

    @property
    def device_hbm_peak_bytes_per_cycle(self) -> float:
        """Bytes a cycle that all cores of a device together can move to or from its HBM, as published."""
        return self.hbm_peak_bytes_per_cycle * self.cores_per_device

    @property
    def device_mxu_units(self) -> int:
        """128x128 units of all cores of a device."""
        return self.mxu_units * self.cores_per_device

    def slot_count(self, slot: Slot) -> int:
        """How many instructions of `slot` one bundle may hold."""
        return self.slots[slot.value]

    @property
    def transpose_units(self) -> int:
        """Transpose units: one behind each XLU slot."""
        return self.slot_count(Slot.XLU)

    def latency(self, latency_class: str) -> int:
        """Cycles from issue until a result of this latency class may be read."""
        return self.latencies[latency_class]


def load_chip(name_or_path: str) -> Chip:
    """The chip called `name_or_path` (``v5e``, ``tpu7x``, ...), or read from a ``.toml`` path.

    A file is read each time, so that a chip is always what its file says now.
    """
    try:
        base, settings = split_settings(str(name_or_path))
    except SettingError as error:
        raise ChipError(str(error)) from None
    if not _is_file_name(base):
        return _shipped(base, settings)
    try:
        return _chip_of_file(base, settings)
    except ChipError as error:
        if settings and _is_sound(base):
            raise  # what is wrong stands behind the name
        raise ChipFileError(str(error)) from None


def _chip_of_file(file: str, settings: tuple[Setting, ...]) -> Chip:
    name = named(file, settings)
    chip = _chip_from(_changed(_read_tree(file, ()), settings), name)
    try:
        differs = _passes_for_another(chip)
    except ChipError as error:
        raise ChipError(f"{name}: {error}") from None
    if differs:
        raise ChipError(f'{name}: {differs}: give it a name of its own in the file (name = "mine")')
    return chip


def _is_sound(file: str) -> bool:
    """Whether a chip file is one by itself."""
    try:
        _chip_of_file(file, ())
    except ChipError:
        return False
    return True


def consistent(chip: Chip) -> Chip:
    """The chip, however it was made. Raises `ChipError` where numbers do not go together, or where it has
    the name of a chip that comes with the package and is another."""
    scalars = {
        f.name: (getattr(chip, f.name), str(f.type))
        for f in fields(Chip)
        if f.name not in ("name", "spec", *_TABLES)
    }
    for complaint in complaints(scalars, {table: getattr(chip, table) for table in _TABLES}):
        raise ChipError(f"chip {chip.name}: {complaint}")
    if differs := _passes_for_another(chip):
        raise ChipError(
            f'{differs}: give it a name of its own (dataclasses.replace(chip, name="mine", ..))'
        )
    return chip


def _passes_for_another(chip: Chip) -> str:
    """What tells a chip from the one of its name that comes with the package; empty if nothing does."""
    try:
        base = split_settings(chip.name)[0]
    except SettingError as error:
        raise ChipError(f"the chip's name {chip.name!r}: {error}") from None
    if not _is_known(base):
        return ""
    known = load_chip(chip.name)
    for f in fields(Chip):
        if f.compare and f.name != "name" and getattr(known, f.name) != getattr(chip, f.name):
            return f"{chip.name} has another {f.name} than this chip"
    return ""


def _is_known(name: str) -> bool:
    return name in _ALIASES or name in chip_names()


def chip_names() -> list[str]:
    """Names of the chips that come with the package."""
    return sorted(path.stem for path in _DATA.glob("*.toml"))


def parameter_names() -> list[str]:
    """What a chip file gives, ``vregs`` or ``slots.valu``."""
    return list(parameters_of(_read_tree(chip_names()[0], ())))


def _is_file_name(name: str) -> bool:
    return name.endswith(".toml")


@lru_cache(maxsize=1024)
def _shipped(name: str, settings: tuple[Setting, ...]) -> Chip:
    return _chip_from(_changed(_read_tree(name, ()), settings), named(name, settings))


def _changed(tree: dict[str, object], settings: tuple[Setting, ...]) -> dict[str, object]:
    """The tree with settings applied; its name says what they are."""
    if not settings:
        return tree
    try:
        changed = apply_settings(tree, settings)
    except SettingError as error:
        raise ChipError(str(error)) from None
    return {**changed, "name": named(str(tree.get("name")), settings)}


@lru_cache(maxsize=64)
def _parsed(text: str) -> dict[str, object]:
    return tomllib.loads(text)


def _wanted() -> str:
    return f"want one of {', '.join(chip_names())}, or the path of a .toml file"


def _near(name: str) -> str:
    """The chips whose names are like this one, in whatever case."""
    known = [*chip_names(), *_ALIASES]
    small = name.lower()
    near = [small] if small in known else sorted(difflib.get_close_matches(small, known))
    return f"did you mean {' or '.join(near)}? " if near else ""


def _read_tree(name: str, seen: tuple[str, ...]) -> dict[str, object]:
    shipped = _DATA / f"{_ALIASES.get(name, name)}.toml"
    path = Path(name).resolve() if _is_file_name(name) else shipped
    if _is_file_name(name) and not path.is_file():
        raise ChipError(f"cannot read the chip file {name}: there is no such file")
    if not path.is_file():
        raise ChipError(f"unknown chip {name!r}: {_near(name)}{_wanted()}")
    if str(path) in seen:
        raise ChipError(f"{name}: chip files form a cycle through `base`")
    try:
        tree = dict(_parsed(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:
        raise ChipError(f"{name}: not a TOML file: it is no UTF-8 text") from error
    except ValueError as error:  # of TOML, or a number of thousands of digits
        raise ChipError(f"{name}: not a TOML file: {error}") from error
    except RecursionError as error:
        raise ChipError(f"{name}: nested too deep") from error
    try:
        check_words(tree)
        settings = settings_of(tree, path.name) if "base" in tree else []
    except SettingError as error:
        raise ChipError(f"{name}: {error}") from None
    if "base" not in tree:
        return tree
    try:
        base, before = split_settings(str(tree["base"]))
        if _is_file_name(base):
            base = str(path.parent / base)
        elif not _is_known(base):
            raise SettingError(f"base {base!r}: {_wanted()}")
        below = _read_tree(base, (*seen, str(path)))
        changed = apply_settings(apply_settings(below, before), settings)
    except SettingError as error:
        raise ChipError(f"{name}: {error}") from None
    # no figure of a changed chip passes for one of the chip that it was made of
    default = path.name if _is_known(path.stem) else path.stem
    return {**changed, "name": tree.get("name", default)}


def _chip_from(tree: dict[str, object], file: str) -> Chip:
    spec: dict[str, str] = {}
    tree = dict(tree)
    name = tree.pop("name", None)
    if name is None:
        raise ChipError(
            f'{file}: want base = "v5e", or another chip that it changes; a file of its own gives a name '
            "and all parameters"
        )
    if not isinstance(name, str):
        raise ChipError(f'{file}: parameter name: want a string, name = "mine"')
    tables: dict[str, dict[str, float]] = {}
    for table in _TABLES:
        entries = tree.pop(table, None)
        if not isinstance(entries, dict):
            raise ChipError(f"{file}: table [{table}] is missing")
        tables[table] = {
            key: _number(f"{table}.{key}", entry, spec, file) for key, entry in entries.items()
        }
    scalars = {
        f.name: str(f.type) for f in fields(Chip) if f.name not in ("name", "spec", *_TABLES)
    }
    _same_keys(file, "", set(tree), set(scalars))
    _same_keys(file, "slots.", set(tables["slots"]), {slot.value for slot in Slot})
    _same_keys(file, "latencies.", set(tables["latencies"]), latency_classes())
    values: dict[str, float] = {}
    for key in scalars:
        values[key] = _number(key, tree[key], spec, file)
    for complaint in complaints({key: (values[key], scalars[key]) for key in values}, tables):
        raise ChipError(f"{file}: {complaint}")
    exact = {key: v if scalars[key] == "float" else int(v) for key, v in values.items()}
    counts = {table: {key: int(v) for key, v in row.items()} for table, row in tables.items()}
    return Chip(name=name, **counts, **exact, spec=spec)  # type: ignore[arg-type]  # checked above


def latency_classes() -> set[str]:
    """The latency classes a chip file must give."""
    return {row.latency for row in ROWS.values()} | {"mxu_result"}


def _same_keys(file: str, prefix: str, found: set[str], want: set[str]) -> None:
    for key in sorted(want - found):
        raise ChipError(
            f'{file}: parameter {prefix}{key} is missing: a file without base = "v5e" gives all of them'
        )
    for key in sorted(found - want):
        near = difflib.get_close_matches(key, want, 1)
        hint = f", did you mean {prefix}{near[0]}?" if near else ""
        raise ChipError(f"{file}: parameter {prefix}{key} is unknown{hint}")


def _number(key: str, entry: object, spec: dict[str, str], file: str) -> float:
    if not isinstance(entry, dict) or not isinstance(entry.get("value"), (int, float)):
        raise ChipError(f"{file}: parameter {key}: want {{value = .., provenance = ..}}")
    provenance = entry.get("provenance")
    source = str(entry.get("source", ""))
    if provenance not in _PROVENANCES:
        raise ChipError(f"{file}: parameter {key}: provenance {provenance!r}, want {_PROVENANCES}")
    if provenance != "assumed" and not source:
        raise ChipError(f"{file}: parameter {key} is {provenance}: want its source")
    value = entry["value"]
    if not 0 <= value < 2**48:
        raise ChipError(f"{file}: parameter {key}: {value:.15g} is out of range")
    spec[key] = f"{provenance} ({source})" if source else str(provenance)
    return float(value)
