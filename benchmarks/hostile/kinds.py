"""The kinds of files: where good ones come from, how they are changed, and the commands that read them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tpuc
from benchmarks.fuzz.generator import generate
from benchmarks.hostile.text_mutants import mutated_text
from benchmarks.hostile.tpux_mutants import mutated_tpux
from benchmarks.machine_fuzz.trial import accepted_case
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.chips import chip_names
from tpu_sim.isa.container import dump_program

_ROOT = Path(__file__).resolve().parents[2]
_DATA = _ROOT / "tests" / "data"
_CHIPS = _ROOT / "tpu_sim" / "isa" / "chip_data"
_MAX_CYCLES = "2000000"
_PROGRAMS = 12
_MODULES, _FEW_ELEMENTS = 200, 500
_MODEL = """HloModule small, entry_computation_layout={(f32[16,128]{1,0})->f32[16,128]{1,0}}
ENTRY main {
  x = f32[16,128]{1,0} parameter(0)
  y = f32[16,128]{1,0} multiply(x, x)
  ROOT z = f32[16,128]{1,0} add(y, x)
}
"""
_RUN = ("--threads", "1", "--max-cycles", _MAX_CYCLES, "--no-cache")


@dataclass(frozen=True)
class FileKind:
    """`seeds` gives good files; `mutate` changes one; `commands` are run on it in order, while they
    succeed: words of a command line, ``{file}`` the file and ``{folder}`` a folder to write to.
    `is_model`: it may say that it takes gigabytes, and be right."""

    suffix: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: Callable[[bytes, random.Random], bytes]
    commands: tuple[tuple[str, ...], ...]
    is_model: bool = False


def _text_mutation(*wrappers: tuple[str, str]) -> Callable[[bytes, random.Random], bytes]:
    def mutate(data: bytes, source: random.Random) -> bytes:
        return mutated_text(data.decode(), source, wrappers).encode()

    return mutate


@cache
def _assembly() -> tuple[bytes, ...]:
    return tuple(print_program(accepted_case(n).program).encode() for n in range(_PROGRAMS))


@cache
def _programs() -> tuple[bytes, ...]:
    """Generated programs, and compiled models with constants and buffers."""
    made = [dump_program(accepted_case(n).program) for n in range(_PROGRAMS)]
    for name in ("kmeans_tiny", "heat_stencil_tiny"):
        model = tpuc.compile(_DATA / f"{name}.hlo", "v5e")
        made += [dump_program(model.program)] * 4
    return tuple(made)


def _files(*patterns: str) -> Callable[[], Sequence[bytes]]:
    """The files of these names that are small enough to be read thousands of times."""

    @cache
    def read() -> tuple[bytes, ...]:
        paths = [path for pattern in patterns for path in sorted(_DATA.glob(pattern))]
        return tuple(path.read_bytes() for path in paths if path.stat().st_size < 20_000)

    return read


def _modules() -> Sequence[bytes]:
    """Models of the tests, and generated ones of every opcode."""
    return [*_files("*_tiny.hlo", "regressions/*.hlo", "text_forms/*.hlo")(), *_generated()]


@cache
def _generated() -> tuple[bytes, ...]:
    return tuple(generate(number, _FEW_ELEMENTS).encode() for number in range(_MODULES))


def _chips() -> Sequence[bytes]:
    return [(_CHIPS / f"{name}.toml").read_bytes() for name in chip_names()]


KINDS: dict[str, FileKind] = {
    "tpu": FileKind(
        ".tpu",
        _assembly,
        _text_mutation(('loop s1 = 0 .. 2 "" {\n', "\n}\n"), ("if s0 {\n", "\n}\n")),
        (
            ("asm", "{file}", "-o", "{folder}/out.tpux"),
            ("run", "{folder}/out.tpux", *_RUN),
        ),
    ),
    "tpux": FileKind(
        ".tpux", _programs, mutated_tpux, (("disasm", "{file}"), ("run", "{file}", *_RUN))
    ),
    "chip": FileKind(
        ".toml",
        _chips,
        _text_mutation(("[", "]"), ("{ a = ", "}")),
        (
            ("targets", "{file}"),
            ("run", "{folder}/model.hlo", "--target", "{file}", *_RUN),
        ),
    ),
    "hlo": FileKind(
        ".hlo",
        _modules,
        _text_mutation(("(", ")"), ("{", "}"), ("(f32[], ", ")")),
        (("run", "{file}", *_RUN),),
        is_model=True,
    ),
    "mlir": FileKind(
        ".mlir",
        _files("*_tiny.mlir", "regressions/*.mlir"),
        _text_mutation(("(", ")"), ("{", "}"), ("tuple<", ">"), ("tensor<", ">")),
        (("run", "{file}", *_RUN),),
        is_model=True,
    ),
}


def prepare(folder: Path) -> None:
    """Write what commands need beside the file."""
    (folder / "model.hlo").write_text(_MODEL, encoding="utf-8")


def mutant(kind: str, seed: int) -> bytes:
    """The mutant of a seed."""
    source = random.Random(f"{kind} {seed}")
    seeds = KINDS[kind].seeds()
    return KINDS[kind].mutate(source.choice(seeds), source)
