"""A step that hangs ends the program with what it was doing."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Callable

EXIT_CODE = 3


class Watchdog:
    """Exits with code 3 when no step has finished for `limit` seconds (0: never).

    It prints the step, every thread's stack, and what `describe()` says of the step's collectives.
    """

    def __init__(self, limit: float, describe: Callable[[], str]) -> None:
        self.limit, self.describe = limit, describe
        self.step, self.beat, self.over = 0, threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watchdog:
        if self.limit:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.beat.set()

    def alive(self, step: int) -> None:
        """Say that the loop is about to do this step."""
        self.step = step
        self.beat.set()

    def _watch(self) -> None:
        self.beat.wait()  # the first step compiles: the clock starts after it
        while not self.over.is_set():
            self.beat.clear()
            if not self.beat.wait(self.limit):
                print(
                    f"jddl: step {self.step} has not finished in {self.limit:g} s", file=sys.stderr
                )
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
                print(self.describe(), file=sys.stderr, flush=True)
                os._exit(EXIT_CODE)
