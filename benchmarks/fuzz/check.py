"""One module, run every way and judged: what is wrong with it, and whose fault that is."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.fuzz import run
from benchmarks.fuzz.compare import Difference, difference
from benchmarks.fuzz.exactness import is_tainted, reads_bits
from benchmarks.fuzz.inputs import inputs_for
from benchmarks.fuzz.noise import evaluate_noisily
from benchmarks.fuzz.xla_process import XlaProcess
from compiler.diagnostics import CompileError, ResourceExhaustedError, UnsupportedError
from compiler.frontends.models import parse_model
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify

Array = npt.NDArray[Any]

OK = "ok"
WRONG = "wrong"  # the chip against the evaluator, with XLA on the evaluator's side or absent
EVALUATOR = "evaluator"  # the evaluator against chip and XLA
XLA = "xla"  # XLA against both: often its own mistake, always worth a look
ALL_DIFFER = "all differ"
ZERO_SIGN = "zero sign"  # only signs of zeros differ
REFUSED = "refused"
INTERNAL = "internal"
MACHINES = "machines"
PRINTING = "printing"
FRONTENDS = "frontends"  # as StableHLO it is refused, or means something else
GENERATOR = "generator"  # the module is not valid: the generator's own mistake


@dataclass(frozen=True)
class Outcome:
    """`signature` is equal for findings of probably one cause."""

    kind: str
    detail: str = ""
    signature: str = ""
    notes: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For a line of JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Ways:
    """What to compare with. `numpy_cycles`: programs of at most so many run on NumPy too;
    `stablehlo`: whether the module goes through the other frontend as well, where XLA translates it;
    `other`: the same program as StableHLO that somebody else wrote."""

    xla: XlaProcess | None = None
    numpy_cycles: int = 0
    printing: bool = True
    target: str = "v5e"
    stablehlo: bool = False
    other: str = ""


def check(text: str, ways: Ways, seed: int = 0) -> Outcome:
    """Judge a module."""
    try:
        module = parse_module(text)
        verify(module)
        inputs = inputs_for(module, seed)
    except CompileError as error:
        return Outcome(GENERATOR, str(error), signature(error.message))
    except Exception as error:
        return internal(error, "while reading: ")
    try:
        want = run.evaluated(text, inputs)
    except UnsupportedError as error:
        return Outcome(REFUSED, f"by the evaluator: {error.message}", signature(error.message))
    except Exception as error:
        return internal(error, "in the evaluator: ")
    if ways.printing:
        try:
            if not run.is_printed_as_read(text):
                return Outcome(PRINTING, "printed, read and printed again it differs", "printing")
        except Exception as error:
            return internal(error, "while printing: ")
    other = ways.other
    if not other and ways.stablehlo and ways.xla is not None and _has_a_translation(text):
        status, translated = ways.xla.stablehlo(text)
        other = translated if status == "ok" else ""
    found = _as_stablehlo(text, other, inputs, want) if other else None
    if found is not None:
        return found
    try:
        program = run.compiled(text, ways.target)
        got, cycles = run.executed(program, inputs)
    except (UnsupportedError, ResourceExhaustedError) as error:
        return Outcome(REFUSED, error.message, signature(error.message))
    except Exception as error:
        return internal(error)
    outcome = _judge(text, inputs, want, got, ways.xla)
    if outcome.kind in (OK, XLA, ZERO_SIGN) and cycles <= ways.numpy_cycles:
        return _on_numpy(program, inputs, got, cycles) or outcome
    return outcome


def _has_a_translation(text: str) -> bool:
    """Whether StableHLO can say what the module does.

    Its select_and_scatter has no dilation of windows, and XLA translates such windows without it.
    """
    return not any(
        instr.opcode == "select-and-scatter"
        and any(d.window_dilation != 1 or d.base_dilation != 1 for d in instr.window.dims)
        for computation in parse_module(text).computations.values()
        for instr in computation
    )


def _as_stablehlo(
    text: str, other: str, inputs: Sequence[Array], want: Sequence[Array]
) -> Outcome | None:
    """What is found when the module is read as StableHLO, `other`."""
    try:
        got = list(evaluate(parse_model(other), list(inputs), run.PRECISION))
    except CompileError as error:
        return Outcome(FRONTENDS, error.message, f"stablehlo {signature(error.message)}")
    except Exception as error:
        return internal(error, "as StableHLO: ")
    module = parse_module(text)

    def again(seed: int, scale: float) -> list[Array]:
        return evaluate_noisily(parse_module(text), inputs, seed, scale)

    found = difference(got, want, again, is_tainted(module), reads_bits=reads_bits(module))
    if found is None or found.kind == "zero sign":
        return None
    return Outcome(FRONTENDS, f"as StableHLO: {found.text}", "stablehlo value")


def _judge(
    text: str,
    inputs: Sequence[Array],
    want: Sequence[Array],
    got: Sequence[Array],
    xla: XlaProcess | None,
) -> Outcome:
    module = parse_module(text)
    tainted, bits = is_tainted(module), reads_bits(module)

    def again(seed: int, scale: float) -> list[Array]:
        return evaluate_noisily(parse_module(text), inputs, seed, scale)

    def loosely(seed: int, scale: float) -> list[Array]:
        return evaluate_noisily(parse_module(text), inputs, seed, scale, narrow=True)

    chip = difference(got, want, again, tainted, reads_bits=bits)
    notes: dict[str, str] = {}
    theirs: list[Array] | None = None
    if xla is not None:
        status, answer = xla.run(text, inputs)
        theirs = _retyped(answer, want) if status == "ok" else None
        if theirs is None:
            notes["xla"] = f"{status}: {answer}"
    if theirs is None:
        return _without_xla(chip, notes)
    other = difference(theirs, want, loosely, True, 4.0, bits)
    return _with_xla(chip, other, lambda: difference(got, theirs, loosely, True, 4.0, bits), notes)


def _retyped(theirs: Sequence[Array], want: Sequence[Array]) -> list[Array]:
    """XLA's StableHLO has unsigned random bits only: the same bits in the type asked for."""
    return [
        a.view(b.dtype) if a.dtype.kind in "iu" and a.dtype.name == f"u{b.dtype.name}" else a
        for a, b in zip(theirs, want, strict=True)
    ]


