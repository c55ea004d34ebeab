"""Chakra execution traces of a slice's program: what each device did, for simulators of networks.

`write_chakra` makes a folder with ``trace.<device>.et`` for each device: the messages of MLCommons Chakra's
``et_def.proto``, each behind its length, `GlobalMetadata` and then a `Node` for every kernel call. A
call that exchanges data is a COMM_COLL_NODE, or for a permute a send and a receive; all others are
COMP_NODEs. A core does one after another, so each node depends on the one before. Chakra's times are whole
microseconds; the attribute ``duration_ns`` says ours.

``comm_groups.json`` lists the devices of each group that an attribute ``pg_name`` names; ``comm_size`` are
the bytes that a device gives.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from compiler.diagnostics import UnsupportedError
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Program
from tpu_sim.machine.result import ExecutionResult, KernelRun

_VERSION = "1.1.1"
_NODE_TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip
_COMP, _SEND, _RECV, _COLL = (
    _NODE_TYPES.index(f"{name}_NODE") for name in ("COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
)
_COLLECTIVES = {"all-gather": 2, "all-to-all": 6, "reduce-scatter": 7}
"""Chakra's `CollectiveCommType` of the exchanges that kernels make."""
_ATTRIBUTE = {"int32_val": 7, "int64_val": 9, "uint64_val": 13, "bool_val": 27, "string_val": 29}
_NODE = {
    "id": 1, "name": 2, "type": 3, "ctrl_deps": 4, "data_deps": 5, "start_time_micros": 6,
    "duration_micros": 7, "attr": 10,
}  # fmt: skip
"""Fields of Chakra's messages by number, those that are written."""


_Exchange = tuple[str, int, tuple[tuple[int, ...], ...]]


class _Schema(Protocol):
    Node: Any
    GlobalMetadata: Any


def write_chakra(
    folder: Path, program: Program, chip: Chip, cores: Sequence[ExecutionResult]
) -> None:
    """Write the traces of a program's devices; `cores` are what each took.

    Raises UnsupportedError without the package protobuf.
    """
    schema = chakra_schema()
    exchanges = _exchanges(program)
    groups = sorted({g for kind, _, own in exchanges.values() if kind in _COLLECTIVES for g in own})
    names = {group: str(number) for number, group in enumerate(groups)}
    folder.mkdir(parents=True, exist_ok=True)
    for device, core in enumerate(cores):
        writer = _Device(schema, program, chip, exchanges, names, device)
        with (folder / f"trace.{device}.et").open("wb") as file:
            for message in writer.messages(core):
                data = message.SerializeToString()
                file.write(_varint(len(data)) + data)
    listed = {name: list(group) for group, name in names.items()}
    (folder / "comm_groups.json").write_text(json.dumps(listed, indent=1))


def _exchanges(program: Program) -> dict[str, _Exchange]:
    """By kernel the kind of exchange, a device's bytes, and groups or pairs of devices."""
    told = json.loads(program.metadata.get("exchanges", '{"groups": [], "kernels": {}}'))
    groups = [tuple(tuple(group) for group in own) for own in told["groups"]]
    return {
        name: (str(kind), int(size), groups[number])
        for name, (kind, size, number) in told["kernels"].items()
    }


