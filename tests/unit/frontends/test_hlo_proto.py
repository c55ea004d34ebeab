"""Protocol buffers of modules mean what their text means, byte for byte when printed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.hlo_proto.attributes import MAKERS, UNNAMED
from compiler.frontends.hlo_proto.modules import proto_to_text, read_snapshot
from compiler.frontends.models import parse_model
from compiler.frontends.recognition import is_binary
from compiler.hlo.attribute_order import KNOWN_NAMES
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.styled_printer import STYLES, print_styled
from compiler.protobuf import Message, bytes_field, number_field, packed_integers
from tests.support.hlo_protos import snapshot

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "hlo_proto"
NAMES = sorted(path.stem for path in DATA.glob("*.pb"))


def _printed(source: str | bytes) -> list[str]:
    """The lines of a module; computations may stand in another order."""
    return sorted(print_styled(parse_model(source), STYLES["default"]).splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_a_module_is_its_text(name: str) -> None:
    data = (DATA / f"{name}.pb").read_bytes()
    assert _printed(data) == _printed((DATA / f"{name}.hlo").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_literals_are_equal_to_the_bit(name: str) -> None:
    ours = _literals(parse_model((DATA / f"{name}.pb").read_bytes()))
    assert ours == _literals(parse_module((DATA / f"{name}.hlo").read_text()))


def _literals(module: HloModule) -> dict[str, bytes]:
    """The bits of each constant of the entry; the order of instructions may differ."""
    values = ((i.name, i.attrs.get("literal")) for i in module.entry.instructions)
    return {name: v.tobytes() for name, v in values if isinstance(v, np.ndarray)}


@pytest.mark.parametrize("depth", [1, 2])
def test_what_wraps_a_module_is_seen_through(depth: int) -> None:
    inner = data = (DATA / "dot_bias_relu.pb").read_bytes()
    for _ in range(depth):
        data = bytes_field(1, data)
    assert is_binary(data)
    assert proto_to_text(data) == proto_to_text(inner)


def test_every_attribute_has_a_maker_or_a_reason() -> None:
    made = set(MAKERS) | set(UNNAMED)
    assert not set(MAKERS) & set(UNNAMED)
    assert made >= KNOWN_NAMES
    assert made <= KNOWN_NAMES | {"literal", "result_accuracy"}


@pytest.mark.parametrize("text", ["\nHloModule m", "HloModule m\n\x00", "// a comment\n"])
def test_text_is_no_protocol_buffer(text: str) -> None:
    assert not is_binary(text.encode())


def test_a_field_that_is_not_known_is_refused_by_number() -> None:
    module = Message((DATA / "dot_bias_relu.pb").read_bytes())
    instruction = module.messages(3)[0]
    changed = instruction.raw(2) + number_field(120, 7)
    data = _with_instruction(changed)
    with pytest.raises(CompileError, match="field 120 of HloInstructionProto is not known"):
        proto_to_text(data, "m.pb")


def _with_instruction(instruction: bytes) -> bytes:
    computation = bytes_field(1, b"e") + bytes_field(2, instruction)
    return bytes_field(1, b"m") + bytes_field(2, b"e") + bytes_field(3, computation)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_bytes_are_an_error(name: str) -> None:
    data = (DATA / f"{name}.pb").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(150):
        broken = bytearray(data[: rng.integers(1, len(data) + 1)])
        broken[rng.integers(len(broken))] = rng.integers(256)
        try:
            parse_model(bytes(broken), "m.pb")
        except CompileError as error:
            assert str(error)


def test_packed_integers() -> None:
    wanted = [0, 1, 127, 128, 300, -1, -(1 << 63), (1 << 63) - 1]
    data = b"".join(number_field(1, value)[1:] for value in wanted)
    assert packed_integers(data).tolist() == wanted
    with pytest.raises(ValueError, match="end within one"):
        packed_integers(b"\x80")


def test_a_snapshot_holds_arguments_and_results() -> None:
    found = read_snapshot(snapshot(513.0))
    assert found is not None
    assert [a.shape for a in found.arguments] == [(256, 512), (512, 384), (384,)]
    assert found.results[0][3, 4] == 513.0
    assert read_snapshot((DATA / "literals.pb").read_bytes()) is None


def test_jaxlib_writes_what_is_read() -> None:
    from_text = pytest.importorskip("jaxlib._hlo").hlo_module_from_text
    for path in sorted((ROOT / "examples").glob("*.hlo")):
        text = path.read_text()
        data = from_text(text).as_serialized_hlo_module_proto()
        assert _printed(data) == _printed(text), path.name
