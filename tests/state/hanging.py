"""A task whose fourth batch never comes."""

import time

from jddl.records import Task
from jddl.tasks.least_squares import least_squares


def hanging(batch_size: int) -> Task:
    """Least squares that hangs."""
    task = least_squares(batch_size)

    def batch(step, split, seed):
        if step == 3 and split == "train":
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
