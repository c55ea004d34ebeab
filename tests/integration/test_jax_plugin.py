"""JAX on the emulated chip: programs of tests/support/jax_programs, run by JAX unmodified.

Each program is a process of its own, as the platform is chosen when JAX starts. The plug-in is found by
the entry point that pyproject.toml states, here in metadata of the test's own: the tree need not be
installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@cache
def site() -> Path:
    """A folder with the metadata of an installed tpuc."""
    folder = Path(mkdtemp(prefix="tpuc-site"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = folder / f"tpuc-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: tpuc\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head)
    points = project["entry-points"]["jax_plugins"]
    lines = "".join(f"{name} = {module}\n" for name, module in points.items())
    (info / "entry_points.txt").write_text(f"[jax_plugins]\n{lines}")
    return folder


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "JAX_PLATFORMS": "tpuc", "PYTHONPATH": f"{ROOT}:{site()}", **variables,
    }  # fmt: skip
    command = [sys.executable, "-X", "faulthandler", *arguments]
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.parametrize(
    ("program", "target", "platforms"),
    [
        ("one_device", "v5e", "tpuc"),
        ("interrupted", "v5e", "tpuc"),
        ("slice", "v5e:4x2", "tpuc"),
        ("topologies", "v6e", "cpu"),
    ],
)
def test_program(program: str, target: str, platforms: str) -> None:
    """All checks of a program in one process: to start JAX takes longer than most of them."""
    program = f"tests.support.jax_programs.{program}"
    done = run("-m", program, TPUC_TARGET=target, JAX_PLATFORMS=platforms)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    outcomes: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert outcomes
    failed = [f"{name}: {text}" for name, text in outcomes.items() if text]
    assert not failed, "\n".join(failed)


def test_the_cpu_stays_the_default() -> None:
    code = "import jax; print(jax.devices()[0].platform, jax.jit(lambda x: x + 1)(1.0))"
    done = run("-c", code, JAX_PLATFORMS="")
    assert done.stdout.split() == ["cpu", "2.0"]
    assert not done.stderr


def test_a_platform_nobody_asked_for_says_how_to_ask() -> None:
    done = run("-c", "import jax; jax.devices('tpuc')", JAX_PLATFORMS="")
    assert done.returncode == 1
    assert "JAX_PLATFORMS=tpuc" in done.stderr


@pytest.mark.parametrize("platforms", ["tpu", "tpuc", "tpuc,cpu", "cpu,tpu"])
def test_programs_that_say_tpu_get_the_devices_of_tpuc(platforms: str) -> None:
    code = "import jax; print(jax.devices('tpu') == jax.devices('tpuc'), jax.devices('cpu')[0].platform)"
    done = run("-c", code, JAX_PLATFORMS=platforms)
    assert done.stdout.split() == ["True", "cpu"], done.stderr


def test_the_name_of_real_tpus_is_left_to_their_library(tmp_path: Path) -> None:
    (tmp_path / "libtpu.py").write_text("def get_library_path(): return '/nowhere/libtpu.so'\n")
    path = f"{ROOT}:{site()}:{tmp_path}"
    done = run("-c", "import jax; print(jax.devices()); jax.devices('tpu')", PYTHONPATH=path)
    assert done.stdout.startswith("[TpuDevice(id=0")
    assert "Unknown backend tpu." in done.stderr.splitlines()[-1]


def test_a_wrong_target_is_one_sentence() -> None:
    done = run("-c", "import jax; jax.devices()", TPUC_TARGET="v9")
    assert done.returncode == 1
    assert "v9" in done.stderr.splitlines()[-1]


def test_profile(tmp_path: Path) -> None:
    """The example trains as on the CPU, and the profile says what its step costs."""
    record, script = tmp_path / "profile.json", ROOT / "examples" / "jax" / "mlp_train.py"
    done = run("-m", "tpuc.profile", "--json", str(record), str(script))
    assert done.returncode == 0, done.stderr
    here = [float(word) for word in done.stdout.replace("->", " ").split()[-2:]]
    cpu = run(str(script), JAX_PLATFORMS="cpu").stdout
    there = [float(word) for word in cpu.replace("->", " ").split()[-2:]]
    assert here[1] < 0.1 * here[0]
    assert abs(here[1] - there[1]) < 2e-3  # products round to bf16
    (step,) = [row for row in json.loads(record.read_text()) if row["name"] == "jit_step"]
    assert (step["compiles"], step["runs"]) == (1, 60)
    assert step["cycles"] == sum(step["causes"].values())
    assert step["seconds"] > 0
    assert "jit_step" in done.stderr


EXAMPLES = {
    "flax_transformer": None,
    "flax_resnet": None,
    "reinforce": None,
    "haiku_transformer": "haiku",
    "equinox_diffusion": "equinox",
}
"""The package that each needs beside what is installed for tests."""
BOTH = """
import json, runpy, sys, jax
jax.config.update("jax_default_matmul_precision", "highest")
learn = runpy.run_path(f"examples/jax/{sys.argv[1]}.py")["main"]
here = learn(2)
with jax.default_device(jax.devices("cpu")[0]):
    print(json.dumps([here, learn(2)]))
"""


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_learn_as_on_the_cpu(name: str) -> None:
    package = EXAMPLES[name]
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    quick = "--xla_backend_optimization_level=0"  # most of the time went to LLVM on the CPU's side
    done = run("-c", BOTH, name, XLA_FLAGS=quick)
    assert done.returncode == 0, done.stderr
    here, there = json.loads(done.stdout.splitlines()[-1])
    assert here == pytest.approx(there, rel=1e-3)


def test_f64_narrowed_when_asked_for() -> None:
    code = (
        "import jax, numpy as np; jax.config.update('jax_enable_x64', True);"
        "x = jax.jit(lambda x: x * 2)(np.full(3, 1 / 3)); print(x.dtype, float(x[0]))"
    )
    done = run("-c", code, TPUC_F64="narrow")
    assert done.stdout.split() == ["float64", repr(float(np.float32(1 / 3) * 2))], done.stderr


INTERRUPTED = """
import os, signal, threading, time
import jax, jax.numpy as jnp
f, x = jax.jit(lambda x: x + 1), jnp.ones(8)
f(x)
stop, seen, armed = time.monotonic() + 2, 0, False

def handler(*_):  # raises once for each call that is under way
    global seen, armed
    if armed:
        seen, armed = seen + 1, False
        raise KeyboardInterrupt

def pester():
    while time.monotonic() < stop:
        time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, handler)
thread = threading.Thread(target=pester)
thread.start()
while thread.is_alive():
    armed = True
    try:
        f(x)
    except BaseException:
        pass
    armed = False
print("alive", seen > 0, float(f(x)[0]))
"""


def test_interrupts_at_any_moment_leave_the_process_alive() -> None:
    """A signal's handler may raise where jaxlib has just called us."""
    done = run("-c", INTERRUPTED)
    assert done.stdout.split() == ["alive", "True", "2.0"], (done.returncode, done.stderr[-2000:])


ENDING = """
import atexit
atexit.register(lambda: print(float(jax.jit(lambda x: x * 3)(2.0)), flush=True))
import jax
from jax.experimental import io_callback
send = jax.jit(lambda x: io_callback(lambda v: print(v, flush=True), None, x, ordered=True))
for n in range(3):
    send(float(n))
"""


def test_the_platform_works_until_the_last_function_at_exit() -> None:
    """JAX waits for ordered effects at exit, after functions that were registered later."""
    done = run("-c", ENDING)
    assert (done.returncode, done.stdout.split()) == (0, ["0.0", "1.0", "2.0", "6.0"]), done.stderr
