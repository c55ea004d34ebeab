"""A slice on several processes and hosts: Ray actors, and who drives them (docs/workers.md)."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from compiler.diagnostics import CompileError, UnsupportedError
from runtime.arguments import checked_shape
from runtime.buffer import Array
from runtime.client import Device
from runtime.executable import Executable, Run
from runtime.loaded import Execution
from runtime.sharded_array import ShardedArray
from runtime.slice_executable import SliceExecutable
from runtime.spread import HostArray
from runtime.worker import Turn, WorkAssignment, Worker, shared_options
from tpu_sim.isa.container import dump_program
from tpu_sim.isa.errors import TpucError
from tpu_sim.isa.source_digest import source_digest
from tpu_sim.machine.faults import MachineFault
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.system.slice import Place, expect_done

_COUNT, _ADDRESS = r"[1-9]\d*", r"auto|[^@\s-][^@\s]*:[^@\s]+"
_SPEC = re.compile(f"(?P<alone>{_COUNT})|(?:(?P<count>{_COUNT})@)?(?P<address>{_ADDRESS})")


class WorkerLostError(TpucError, RuntimeError):
    """A worker ended before the program did; nothing of the call is left, and it can be made again."""


@dataclass(frozen=True)
class WorkerChoice:
    """`count` workers, one for each host without it, of the Ray cluster at `address`, or of one made here."""

    count: int | None
    address: str | None

    @classmethod
    def parse(cls, text: str) -> WorkerChoice:
        """``4``, ``auto``, ``ray://head:10001``, ``16@auto``; raises `ValueError` for anything else."""
        found = _SPEC.fullmatch(text)
        if found is None:
            raise ValueError(f"workers {text!r}: want a number, a Ray address, or N@ADDRESS")
        count = found["alone"] or found["count"]
        return cls(None if count is None else int(count), found["address"])


@dataclass
class _Member:
    """A worker: its actor, Ray's name for it, the numbers of its cores."""

    actor: Any
    name: str
    numbers: list[int]


