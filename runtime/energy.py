"""Energy and price of a run: what the units did times what the chip file says it costs.

    mxu      multiply-adds of all passes, padding included
    vector   operations on elements that the kernels are for
    hbm      bytes to and from HBM
    ici      bytes sent to other chips
    idle     what a core takes whatever it does, for as long as it runs

The energies of units are parameters of the chip with their provenance; a report says what is assumed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.diagnostics import CompileError, UnreadableFileError
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Program
from tpu_sim.machine.result import ExecutionResult

_PASS_MACS = 16 * 128 * 128
_PICO = 1e-12
_MOST_PRICE = 1e18
"""Of an hour of a chip, in any currency: far from where sums of prices are no numbers any more."""
_PARAMETERS = (
    "mac_picojoules", "vector_picojoules", "hbm_picojoules_per_byte", "ici_picojoules_per_byte", "idle_watts",
)  # fmt: skip


@dataclass(frozen=True)
class Energy:
    """Joules of one device by part; `assumed` names the parameters that nobody published."""

    parts: dict[str, float]
    seconds: float
    assumed: tuple[str, ...]

    @property
    def joules(self) -> float:
        """All parts."""
        return sum(self.parts.values())

    @property
    def watts(self) -> float:
        """On average."""
        return self.joules / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, object]:
        """The JSON object."""
        found: dict[str, object] = {"joules": self.joules, "watts": self.watts}
        return found | {"parts": self.parts, "assumed": list(self.assumed)}


def energy_of(program: Program, chip: Chip, result: ExecutionResult) -> Energy:
    """What a run took on one device."""
    macs = result.mxu_busy_cycles / chip.matmul_cycles * _PASS_MACS
    elements = sum(program.kernels[r.name].element_ops * r.calls for r in result.kernels)
    seconds = result.seconds(chip.clock_hz)
    parts = {
        "mxu": macs * chip.mac_picojoules * _PICO,
        "vector": elements * chip.vector_picojoules * _PICO,
        "hbm": result.hbm_bytes * chip.hbm_picojoules_per_byte * _PICO,
        "ici": sum(result.route_bytes) * chip.ici_picojoules_per_byte * _PICO,
        "idle": seconds * chip.idle_watts * chip.cores_per_device,
    }
    assumed = tuple(name for name in _PARAMETERS if chip.spec[name].startswith("assumed"))
    return Energy(parts, seconds, assumed)


def read_prices(path: str | Path) -> dict[str, float]:
    """The prices of a file, as `parse_prices` reads them."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UnreadableFileError(f"cannot read {path}: {error.strerror}") from error
    return parse_prices(data, str(path))


def parse_prices(data: bytes, name: str) -> dict[str, float]:
    """What an hour of a chip costs, by chip: a TOML table ``[chip_hour]`` with ``v5e = 1.2``.

    Raises CompileError, which calls the source `name`.
    """
    try:
        tree = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CompileError(f"{name}: not a TOML file: it is no UTF-8 text") from error
    except ValueError as error:
        raise CompileError(f"{name}: not a TOML file: {error}") from error
    rows = tree.get("chip_hour")
    if not isinstance(rows, dict) or not rows:
        raise CompileError(f"{name}: want a table [chip_hour] with a price by chip: v5e = 1.2")
    for chip, price in rows.items():
        is_number = isinstance(price, (int, float)) and not isinstance(price, bool)
        if not is_number or not 0 <= price <= _MOST_PRICE:
            raise CompileError(f"{name}: the price of {chip} is {price!r}, want a number from 0 on")
    return {str(chip): float(price) for chip, price in rows.items()}


def price_of(prices: Mapping[str, float], chip: Chip, seconds: float, devices: int) -> float:
    """What a run of that many devices costs; raises CompileError for a chip without a price."""
    price = prices.get(chip.name, prices.get(chip.family))
    if price is None:
        raise CompileError(f"no price of {chip.family}; there are {', '.join(sorted(prices))}")
    return price * seconds / 3600 * devices / chip.devices_per_chip
