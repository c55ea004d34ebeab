"""A host of another architecture, by user-mode emulation: native code is linked and run there."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.support.cross_compile import LIBRARY_LEVEL, PROGRAM_LEVEL, object_and_assembly
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import VREG_BYTES
from tpu_sim.isa.program import Program
from tpu_sim.jit.context import (
    OWN_CARRY,
    OWN_TRANSPOSE,
    OWN_TRANSPOSE_INDEX,
    ExecutionContext,
    MachineMemories,
    Word,
)
from tpu_sim.jit.host import Arch, Host
from tpu_sim.jit.library import library_text
from tpu_sim.jit.pass_forms import pass_forms
from tpu_sim.jit.program_translator import translate_program
from tpu_sim.jit.translated import RUN
from tpu_sim.machine.fabric import LocalFabric
from tpu_sim.machine.memory import HbmMemory

SOURCE = Path(__file__).with_suffix(".c")
TOOLS = {Arch.AARCH64: ("aarch64-linux-gnu-gcc", "qemu-aarch64")}
_NO_PROGRAM = "define i32 @tpuc_main(ptr %ctx) #0 {\n ret i32 0\n}\n"
_CYCLE_LIMIT = 1 << 40
_OWN_BYTES = VREG_BYTES
assert (OWN_CARRY, OWN_TRANSPOSE, OWN_TRANSPOSE_INDEX) == (-24, -16, -8)  # as in the C file


def missing_tools(arch: Arch) -> list[str]:
    """Of a cross compiler and an emulator for `arch`, what is not installed."""
    return [tool for tool in TOOLS[arch] if shutil.which(tool) is None]


@dataclass(frozen=True)
class EmulatedRun:
    """`status` is 0 or the number of a fault site."""

    status: int
    cycles: int


class EmulatedHost:
    """Compiles and links for `host` in `folder`, and runs under its emulator."""

    def __init__(self, host: Host, folder: Path) -> None:
        self._host, self._folder = host, folder
        self._compiler, self._emulator = TOOLS[host.arch]
        self.forms = [
            (kind, form.name) for kind, forms in pass_forms(host).items() for form in forms
        ]
        library, _ = object_and_assembly(library_text(host), host, LIBRARY_LEVEL)
        (folder / "library.o").write_bytes(library)
        self._make_main()
        self._passes = self._link("passes", _NO_PROGRAM)

    def _make_main(self) -> None:
        names = [name for _, name in self.forms]
        texts = {
            "FORM_DECLARATIONS": "extern pass " + ", ".join(names) + ";",
            "FORM_NAMES": ", ".join(names),
            "FORM_KINDS": ", ".join(str(int(kind)) for kind, _ in self.forms),
            "CARRY_WORD": str(int(Word.CARRY)),
            "TRANSPOSE_WORD": str(int(Word.TRANSPOSE)),
        }
        source = SOURCE.read_text()
        for name, text in texts.items():
            source = source.replace(name, text)
        (self._folder / "main.c").write_text(source)
        self._run(self._compiler, "-O1", "-c", "main.c", "-o", "main.o")

    def _link(self, name: str, text: str) -> str:
        code, _ = object_and_assembly(text, self._host, PROGRAM_LEVEL)
        (self._folder / f"{name}.o").write_bytes(code)
        objects = ("main.o", "library.o", f"{name}.o")
        self._run(self._compiler, "-static", "-pthread", *objects, "-o", name)
        return name

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"

    def passes(
        self, cases: list[tuple[str, npt.NDArray[np.uint32], npt.NDArray[np.uint32]]]
    ) -> npt.NDArray[np.uint32]:
        """Result words of passes, each by the name of a form, a left side and weights."""
        names = [name for _, name in self.forms]
        data = [
            np.int64(names.index(name)).tobytes() + left.tobytes() + weights.tobytes()
            for name, left, weights in cases
        ]
        (self._folder / "in").write_bytes(b"".join(data))
        self._run(self._emulator, f"./{self._passes}", "passes", "in", "out")
        found = np.fromfile(self._folder / "out", np.uint32)
        return found.reshape(len(cases), 16, 128)

    def run(self, program: Program, chip: Chip, hbm: HbmMemory) -> EmulatedRun:
        """Execute a program on the contents of `hbm`, which it changes."""
        translated = translate_program(program, chip, RUN)
        name = self._link("program", translated.text)
        context = ExecutionContext(chip, MachineMemories(chip), translated.sizes)
        context.reset(program.smem_words)
        context.words[Word.UNTIL] = context.words[Word.GOAL] = _CYCLE_LIMIT
        context.attach_fabric(LocalFabric(chip))
        context.attach_hbm(0, hbm.size_bytes)
        sizes = {int(word): len(mapping) for word, mapping in context._mappings.items()}
        head = [
            len(context.words), hbm.size_bytes, len(sizes), *(n for pair in sizes.items() for n in pair),
            int(Word.HBM), int(Word.SCRATCH), _OWN_BYTES,
        ]  # fmt: skip
        data = np.array(head, np.int64).tobytes() + context.words.tobytes() + hbm.bytes.tobytes()
        (self._folder / "in").write_bytes(data)
        self._run(self._emulator, f"./{name}", "program", "in", "out")
        found = (self._folder / "out").read_bytes()
        hbm.write(0, found[-hbm.size_bytes :])
        numbers = np.frombuffer(found[: -hbm.size_bytes], np.int64)
        return EmulatedRun(int(numbers[0]), int(numbers[1 + Word.NOW]))
