"""The ``.tpu`` text of a program: `print_program`.  `assembly_parser` reads it back.

    target v5e hbm 8192 smem 262144 args 0
    buffer "x" input 0 at 0 size 4096 "f32[8,128]{1,0:T(8,128)}"
    kernel "add" args 2 flags 8 spill 0 at 16 flops 0 ops 0 least 0 note "kLoop" {
      window w0 "x" rows 0 + 8
      descriptor d0 hbm -> vmem w0 chunk 8 dims [4 x 8 -> 16]
      block "" {
        { dma.start d0, s1, s0, f0, s0, s0, s0 }
        nop 3
      }
      loop s5 = 0 .. 4 parallel "rows" { ... }
    }
    main { call "add" site "add.1" }

One item per line. ``nop n`` stands for n empty bundles; dynamic DMA counts are ``c0`` and ``c1``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tpu_sim.isa.control_flow import Call, ControlFlow, If, Loop, While
from tpu_sim.isa.program import (
    HBM,
    NO_ROUTE,
    SMEM,
    VMEM,
    Block,
    DmaDescriptor,
    Kernel,
    Node,
    Program,
)
from tpu_sim.isa.text import format_bundle

SPACE_NAMES = {HBM: "hbm", VMEM: "vmem", SMEM: "smem"}
COUNT_NAMES = {-1: "c0", -2: "c1"}
CONSTANT_LINE_BYTES = 60


def print_program(program: Program) -> str:
    """The whole program as text; `parse_program` gives an equal program back."""
    return "\n".join(_program_lines(program)) + "\n"


def print_kernel(kernel: Kernel) -> str:
    """One kernel as text."""
    return "\n".join(_kernel_lines(kernel)) + "\n"


def print_main(main: list[Node]) -> str:
    """The control flow that calls kernels as text."""
    return "\n".join(_main_lines(main)) + "\n"


def quote(text: str) -> str:
    """A quoted string, as in JSON."""
    return json.dumps(text, ensure_ascii=False)


def _program_lines(program: Program) -> Iterator[str]:
    yield (
        f"target {quote(program.target)} hbm {program.hbm_bytes} "
        f"smem {program.smem_words} args {program.smem_args}"
    )
    for key, value in program.metadata.items():
        yield f"metadata {quote(key)} {quote(value)}"
    for number, route in enumerate(program.routes):
        targets = " ".join(map(str, route.targets))
        yield f"route r{number} port {route.port} hops {route.hops} load {route.load!r} [{targets}]"
    for buffer in program.buffers:
        yield (
            f"buffer {quote(buffer.name)} {quote(buffer.kind)} {buffer.index} "
            f"at {buffer.offset_bytes} size {buffer.size_bytes} {quote(buffer.shape)}"
            + (f" host {quote(buffer.host_shape)}" if buffer.host_shape else "")
        )
    for offset, data in program.constants:
        yield f"constant at {offset} size {len(data)} {{"
        for start in range(0, len(data), CONSTANT_LINE_BYTES):
            yield "  " + base64.b64encode(data[start : start + CONSTANT_LINE_BYTES]).decode()
        yield "}"
    for kernel in program.kernels.values():
        yield from _kernel_lines(kernel)
    yield from _main_lines(program.main)


def _main_lines(main: list[Node]) -> Iterator[str]:
    yield "main {"
    yield from _body_lines(main, "  ")
    yield "}"


def _kernel_lines(kernel: Kernel) -> Iterator[str]:
    yield (
        f"kernel {quote(kernel.name)} args {kernel.arg_count} flags {kernel.flags} {cores_text(kernel.cores)}"
        f"spill {kernel.spill_slots} at {kernel.spill_base_row} flops {kernel.flops} "
        f"ops {kernel.element_ops} least {kernel.least_bytes} note {quote(kernel.note)} {{"
    )
    for number, window in enumerate(kernel.windows):
        kept = " kept" if window.kept else ""
        place = f"rows {window.base_row} + {window.rows}{kept}"
        yield f"  window w{number} {quote(window.name)} {place}"
    for number, descriptor in enumerate(kernel.descriptors):
        yield f"  descriptor d{number} {descriptor_text(descriptor)}"
    yield from _body_lines(kernel.body, "  ")
    yield "}"


def cores_text(cores: int) -> str:
    """``cores 2 `` of a kernel that cores of a device share."""
    return f"cores {cores} " if cores > 1 else ""


def descriptor_text(descriptor: DmaDescriptor) -> str:
    """A DMA descriptor on one line, without its number."""
    source, target = SPACE_NAMES[descriptor.src_space], SPACE_NAMES[descriptor.dst_space]
    window = f" w{descriptor.window}" if descriptor.window >= 0 else ""
    dims = ", ".join(
        f"{COUNT_NAMES.get(dim.count, dim.count)} x {dim.src_stride} -> {dim.dst_stride}"
        for dim in descriptor.dims
    )
    route = f" route {descriptor.route}" if descriptor.route != NO_ROUTE else ""
    return f"{source} -> {target}{window} chunk {descriptor.chunk} dims [{dims}]{route}"


def loop_head(loop: Loop[Block]) -> str:
    """``loop s1 = 0 .. 8 parallel "name"``"""
    trip = f"{loop.trip}" if loop.trip >= 0 else f"s{loop.trip_sreg}"
    parallel = " parallel" if loop.parallel else ""
    return f"loop s{loop.index} = 0 .. {trip}{parallel} {quote(loop.name)}"


def while_head(loop: While[Block]) -> str:
    """``while "name" trips 10``"""
    return f"while {quote(loop.name)} trips {loop.expected_trips}"


BlockLines = Callable[[Any, str], Iterator[str]]


def control_lines(
    nodes: Iterable[ControlFlow[Any]], indent: str, block_lines: BlockLines
) -> Iterator[str]:
    """The control flow of a program, or that of LLO, around blocks whose lines are told."""
    inner = indent + "  "
    for node in nodes:
        if isinstance(node, Call):
            yield f"{indent}call {quote(node.kernel)} site {quote(node.site)}"
            continue
        if isinstance(node, Loop):
            yield f"{indent}{loop_head(node)} {{"
            yield from control_lines(node.body, inner, block_lines)
        elif isinstance(node, If):
            yield f"{indent}if s{node.condition} {{"
            yield from control_lines(node.then, inner, block_lines)
            if node.orelse:
                yield f"{indent}}} else {{"
                yield from control_lines(node.orelse, inner, block_lines)
        elif isinstance(node, While):
            yield f"{indent}{while_head(node)} {{"
            yield from control_lines(node.test, inner, block_lines)
            yield f"{indent}}} do s{node.condition} {{"
            yield from control_lines(node.body, inner, block_lines)
        else:
            yield f"{indent}block {quote(node.name)} {{"
            yield from block_lines(node, inner)
        yield f"{indent}}}"


def _body_lines(nodes: list[Node], indent: str) -> Iterator[str]:
    return control_lines(nodes, indent, _bundle_lines)


def _bundle_lines(block: Block, indent: str) -> Iterator[str]:
    empty = 0
    for bundle in block.bundles:
        if not bundle:
            empty += 1
            continue
        if empty:
            yield f"{indent}nop {empty}"
            empty = 0
        yield indent + format_bundle(bundle)
    if empty:
        yield f"{indent}nop {empty}"
