"""The tables between header and computations that metadata's ``stack_frame_id`` refers to.

FileNames
1 "model.py"

FunctionNames
1 "main"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from compiler.hlo.attributes import OpMetadata
from compiler.hlo.escapes import quote, unquote
from compiler.hlo.ir import HloComputation, HloModule
from compiler.hlo.metadata_text import renumbered_frame

_SECTIONS = re.compile(
    r"\s*FileNames\s(.*?)FunctionNames\s(.*?)FileLocations\s(.*?)StackFrames\s(.*)", re.DOTALL
)
_STRING = re.compile(r'\d+\s*("(?:[^"\\]|\\.)*")')
_FIELDS = re.compile(r"\d+\s*\{([^{}]*)\}")
_FIELD = re.compile(r"(\w+)\s*=\s*(-?\d+)")
_LOCATION = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
_Key = TypeVar("_Key", str, tuple[int, ...])
_FRAME = ("file_location_id", "parent_frame_id")


@dataclass(frozen=True)
class StackFrames:
    """Names, locations (six numbers each) and frames (location, parent), numbered from 1.

    A frame's parent is written one above its number: 1 says that there is none.
    """

    file_names: tuple[str, ...]
    function_names: tuple[str, ...]
    locations: tuple[tuple[int, ...], ...]
    frames: tuple[tuple[int, ...], ...]

    def __hash__(self) -> int:
        """Of a few of them: what an instruction comes from is looked up by the tables of its module."""
        return hash((self.file_names, len(self.locations), len(self.frames)))

    def place(self, frame: int) -> tuple[str, int]:
        """File and line of a frame; empty and 0 for one that the tables do not have."""
        if not 0 < frame <= len(self.frames):
            return "", 0
        location = self.frames[frame - 1][0]
        if not 0 < location <= len(self.locations):
            return "", 0
        file, _, line, *_ = self.locations[location - 1]
        return (self.file_names[file - 1], line) if 0 < file <= len(self.file_names) else ("", 0)


def parse_stack_frames(text: str) -> StackFrames:
    """Read the four tables; raises ValueError when a row lacks a field."""
    found = _SECTIONS.fullmatch(text)
    if found is None:
        raise ValueError("want FileNames, FunctionNames, FileLocations and StackFrames")
    files, functions, locations, frames = found.groups()
    return StackFrames(
        tuple(unquote(name) for name in _STRING.findall(files)),
        tuple(unquote(name) for name in _STRING.findall(functions)),
        tuple(_numbers(row, _LOCATION) for row in _FIELDS.findall(locations)),
        tuple(_numbers(row, _FRAME) for row in _FIELDS.findall(frames)),
    )


def _numbers(row: str, names: tuple[str, ...]) -> tuple[int, ...]:
    fields = {name: int(value) for name, value in _FIELD.findall(row)}
    missing = [name for name in names if name not in fields]
    if missing:
        raise ValueError(f"a row of the stack frame tables lacks {missing[0]}")
    return tuple(fields[name] for name in names)


def print_stack_frames(tables: StackFrames) -> str:
    """The four tables as XLA prints them, a blank line before each."""
    files = [quote(name) for name in tables.file_names]
    functions = [quote(name) for name in tables.function_names]
    locations = [_braced(_LOCATION, row) for row in tables.locations]
    frames = [_braced(_FRAME, row) for row in tables.frames]
    names = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
    return "\n" + "".join(
        f"\n{name}\n" + "".join(f"{i} {row}\n" for i, row in enumerate(rows, 1))
        for name, rows in zip(names, (files, functions, locations, frames), strict=True)
    )


def _braced(names: tuple[str, ...], row: tuple[int, ...]) -> str:
    pairs = (f"{name}={value}" for name, value in zip(names, row, strict=True))
    return "{" + " ".join(pairs) + "}"


class FrameInterner:
    """Builds tables that hold only the frames that are used, in the order of their use."""

    def __init__(self, old: StackFrames) -> None:
        self._old = old
        self._files: dict[str, int] = {}
        self._functions: dict[str, int] = {}
        self._locations: dict[tuple[int, ...], int] = {}
        self._frames: dict[tuple[int, ...], int] = {}
        self._known: dict[int, int] = {0: 0}

    def new_id(self, old_id: int) -> int:
        """The number of a frame in the new tables; 0 when the old ones do not have it."""
        path: list[int] = []
        current = old_id
        while current not in self._known:
            if not 0 < current <= len(self._old.frames) or current in path:
                return 0
            path.append(current)
            current = self._old.frames[current - 1][1] - 1
        for frame in reversed(path):
            self._known[frame] = self._intern(frame, self._known[current])
            current = frame
        return self._known[old_id]

    def _intern(self, frame: int, parent: int) -> int:
        location_id = self._old.frames[frame - 1][0]
        if not 0 < location_id <= len(self._old.locations):
            return 0
        file, function, *place = self._old.locations[location_id - 1]
        if not (
            0 < file <= len(self._old.file_names) and 0 < function <= len(self._old.function_names)
        ):
            return 0
        location = (
            _number(self._files, self._old.file_names[file - 1]),
            _number(self._functions, self._old.function_names[function - 1]),
            *place,
        )
        return _number(self._frames, (_number(self._locations, location), parent + 1))

    def tables(self) -> StackFrames:
        """The new tables."""
        return StackFrames(
            tuple(self._files), tuple(self._functions), tuple(self._locations), tuple(self._frames)
        )


def _number(table: dict[_Key, int], key: _Key) -> int:
    return table.setdefault(key, len(table) + 1)


def renumber_stack_frames(module: HloModule, computations: Iterable[HloComputation]) -> None:
    """Keep the frames that metadata refers to, in the order of use; forget references to none."""
    tables = module.attrs.pop("stack_frames", StackFrames((), (), (), ()))
    assert isinstance(tables, StackFrames)
    interner = FrameInterner(tables)
    known: dict[str, OpMetadata] = {}
    for computation in computations:
        for instr in computation:
            metadata = instr.attrs.get("metadata") if instr.attrs else None
            if not isinstance(metadata, OpMetadata) or "stack_frame_id" not in metadata.text:
                continue
            text = metadata.text
            if text not in known:
                known[text] = OpMetadata(renumbered_frame(text, interner.new_id))
            instr.attrs["metadata"] = known[text]
    if interner.tables().frames:
        module.attrs["stack_frames"] = interner.tables()
