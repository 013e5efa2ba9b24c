"""A step that hangs ends the program with what it was doing."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_CODE = 3


@contextmanager
def deadline(limit: float, step: int, collectives: str) -> Iterator[None]:
    """End the program with code 3 if the body has not ended after `limit` seconds (0: never).

    It prints the step, every thread's stack, and this text on the step's collectives.
    """
    if not limit:
        yield
        return
    timer = threading.Timer(limit, _end, (limit, step, collectives))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(limit: float, step: int, collectives: str) -> None:
    print(f"jddl: step {step} has not finished in {limit:g} s", file=sys.stderr)
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    print(collectives, file=sys.stderr, flush=True)
    os._exit(EXIT_CODE)
