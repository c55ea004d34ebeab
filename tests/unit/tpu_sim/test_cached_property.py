"""Values that are made at the first use: once for each object, without a lock that a fork leaves taken."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.architecture.sources import modules, source
from tpu_sim.isa.cached_property import cached_property


class Slow:
    """What takes as long as somebody says."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    @cached_property
    def value(self) -> object:
        """Its value."""
        self.begun.set()
        self.may_end.wait()
        return object()


def test_a_value_is_made_once_and_kept_with_its_object() -> None:
    first, second = Slow(), Slow()
    first.may_end.set()
    second.may_end.set()
    assert first.value is first.value is not second.value
    assert vars(first)["value"] is first.value
    assert Slow.value.__doc__ == "Its value."


def test_threads_that_come_at_the_same_time_get_the_same() -> None:
    slow = Slow()
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(lambda: slow.value) for _ in range(4)]
        slow.begun.wait()
        time.sleep(0.05)
        slow.may_end.set()
    assert len({id(one.result()) for one in found}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_does_not_wait_for_a_thread_that_it_has_not() -> None:
    held, other = Slow(), Slow()
    other.may_end.set()
    thread = threading.Thread(target=lambda: held.value)
    thread.start()
    held.begun.wait()
    child = os.fork()
    if not child:
        signal.alarm(30)  # whoever waits for ever is ended, and seen
        os._exit(0 if other.value is other.value else 1)
    _, status = os.waitpid(child, 0)
    held.may_end.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_nothing_of_the_product_takes_the_one_with_a_lock() -> None:
    users = [name for name in modules() if ("functools", "cached_property") in source(name).imports]
    assert users == []
