"""`LlvmLanes`: the primitives of `tpu_sim.isa.semantics.Lanes` as LLVM IR text.

One class serves 16-lane chunks (types ``<16 x i32>``, ``<16 x float>``, ``<16 x i1>``) and, with
width 1, scalar registers. A value is the text of an SSA name or constant; an `I` and an `F` value
differ in LLVM type only. Every result is defined: guards stand where LLVM would give poison.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import ClassVar

from tpu_sim.isa.geometry import WORD_BYTES
from tpu_sim.isa.rows.mxu import CANONICAL_NAN
from tpu_sim.jit.emitter import FunctionEmitter

CHUNK_LANES = 16
"""Words that a host's vector registers hold together (AVX-512: in one): a row is eight chunks."""
CHUNK_BYTES = CHUNK_LANES * WORD_BYTES
_INTRINSIC_CALL = re.compile(r"call ([^@%\n]+) (@llvm\.[\w.]+)\((.*)\)")
_UNORDERED_NE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def float_literal(value: float) -> str:
    """LLVM's hexadecimal double form of `value` rounded to f32 (exact for every non-NaN f32)."""
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"


def signed32(value: int) -> int:
    """`value` modulo 2**32 as a signed number."""
    return (value + 0x80000000) % 0x100000000 - 0x80000000


Primitive = Callable[..., str]


def _floats(opcode: str) -> Primitive:
    def primitive(lanes: LlvmLanes, a: str, b: str) -> str:
        result = lanes.emitter.value(f"{opcode} {lanes.float_type} {a}, {b}")
        return result if lanes.nan is None else lanes.with_nan(result, lanes.nan)

    return primitive


def _float_call(name: str) -> Primitive:
    def primitive(lanes: LlvmLanes, *values: str) -> str:
        typed = [f"{lanes.float_type} {value}" for value in values]
        result = lanes.call(f"{name}.{lanes.suffix}f32", lanes.float_type, *typed)
        return result if lanes.nan is None else lanes.with_nan(result, lanes.nan)

    return primitive


def _operation(opcode: str, of: str = "int_type") -> Primitive:
    def primitive(lanes: LlvmLanes, a: str, b: str) -> str:
        return lanes.emitter.value(f"{opcode} {getattr(lanes, of)} {a}, {b}")

    return primitive


def _integer_call(name: str) -> Primitive:
    def primitive(lanes: LlvmLanes, *values: str) -> str:
        typed = [f"{lanes.int_type} {value}" for value in values]
        return lanes.call(f"{name}.{lanes.suffix}i32", lanes.int_type, *typed)

    return primitive