class WorkerGroup:
    """The workers of one program, started at its first call, and anew after one was lost."""

    def __init__(self, choice: WorkerChoice, executable: SliceExecutable) -> None:
        self._choice, self._executable = choice, executable
        self._ray = import_ray()
        self._members: list[_Member] = []
        self.translate_seconds = 0.0

    def run(
        self, rows: Sequence[Sequence[HostArray]], tell: Callable[[str], None] | None
    ) -> tuple[list[ExecutionResult], list[list[HostArray]], float]:
        """Run once, with each core's arguments: what each took, its results, and seconds."""
        waiting: dict[int, Place] = {}
        with self._losses(waiting):
            if not self._members:
                self._begin(len(rows))
            pieces = [{n: list(rows[n]) for n in member.numbers} for member in self._members]
            self._each("start", pieces)
            self._take_turns(waiting, len(rows), tell)
            expect_done(waiting)
            ends = self._each("finish")
        costs = {n: cost for own, _, _ in ends for n, cost in own.items()}
        hosts = {n: host for _, own, _ in ends for n, host in own.items()}
        numbers = range(len(rows))
        seconds = max(seconds for _, _, seconds in ends)
        return [costs[n] for n in numbers], [hosts[n] for n in numbers], seconds

    @property
    def process_ids(self) -> list[int]:
        """The processes of the workers, each on its host."""
        return [self._ray.get(m.actor.__ray_call__.remote(_process_id)) for m in self._members]

    def close(self) -> None:
        """End the workers."""
        members, self._members = self._members, []
        for member in members:
            self._ray.kill(member.actor)

    def _begin(self, cores: int) -> None:
        """Start workers, contiguous cores each, neighbours on one host; the first of each host translates."""
        ray, executable = self._ray, self._executable
        connect(ray, self._choice)
        hosts = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
        count = min(self._choice.count or len(hosts), cores)
        places = [hosts[rank * len(hosts) // count] for rank in range(count)]
        for rank, host in enumerate(places):
            numbers = list(range(rank * cores // count, (rank + 1) * cores // count))
            where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(host, soft=False)
            remote = ray.remote(Worker).options(num_cpus=0, scheduling_strategy=where)
            actor = remote.remote(rank)
            self._members.append(_Member(actor, actor._actor_id.hex(), numbers))
        if set(self._each("version")) != {source_digest("compiler", "runtime", "tpu_sim")}:
            raise CompileError(
                "a host of the Ray cluster has another version of tpuc than this one"
            )
        owners = tuple(rank for rank, m in enumerate(self._members) for _ in m.numbers)
        share = shared_options(executable.options, max(map(places.count, places)))
        ids = tuple(device.id for device in executable.devices[:cores])
        data, topology = dump_program(executable.program), executable.device.topology
        assignment = ray.put(WorkAssignment(data, executable.digest, topology, ids, share, owners))
        is_first = [host not in places[:rank] for rank, host in enumerate(places)]
        firsts = [m.actor for m, first in zip(self._members, is_first, strict=True) if first]
        others = [m.actor for m, first in zip(self._members, is_first, strict=True) if not first]
        seconds = ray.get([actor.prepare.remote(assignment) for actor in firsts])
        ray.get([actor.prepare.remote(assignment) for actor in others])
        self.translate_seconds = max(seconds)

    def _take_turns(
        self, waiting: dict[int, Place], cores: int, tell: Callable[[str], None] | None
    ) -> None:
        """Turns of those that were written to, until nobody is; `waiting` is where cores stand."""
        count = len(self._members)
        inboxes: list[list[object]] | None = None
        while inboxes is None or any(inboxes):
            outs = {
                rank: m.actor.advance.options(num_returns=1 + count).remote(
                    *(inboxes[rank] if inboxes else ())
                )
                for rank, m in enumerate(self._members)
                if inboxes is None or inboxes[rank]
            }
            turns: list[Turn] = self._ray.get([out[0] for out in outs.values()])
            inboxes = [[] for _ in range(count)]
            for (rank, out), turn in zip(outs.items(), turns, strict=True):
                for number in self._members[rank].numbers:
                    waiting.pop(number, None)
                waiting.update(turn.waiting)
                for to in sorted(turn.written):
                    inboxes[to].append(out[1 + to])
            if tell is not None and waiting:
                cycle, kernel, _ = min(waiting.values())
                tell(f"cycle {cycle:,} in {kernel}, {cores - len(waiting)} of {cores} devices done")

    def _each(self, method: str, arguments: Sequence[object] | None = None) -> list[Any]:
        """Call a method of each worker, with an argument of its own, and wait for all."""
        calls = [
            getattr(m.actor, method).remote(*([arguments[rank]] if arguments else ()))
            for rank, m in enumerate(self._members)
        ]
        found: list[Any] = self._ray.get(calls)
        return found

    @contextmanager
    def _losses(self, waiting: dict[int, Place]) -> Iterator[None]:
        """Whatever goes wrong ends the workers; what a worker raised is raised here."""
        errors = importlib.import_module("ray.exceptions")
        try:
            yield
        except errors.RayError as error:
            cause = getattr(error, "cause", None)
            lost = self._loss(error, waiting)
            self.close()
            if isinstance(cause, Exception) and not isinstance(cause, errors.RayError):
                raise cause from (None if isinstance(cause, MachineFault) else error)
            raise lost from error
        except BaseException:
            self.close()
            raise

    def _loss(self, error: Exception, waiting: dict[int, Place]) -> WorkerLostError:
        name = getattr(error, "actor_id", None)
        found = [rank for rank, m in enumerate(self._members) if m.name == name]
        who = "a worker was lost"
        if found:
            first, *_, last = (numbers := self._members[found[0]].numbers) * 2
            devices = f"device {first}" if first == last else f"devices {first} to {last}"
            who = f"worker {found[0] + 1} of {len(self._members)}, which has {devices}, was lost"
            places = [waiting[n] for n in numbers if n in waiting]
            who += f" at cycle {min(places)[0]:,} in {min(places)[1]}" if places else ""
        reason = str(error).strip().splitlines()
        return WorkerLostError(
            f"{who}; nothing was written, run it again ({reason[0] if reason else type(error).__name__})"
        )


@dataclass(eq=False)
class SpreadExecutable(SliceExecutable):
    """A program of a slice whose devices are those of workers; global arrays in and out.

    `tell` hears how far a call is. Arrays stay on no device between calls.
    """

    choice: WorkerChoice = field(default_factory=lambda: WorkerChoice(1, None))
    tell: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.group = WorkerGroup(self.choice, self)

    def call(
        self,
        args: Iterable[npt.ArrayLike | Array | ShardedArray],
        *,
        on_device: bool | None = None,
        device: Device | None = None,
    ) -> Run:
        """Run once; it has ended when this returns. Results are NumPy arrays."""
        if device is not None or on_device:
            raise CompileError("results of a program on workers come to the host")
        self._warn_of_made_up()
        values = list(args)
        self.expect_count(len(values))
        pieces = [self._cut(number, value) for number, value in enumerate(values)]
        rows = [[piece[n] for piece in pieces] for n in range(self.device_count)]
        self.cores, hosts, seconds = self.group.run(rows, self.tell)
        self.stages.setdefault("translate", self.group.translate_seconds)
        slowest = Execution()
        slowest.cost = max(self.cores, key=lambda core: core.cycles)
        slowest.seconds, slowest.is_ended = seconds, True
        self._last = slowest
        results = [
            spread.join([host[number] for host in hosts])
            for number, spread in enumerate(self.spreads_out)
        ]
        return Run(self, slowest, results)

    def _cut(self, number: int, value: npt.ArrayLike | Array | ShardedArray) -> list[HostArray]:
        spread = self.spreads_in[number]
        value = value.numpy() if isinstance(value, ShardedArray) else value
        return spread.cut(checked_shape(number, value, self.inputs[number], spread.shape))


def spread_over(executable: Executable, choice: WorkerChoice) -> SpreadExecutable:
    """The same program on workers."""
    if not isinstance(executable, SliceExecutable):
        raise CompileError(
            "workers share the devices of a slice, and this program is for one device"
        )
    return SpreadExecutable(
        executable.program, executable.device, executable.options, executable.texts,
        executable.compile_seconds, executable.stages, executable.digest,
        devices=executable.devices, slice=executable.slice, mesh=executable.mesh, choice=choice,
    )  # fmt: skip


def import_ray() -> Any:
    """Ray, which is imported by who wants workers alone."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
    except ImportError as error:
        message = "workers need the package ray: pip install 'tpuc[ray]'"
        raise UnsupportedError(message) from error
    return ray


def connect(ray: Any, choice: WorkerChoice) -> None:
    """Be a driver of the cluster, of a new one on this computer without an address, or stay one where this
    process is one already."""
    if ray.is_initialized():
        return
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    errors = importlib.import_module("ray.exceptions")
    try:
        if choice.address is None:
            ray.init("local", num_cpus=choice.count, include_dashboard=False, **quiet)
        else:
            ray.init(choice.address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, errors.RayError) as error:
        where = choice.address or "a new one"
        lines = str(error).strip().splitlines() or [type(error).__name__]  # some hold a traceback
        hint = "" if choice.address is None else f"; {_of_tokens()}"
        raise CompileError(f"cannot connect to Ray ({where}): {lines[-1]}{hint}") from error


def _of_tokens() -> str:
    """What to see to where a cluster may ask for a token: Ray does not say that it is this."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return "is the token in ~/.ray/auth_token or RAY_AUTH_TOKEN that of the cluster?"
    return (
        "if the cluster asks for a token, set RAY_AUTH_MODE=token, and have its token in "
        "~/.ray/auth_token or RAY_AUTH_TOKEN"
    )


def _process_id(worker: object) -> int:
    return os.getpid()