def _without_xla(chip: Difference | None, notes: dict[str, str]) -> Outcome:
    if chip is None:
        return Outcome(OK, notes=notes)
    if chip.kind == "zero sign":  # XLA's freedom in many places: alone it decides nothing
        return Outcome(OK, notes={**notes, "zero": chip.text})
    return Outcome(WRONG, chip.text, notes=notes)


def _with_xla(
    chip: Difference | None, other: Difference | None, between: Any, notes: dict[str, str]
) -> Outcome:
    if chip is None:
        if other is None or other.kind == "zero sign":
            return Outcome(OK, notes=notes)
        return Outcome(XLA, f"xla: {other.text}", notes=notes)
    if chip.kind == "zero sign":
        if other is not None and other.kind == "value":
            return Outcome(XLA, f"xla: {other.text}", notes=notes)
        if other is not None:
            return Outcome(OK, notes={**notes, "zero": "XLA has other signs of zero, too"})
        return Outcome(ZERO_SIGN, f"{chip.text}; XLA agrees with the evaluator", notes=notes)
    if other is None or other.kind == "zero sign":
        return Outcome(WRONG, f"{chip.text}; XLA agrees with the evaluator", notes=notes)
    if between() is None:
        return Outcome(EVALUATOR, f"the evaluator is alone: chip {chip.text}", notes=notes)
    return Outcome(ALL_DIFFER, f"chip: {chip.text}; xla: {other.text}", notes=notes)


def _on_numpy(
    program: run.Executable, inputs: Sequence[Array], got: Sequence[Array], cycles: int
) -> Outcome | None:
    try:
        others, other_cycles = run.executed(run.on_numpy(program), inputs)
    except Exception as error:
        return Outcome(
            MACHINES, f"NumPy machine: {_head(error)}", "numpy machine " + signature(str(error))
        )
    if cycles != other_cycles:
        return Outcome(MACHINES, f"{cycles} cycles on LLVM, {other_cycles} on NumPy", "cycles")
    for i, (a, b) in enumerate(zip(got, others, strict=True)):
        if not np.array_equal(_bits(a), _bits(b)):
            return Outcome(MACHINES, f"output {i} differs in its bits", "bits")
    return None


def _bits(array: Array) -> Array:
    """The bytes, every NaN made one: payloads are the host's."""
    plain = np.array(array)
    if plain.dtype.kind in "fc" or plain.dtype.name.startswith(("bfloat", "float")):
        with np.errstate(all="ignore"):
            plain[np.isnan(plain)] = np.nan
    return np.frombuffer(np.ascontiguousarray(plain).tobytes(), np.uint8)


def _head(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def internal(error: BaseException, where: str = "") -> Outcome:
    """An exception that is no answer; a CompileError that is not Unsupported is none either."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "/benchmarks/" not in f.filename
    ]
    last = " < ".join(
        f"{'/'.join(f.filename.split('/')[-2:])}:{f.lineno}" for f in reversed(frames[-4:])
    )
    place = f"{frames[-1].filename.split('/')[-1]}:{frames[-1].name}" if frames else ""
    return Outcome(
        INTERNAL, f"{where}{_head(error)} @ {last}", f"{place} {signature(_head(error))}"
    )


def signature(message: str) -> str:
    """A message without names, numbers and shapes."""
    line = (message.strip().splitlines() or [""])[0]
    line = re.sub(r"%[\w.\-]+", "%", line)
    line = re.sub(r"\b(pred|[suf]\d+|bf16|c64|f8\w+)\b(\[[\d,]*\](\{[^}]*\})?)?", "T", line)
    line = re.sub(r"\b[vprstc]\d+(_\w+)?\b", "V", line)
    return re.sub(r"\d[\d,. ]*", "N", line)[:160]
