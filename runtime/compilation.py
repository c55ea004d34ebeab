"""The compiler as the runtime calls it; imported when there is something to compile."""

from __future__ import annotations

import time

from compiler.driver import CompiledModule, CompileOptions, compile_module
from compiler.frontends.models import parse_model
from compiler.hlo.ir import HloModule
from tpu_sim.isa.chips import load_chip


def compile_source(
    text: str | bytes, name: str, target: str, options: CompileOptions
) -> CompiledModule:
    """Compile a model's text or bytecode; `timings` begins with parsing."""
    started = time.perf_counter()
    module = parse_model(text, name)
    parsed = time.perf_counter()
    compiled = compile_module(module, load_chip(target), options)
    compiled.timings = {"parse": parsed - started, **compiled.timings}
    return compiled


def compile_hlo(module: HloModule, target: str, options: CompileOptions) -> CompiledModule:
    """Compile a module in place."""
    return compile_module(module, load_chip(target), options)
