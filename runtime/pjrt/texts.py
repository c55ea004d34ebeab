"""The optimised program of an executable, in a form that jaxlib takes.

JAX asks for it to show it (``compiled.as_text()``), and after every compilation for several devices to
learn which sharding the compiler chose for each result. One whose text is not at hand has a text with
parameters, results and their shardings alone, since to make the whole one would be to compile anew.

How arguments lie on the device is no matter of JAX's: the configuration says that their layouts are
the default ones. Their dimensions are those of the text: the compiler may have put them in another order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from importlib import import_module

from compiler.hlo.shape import ArrayShape, Shape
from compiler.hlo.shape_text import parse_shape, print_shape
from compiler.protobuf import bytes_field, fields, number_field
from runtime.executable import Executable
from runtime.pjrt.messages import Assignment
from runtime.pjrt.signature import TOKEN, ProgramSignature, token_places, with_tokens
from runtime.pjrt.staged import Staged
from runtime.ports import Port
from runtime.program_store import has_hlo_at_hand
from runtime.slice_executable import SliceExecutable
from runtime.spread import Spread, Tile

FORM = b"hlo_with_config"
_PROGRAM_SHAPE, _OUTPUT_SHARDING, _PARAMETER_SHARDINGS = 4, 12, 14  # fields of HloModuleProto
_REPLICATED, _TUPLE, _OTHER, _UNREDUCED = 0, 2, 3, 6  # OpSharding's types


def optimized_program(
    code: Executable | Staged, signature: ProgramSignature, assignment: Assignment
) -> bytes:
    """An `HloModuleProtoWithConfig`. A program in stages, or one from bytes, has no one text and is shown as
    its outline."""
    outline = proto = _read_hlo(_outline(signature.name, signature.arguments, signature.results))
    if isinstance(code, Executable) and _has_text(code):
        readable = import_module("compiler.hlo.readable")  # and with it the compiler's parser
        proto = _read_hlo(readable.readable_text(code.text("hlo")))
        sides = (_device_shapes(ports) for ports in (code.inputs, code.outputs))
        outline = _read_hlo(_outline(signature.name, *sides))
    if isinstance(code, SliceExecutable) or (isinstance(code, Staged) and code.spreads_out):
        token = Spread.whole(TOKEN, assignment.replicas, assignment.partitions)
        known = zip((code.spreads_in, code.spreads_out), token_places(code), strict=True)
        proto += _shardings(*(with_tokens(spreads, places, token) for spreads, places in known))
    shape = next(v for n, v in fields(outline) if n == _PROGRAM_SHAPE and isinstance(v, bytes))
    counts = number_field(4, assignment.replicas) + number_field(5, assignment.partitions)
    return bytes_field(1, proto) + bytes_field(2, bytes_field(1, shape) + counts)


def _has_text(code: Executable) -> bool:
    """Whether its HLO after all passes is at hand, and has as many parameters and results as JAX knows: an
    array in two planes is two parameters there, a token none."""
    return (
        has_hlo_at_hand(code)
        and not any(token_places(code))
        and all(len(port.buffers) == 1 for port in (*code.inputs, *code.outputs))
    )


def _read_hlo(text: str) -> bytes:
    """An `HloModuleProto` of HLO text, by XLA's own reader in jaxlib, which has moved."""
    for module in ("jaxlib._hlo", "jaxlib._jax", "jaxlib.xla_extension"):
        try:
            found = getattr(import_module(module), "hlo_module_from_text", None)
        except ImportError:
            continue
        if found is not None:
            proto: bytes = found(text).as_serialized_hlo_module_proto()
            return proto
    message = "this jaxlib reads no HLO text, so it cannot be given the optimised program"
    raise RuntimeError(message)


def _device_shapes(ports: Sequence[Port]) -> list[Shape]:
    """What a program's own text has as parameters or results, in default layouts."""
    found = [parse_shape(port.buffers[0].shape) for port in ports]
    return [shape.with_layout(None) if isinstance(shape, ArrayShape) else shape for shape in found]


def _outline(name: str, arguments: Sequence[Shape], results: Sequence[Shape]) -> str:
    """A module with the program's parameters and results, and one call of what is between them."""
    inputs = [print_shape(shape) for shape in arguments]
    outputs = [print_shape(shape) for shape in results]
    result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
    head = ", ".join(f"p{number}: {shape}" for number, shape in enumerate(inputs))
    lines = [f"  %p{number} = {shape} parameter({number})" for number, shape in enumerate(inputs)]
    operands = ", ".join(f"%p{number}" for number in range(len(inputs)))
    call = f'custom-call({operands}), custom_call_target="tpuc.program"'
    body = "\n".join([*lines, f"  ROOT %results = {result} {call}"])
    return f"HloModule {name}\n\nENTRY %main ({head}) -> {result} {{\n{body}\n}}\n"


def _shardings(spreads_in: Sequence[Spread], spreads_out: Sequence[Spread]) -> bytes:
    given = [_sharding(spread) for spread in spreads_in]
    made = [_sharding(spread) for spread in spreads_out]
    output = made[0]
    if len(made) != 1:
        output = number_field(1, _TUPLE) + b"".join(bytes_field(5, one) for one in made)
    return b"".join(bytes_field(_PARAMETER_SHARDINGS, one) for one in given) + bytes_field(
        _OUTPUT_SHARDING, output
    )


def _sharding(spread: Spread) -> bytes:
    """An `OpSharding`: tiles in order, and the devices that have each."""
    if spread.is_replicated:
        return number_field(1, _REPLICATED)
    addends = spread.addends or (0,) * len(spread.places)
    devices: defaultdict[tuple[Tile, int], list[int]] = defaultdict(list)
    for device, place in enumerate(zip(spread.places, addends, strict=True)):
        devices[place].append(device)
    sums, copies = max(addends) + 1, len(devices[spread.places[0], addends[0]])
    if sums == len(spread.places):
        return number_field(1, _UNREDUCED)
    groups = {_UNREDUCED: sums, _REPLICATED: copies}
    dims = [*spread.tiles, *(count for count in groups.values() if count > 1)]
    order = [device for place in sorted(devices) for device in devices[place]]
    message = number_field(1, _OTHER) + _numbers(3, dims) + _numbers(4, order)
    if sums > 1:
        return message + _numbers(8, [kind for kind, count in groups.items() if count > 1])
    return message + number_field(6, 1) if copies > 1 else message


def _numbers(field: int, values: Sequence[int]) -> bytes:
    return b"".join(number_field(field, value) for value in values)