def chakra_schema() -> _Schema:
    """Message classes with Chakra's names and numbers of fields, as far as they are used here."""
    try:
        descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
        pools = importlib.import_module("google.protobuf.descriptor_pool")
        factory = importlib.import_module("google.protobuf.message_factory")
    except ImportError as error:
        raise UnsupportedError(
            "Chakra traces need the package protobuf: pip install 'tpuc[chakra]'"
        ) from error
    field = descriptors.FieldDescriptorProto
    file = descriptors.FileDescriptorProto(
        name="tpuc_chakra.proto", package="ChakraProtoMsg", syntax="proto3"
    )
    kinds = {
        "int32_val": field.TYPE_INT32, "int64_val": field.TYPE_INT64, "uint64_val": field.TYPE_UINT64,
        "bool_val": field.TYPE_BOOL, "string_val": field.TYPE_STRING, "name": field.TYPE_STRING,
        "version": field.TYPE_STRING, "attr": field.TYPE_MESSAGE, "type": field.TYPE_ENUM,
    }  # fmt: skip
    node_type = file.enum_type.add(name="NodeType")
    for number, name in enumerate(_NODE_TYPES):
        node_type.value.add(name=name, number=number)

    def message(name: str, fields: dict[str, int]) -> Any:
        made = file.message_type.add(name=name)
        for key, number in fields.items():
            is_many = key in ("attr", "ctrl_deps", "data_deps")
            label = field.LABEL_REPEATED if is_many else field.LABEL_OPTIONAL
            kind = kinds.get(key, field.TYPE_UINT64)
            added = made.field.add(name=key, number=number, label=label, type=kind)
            if key == "attr":
                added.type_name = ".ChakraProtoMsg.AttributeProto"
            if key == "type":
                added.type_name = ".ChakraProtoMsg.NodeType"
        return made

    attribute = message("AttributeProto", {"name": 1, **_ATTRIBUTE})
    attribute.oneof_decl.add(name="value")
    for one in attribute.field[1:]:
        one.oneof_index = 0
    message("GlobalMetadata", {"version": 1, "attr": 2})
    message("Node", _NODE)
    pool = pools.DescriptorPool()
    pool.Add(file)
    found: Any = type("Schema", (), {})()
    for name in ("Node", "GlobalMetadata"):
        descriptor = pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")
        setattr(found, name, factory.GetMessageClass(descriptor))
    schema: _Schema = found
    return schema


class _Device:
    """The messages of one device."""

    def __init__(
        self,
        schema: _Schema,
        program: Program,
        chip: Chip,
        exchanges: dict[str, _Exchange],
        names: dict[tuple[int, ...], str],
        device: int,
    ) -> None:
        self.schema, self.program, self.chip, self.device = schema, program, chip, device
        self.exchanges, self.names = exchanges, names
        self._made = 0

    def messages(self, core: ExecutionResult) -> Iterator[Any]:
        """The metadata, then a node or two for every call."""
        about = self.schema.GlobalMetadata(version=_VERSION)
        self._attribute(about, "chip", string_val=self.chip.name)
        yield about
        before: list[int] = []
        for number, run in enumerate(core.kernels):
            nodes = list(self._nodes(number, run))
            for node in nodes:
                node.ctrl_deps.extend(before)
                node.data_deps.extend(before)
            before = [node.id for node in nodes] or before
            yield from nodes

    def _nodes(self, number: int, run: KernelRun) -> Iterator[Any]:
        kernel = self.program.kernels[run.name]
        kind, size, groups = self.exchanges.get(run.name, ("", 0, ()))
        if kind == "collective-permute":
            for source, target in groups:
                if self.device in (source, target) and source != target:
                    is_send = source == self.device
                    node = self._node(_SEND if is_send else _RECV, run)
                    self._attribute(node, "comm_src", int32_val=source)
                    self._attribute(node, "comm_dst", int32_val=target)
                    self._attribute(node, "comm_tag", int32_val=number)
                    self._attribute(node, "comm_size", int64_val=size)
                    yield node
        elif kind:
            node = self._node(_COLL, run)
            group = next(g for g in groups if self.device in g)
            self._attribute(node, "comm_type", int64_val=_COLLECTIVES[kind])
            self._attribute(node, "comm_size", int64_val=size)
            self._attribute(node, "pg_name", string_val=self.names[group])
            yield node
        else:
            node = self._node(_COMP, run)
            self._attribute(node, "num_ops", int64_val=kernel.flops * run.calls)
            self._attribute(node, "tensor_size", uint64_val=run.hbm_bytes)
            yield node

    def _node(self, kind: int, run: KernelRun) -> Any:
        seconds = 1 / self.chip.clock_hz
        node = self.schema.Node(id=self._made, name=run.site or run.name, type=kind)
        self._made += 1
        node.start_time_micros = int(run.start_cycle * seconds * 1e6)
        node.duration_micros = max(1, round(run.cycles * seconds * 1e6))
        self._attribute(node, "is_cpu_op", bool_val=False)
        self._attribute(node, "duration_ns", uint64_val=round(run.cycles * seconds * 1e9))
        self._attribute(node, "what", string_val=self.program.kernels[run.name].note)
        return node

    def _attribute(self, message: Any, name: str, **value: object) -> None:
        added = message.attr.add(name=name)
        for key, given in value.items():
            setattr(added, key, given)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
