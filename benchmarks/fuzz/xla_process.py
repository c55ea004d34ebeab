"""XLA's CPU backend in a process of its own: it may crash, hang, or refuse.

The child reads pickled (text, arrays) and answers ("ok", arrays) or ("no", reason); without arrays the
answer is the module as StableHLO, ("ok", text).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def available() -> bool:
    """Whether jaxlib is installed."""
    import importlib.util

    return importlib.util.find_spec("jaxlib") is not None


class XlaProcess:
    """The parent's end; a dead child is started again."""

    def __init__(self, seconds: float = 600.0) -> None:
        self.seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, text: str, inputs: Sequence[Array]) -> tuple[str, Any]:
        """("ok", outputs), ("no", reason), ("crash", ..) or ("hang", ..)."""
        status, value = self._ask(text, [_sent(a) for a in inputs])
        return status, [_received(a) for a in value] if status == "ok" else value

    def stablehlo(self, text: str) -> tuple[str, str]:
        """The module as XLA writes it in StableHLO: ("ok", text), or as `run` says."""
        return self._ask(text, None)

    def _ask(self, text: str, sent: list[Any] | None) -> tuple[str, Any]:
        child = self._started()
        assert child.stdin is not None and child.stdout is not None
        try:
            _write(child.stdin, (text, sent))
            if not select.select([child.stdout], [], [], self.seconds)[0]:
                self.close()
                return "hang", f"no answer in {self.seconds:.0f} s"
            status, value = _read(child.stdout)
            return status, value
        except (EOFError, BrokenPipeError, struct.error):
            code = child.wait()
            self._child = None
            return "crash", f"exit code {code}"

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            with contextlib.suppress(BrokenPipeError), self._child:  # ends its pipes, too
                self._child.kill()
            self._child = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
            self._child = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fuzz.xla_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        return self._child


def _sent(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.name, array.shape, np.ascontiguousarray(array).tobytes()


def _received(sent: tuple[str, tuple[int, ...], bytes]) -> Array:
    import ml_dtypes

    name, dims, data = sent
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    return np.frombuffer(data, dtype).reshape(dims)


def _write(pipe: IO[bytes], value: object) -> None:
    data = pickle.dumps(value)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(pipe.read(struct.unpack("<Q", head)[0]))


def _serve() -> None:
    """The child: answers until its input ends."""
    import jax
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    from jaxlib import _hlo, _jax

    client = jax.devices("cpu")[0].client
    devices = xla_client.DeviceList(tuple(client.devices()[:1]))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            text, sent = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            module = _hlo.hlo_module_from_text(text)
            stablehlo = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
            if sent is None:
                with mlir.make_ir_context():
                    _write(out, ("ok", str(ir.Module.parse(stablehlo))))
                continue
            run = client.compile_and_load(stablehlo, devices, xla_client.CompileOptions())
            with jax.enable_x64(True):
                buffers = [jax.device_put(_received(a)) for a in sent]
            outputs = run.execute_sharded(buffers).disassemble_into_single_device_arrays()
            answer: Any = ("ok", [_sent(np.asarray(output[0])) for output in outputs])
        except Exception as error:
            answer = ("no", f"{type(error).__name__}: {str(error)[:300]}")
        _write(out, answer)


if __name__ == "__main__":
    _serve()
