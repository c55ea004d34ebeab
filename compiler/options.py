"""What a user may choose about compiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

Progress = Callable[[str], None]


@dataclass(frozen=True)
class CompileOptions:
    """What a user may choose.

    `precision` of f32 dots: "default" one bf16 pass, "high" three, "highest" six. `dump_dir` gets
    the HLO after every pass and every kernel's LLO after its passes. `progress` is told what is being
    done. `f64_as_f32` computes f64 as f32 and c128 as c64 instead of refusing them; the host keeps
    its types. `windows` sets a dot's or convolution's elements of M, K and N in a grid step by its
    name, or its kernel's. `skip` names passes to leave out; one that a later pass requires cannot be.
    `resize_mesh` puts a program of a mesh on as many devices as the target has, its first axis longer or
    shorter (`compiler.sharding.resizing`). So many `processes` make kernels: forks of this one, which is
    for programs whose process it is (`compiler.backend.forks.may_fork`). `text_file` names the file that
    the model's text is of: where the model does not say where its operations come from, they come from
    their lines there.
    """

    precision: str = "default"
    dump_dir: Path | None = field(default=None, metadata={"changes_program": False})
    progress: Progress | None = field(default=None, metadata={"changes_program": False})
    f64_as_f32: bool = False
    windows: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    resize_mesh: bool = False
    text_file: str | None = None
    processes: int = field(default=1, metadata={"changes_program": False})

    def program_key(self) -> str:
        """A text that is equal for options that give equal programs."""
        chosen = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.metadata.get("changes_program", True)
        }
        chosen["windows"] = sorted(self.windows.items())
        return repr(sorted(chosen.items()))