class LlvmLanes:
    """Primitives on one chunk of `width` lanes, appended to an emitter.

    `lane` and `sublane` are set by whoever opens the chunk's loop: i32 names of the chunk's first
    lane number and of its sublane number.

    `nan` are the bits of each NaN that float arithmetic gives, None for what the host gives: tests
    set it, so that bits which are no part of the machine are the same everywhere.
    """

    nan: ClassVar[int | None] = None

    def __init__(self, emitter: FunctionEmitter, width: int = CHUNK_LANES) -> None:
        self.emitter = emitter
        self.width = width
        self.lane = "0"
        self.sublane = "0"
        self.int_type = self._typed("i32")
        self.float_type = self._typed("float")
        self.mask_type = self._typed("i1")
        self._wide_type = self._typed("i64")
        self._double_type = self._typed("double")
        self.suffix = f"v{width}" if width > 1 else ""
        self._reinterpreted: dict[str, str] = {}

    def _typed(self, element: str) -> str:
        return f"<{self.width} x {element}>" if self.width > 1 else element

    def _constant(self, element: str, literal: str) -> str:
        return f"splat ({element} {literal})" if self.width > 1 else literal

    def call(self, name: str, result: str, *typed: str) -> str:
        """A call of an intrinsic with arguments ``type value``."""
        return self.emitter.value(f"call {result} @llvm.{name}({', '.join(typed)})")

    def with_nan(self, result: str, nan: int) -> str:
        """A result of float arithmetic, each NaN of it with these bits."""
        return self.as_f(self.settle_nan(self.as_i(result), nan))

    def settle_nan(self, x: str, nan: int = CANONICAL_NAN) -> str:
        """The bits of f32 `x`, those of every NaN made equal."""
        value = self.as_f(x)
        is_nan = self.emitter.value(f"fcmp uno {self.float_type} {value}, {value}")
        return self.select(is_nan, self.const_i(nan), x)

    def _int(self, opcode: str, a: str, b: str) -> str:
        return self.emitter.value(f"{opcode} {self.int_type} {a}, {b}")

    # primitives that LLVM has

    fadd = _floats("fadd")
    fsub = _floats("fsub")
    fmul = _floats("fmul")
    fdiv = _floats("fdiv")
    fma = _float_call("fma")
    fsqrt = _float_call("sqrt")
    fmaximum = _float_call("maximum")
    fminimum = _float_call("minimum")
    ffloor = _float_call("floor")
    fceil = _float_call("ceil")
    fround_even = _float_call("roundeven")
    ftrunc = _float_call("trunc")
    iadd = _operation("add")
    isub = _operation("sub")
    imul = _operation("mul")
    iand = _operation("and")
    ior = _operation("or")
    ixor = _operation("xor")
    imin_s = _integer_call("smin")
    imax_s = _integer_call("smax")
    imin_u = _integer_call("umin")
    imax_u = _integer_call("umax")
    popcnt = _integer_call("ctpop")
    mand = _operation("and", "mask_type")
    mor = _operation("or", "mask_type")
    mxor = _operation("xor", "mask_type")

    # constants and reinterpretation

    def const_i(self, value: int) -> str:
        """An integer constant."""
        text = self._constant("i32", str(signed32(value)))
        if text not in self._reinterpreted:
            single = struct.unpack("<f", struct.pack("<i", signed32(value)))[0]
            if single == single:
                self._reinterpreted[text] = self._constant("float", float_literal(single))
        return text

    def const_f(self, value: float) -> str:
        """A float constant, rounded to f32."""
        text = self._constant("float", float_literal(value))
        bits = struct.unpack("<i", struct.pack("<f", value))[0]
        self._reinterpreted[text] = self._constant("i32", str(bits))
        return text

    def as_f(self, x: str) -> str:
        """The bits of `x` as f32."""
        return self._cast(x, self.int_type, self.float_type)

    def as_i(self, x: str) -> str:
        """The bits of `x` as i32."""
        return self._cast(x, self.float_type, self.int_type)

    def _cast(self, x: str, source: str, target: str) -> str:
        known = self._reinterpreted.get(x)
        if known is None:
            known = self.emitter.value(f"bitcast {source} {x} to {target}")
            if x.startswith("%"):
                self._reinterpreted[x] = known
                self._reinterpreted[known] = x
        return known

    # made of several

    def f_to_s(self, a: str) -> str:
        """Saturating conversion to signed."""
        converted = self._saturate("fptosi", a, -(2.0**31), 2.0**31, 0x7FFFFFFF)
        return self.select(self.fcmp("ne", a, a), self.const_i(0), converted)

    def f_to_u(self, a: str) -> str:
        """Saturating conversion to unsigned; the lower bound catches NaN."""
        return self._saturate("fptoui", a, 0.0, 2.0**32, -1)

    def _saturate(self, opcode: str, a: str, low: float, end: float, last: int) -> str:
        """Convert what fits; ``llvm.fpto*i.sat`` says the same but is scalarised."""
        floats, low_text = self.float_type, self.const_f(low)
        raised = self._select_f(self.fcmp("gt", a, low_text), a, low_text)
        is_over = self.fcmp("ge", a, self.const_f(end))
        safe = self._select_f(is_over, self.const_f(0.0), raised)
        converted = self.emitter.value(f"{opcode} {floats} {safe} to {self.int_type}")
        return self.select(is_over, self.const_i(last), converted)

    def _select_f(self, mask: str, a: str, b: str) -> str:
        return self.emitter.value(
            f"select {self.mask_type} {mask}, {self.float_type} {a}, {self.float_type} {b}"
        )

    def s_to_f(self, a: str) -> str:
        """f32 of a signed integer."""
        return self.emitter.value(f"sitofp {self.int_type} {a} to {self.float_type}")

    def u_to_f(self, a: str) -> str:
        """f32 of an unsigned integer."""
        return self.emitter.value(f"uitofp {self.int_type} {a} to {self.float_type}")

    def imulhi_u(self, a: str, b: str) -> str:
        """High half of unsigned a * b."""
        wide = [
            self.emitter.value(f"zext {self.int_type} {x} to {self._wide_type}") for x in (a, b)
        ]
        product = self.emitter.value(f"mul {self._wide_type} {wide[0]}, {wide[1]}")
        shift = self._constant("i64", "32")
        high = self.emitter.value(f"lshr {self._wide_type} {product}, {shift}")
        return self.emitter.value(f"trunc {self._wide_type} {high} to {self.int_type}")

    def shl(self, a: str, b: str) -> str:
        """a << b."""
        return self._shift("shl", a, b, self.const_i(0))

    def lshr(self, a: str, b: str) -> str:
        """a >> b, logical."""
        return self._shift("lshr", a, b, self.const_i(0))

    def ashr(self, a: str, b: str) -> str:
        """a >> b, arithmetic."""
        literal = self._literal(b)
        if literal is not None and not 0 <= literal < 32:
            return self._int("ashr", a, self.const_i(31))
        if literal is not None:
            return self._int("ashr", a, b)
        return self._int("ashr", a, self.imin_u(b, self.const_i(31)))

    def _shift(self, opcode: str, a: str, b: str, outside: str) -> str:
        literal = self._literal(b)
        if literal is not None:
            return self._int(opcode, a, b) if 0 <= literal < 32 else outside
        shifted = self._int(opcode, a, self.iand(b, self.const_i(31)))
        return self.select(self.icmp_u("lt", b, self.const_i(32)), shifted, outside)

    def _literal(self, text: str) -> int | None:
        """The number of an integer constant, None if `text` is an SSA name."""
        if text.startswith("%"):
            return None
        return int(text.removeprefix("splat (i32 ").removesuffix(")"))

    def idiv_s(self, a: str, b: str) -> str:
        """Signed quotient toward zero."""
        return self._divide(a, b, signed=True)

    def irem_s(self, a: str, b: str) -> str:
        """Signed remainder."""
        return self._remainder(a, b, self._divide(a, b, signed=True))

    def idiv_u(self, a: str, b: str) -> str:
        """Unsigned quotient."""
        return self._divide(a, b, signed=False)

    def irem_u(self, a: str, b: str) -> str:
        """Unsigned remainder."""
        return self._remainder(a, b, self._divide(a, b, signed=False))

    def _remainder(self, a: str, b: str, quotient: str) -> str:
        is_zero = self.icmp_u("eq", b, self.const_i(0))
        return self.select(is_zero, a, self.isub(a, self.imul(quotient, b)))

    def _divide(self, a: str, b: str, *, signed: bool) -> str:
        """x/0 = -1. An f64 quotient of 32-bit integers, truncated, is exact."""
        e = self.emitter
        is_zero = self.icmp_u("eq", b, self.const_i(0))
        divisor = self.select(is_zero, self.const_i(1), b)
        to_float, to_int = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        x, y = (
            e.value(f"{to_float} {self.int_type} {v} to {self._double_type}") for v in (a, divisor)
        )
        ratio = e.value(f"fdiv {self._double_type} {x}, {y}")
        # 64 bits hold INT_MIN / -1, whose low half is INT_MIN
        whole = e.value(f"{to_int} {self._double_type} {ratio} to {self._wide_type}")
        quotient = e.value(f"trunc {self._wide_type} {whole} to {self.int_type}")
        return self.select(is_zero, self.const_i(-1), quotient)

    def clz(self, a: str) -> str:
        """Leading zeros; 32 for 0."""
        name = f"ctlz.{self.suffix}i32"
        return self.call(name, self.int_type, f"{self.int_type} {a}", "i1 false")

    # masks

    def fcmp(self, predicate: str, a: str, b: str) -> str:
        """Ordered compare, but ne holds on NaN."""
        return self.emitter.value(f"fcmp {_UNORDERED_NE[predicate]} {self.float_type} {a}, {b}")

    def icmp_s(self, predicate: str, a: str, b: str) -> str:
        """Signed compare."""
        return self._icmp(predicate, "s", a, b)

    def icmp_u(self, predicate: str, a: str, b: str) -> str:
        """Unsigned compare."""
        return self._icmp(predicate, "u", a, b)

    def _icmp(self, predicate: str, sign: str, a: str, b: str) -> str:
        name = predicate if predicate in ("eq", "ne") else sign + predicate
        return self.emitter.value(f"icmp {name} {self.int_type} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        """a where mask, else b."""
        return self.emitter.value(
            f"select {self.mask_type} {mask}, {self.int_type} {a}, {self.int_type} {b}"
        )

    def mnot(self, a: str) -> str:
        """Mask not."""
        return self.emitter.value(f"xor {self.mask_type} {a}, {self.mconst(True)}")

    def mconst(self, value: bool) -> str:
        """A mask constant."""
        return self._constant("i1", "true" if value else "false")

    # position and scalars

    def lane_index(self) -> str:
        """Lane numbers of the chunk."""
        numbers = ", ".join(f"i32 {lane}" for lane in range(self.width))
        return self.iadd(self.splat(self.lane), f"<{numbers}>")

    def sublane_index(self) -> str:
        """The chunk's sublane number in every lane."""
        return self.splat(self.sublane)

    def splat(self, scalar: str | int) -> str:
        """A scalar i32 in every lane."""
        text = str(scalar)
        if not text.startswith("%"):
            return self.const_i(int(text))
        if self.width == 1:
            return text
        first = self.emitter.value(f"insertelement {self.int_type} poison, i32 {text}, i64 0")
        return self.emitter.value(
            f"shufflevector {self.int_type} {first}, {self.int_type} poison, "
            f"{self.int_type} zeroinitializer"
        )

    def scalar_add(self, scalar: str | int, k: int) -> str | int:
        """A scalar plus an immediate; a number if the scalar is one."""
        text = str(scalar)
        if not text.startswith("%"):
            return signed32(int(text) + k)
        return text if k == 0 else self.emitter.value(f"add i32 {text}, {k}")


def mask_of_bits(lanes: LlvmLanes, bits: str) -> str:
    """The mask of a chunk from an i16, lane 0's bit lowest.

    A bitcast says the same, but without AVX-512 becomes an instruction or more for each bit.
    """
    e = lanes.emitter
    spread = lanes.splat(e.value(f"zext i16 {bits} to i32"))
    own = ", ".join(f"i32 {1 << lane}" for lane in range(CHUNK_LANES))
    own_bits = e.value(f"and {lanes.int_type} {spread}, <{own}>")
    return e.value(f"icmp ne {lanes.int_type} {own_bits}, zeroinitializer")


def intrinsic_declarations(text: str) -> str:
    """``declare`` lines for every ``@llvm.`` intrinsic that `text` calls."""
    found: dict[str, str] = {}
    for call in _INTRINSIC_CALL.finditer(text):
        result, name, arguments = call.groups()
        if name not in found:
            found[name] = f"declare {result} {name}({_argument_types(arguments)})"
    return "\n".join(found.values()) + "\n"


def _argument_types(inner: str) -> str:
    """The types of arguments ``type value, ...``."""
    types: list[str] = []
    depth = start = 0
    for position, char in enumerate(inner + "," if inner else ""):
        depth += (char in "(<{[") - (char in ")>}]")
        if char == "," and depth == 0:
            types.append(_leading_type(inner[start:position].strip()))
            start = position + 1
    return ", ".join(types)


def _leading_type(argument: str) -> str:
    """``<16 x float>`` of ``<16 x float> %a``."""
    if argument.startswith("<"):
        return argument[: argument.index(">") + 1]
    return argument.split()[0]


FoldOperation = Callable[[str, str], str]


def fold_operation(lanes: LlvmLanes, name: str) -> FoldOperation:
    """The primitive `name` on two I values: float primitives are wrapped in bit casts."""
    primitive: FoldOperation = getattr(lanes, name)
    if not name.startswith("f"):
        return primitive
    return lambda a, b: lanes.as_i(primitive(lanes.as_f(a), lanes.as_f(b)))
