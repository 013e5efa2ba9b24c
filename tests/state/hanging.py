"""Tasks with a batch that never comes, or that holds an infinite label."""

import threading
import time

from jddl.records import Task
from jddl.tasks.least_squares import least_squares


def hanging(batch_size: int, step: int = 4) -> Task:
    """Least squares that hangs at this step (1 is the first)."""
    task, at = least_squares(batch_size), step - 1

    def batch(step, split, seed):
        watched = any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
        if step == at and split == "train" and watched:  # not while only its shape is asked for
            time.sleep(60)
        return task.batch(step, split, seed)

    return task._replace(batch=batch)


def poisoned(batch_size: int) -> Task:
    """Least squares with one infinite label in the batch of step 5."""
    task = least_squares(batch_size)

    def batch(step, split, seed):
        rows = dict(task.batch(step, split, seed))
        if step == 4 and split == "train":
            rows["labels"] = rows["labels"].copy()
            rows["labels"][7] = float("inf")
        return rows

    return task._replace(batch=batch)
