"""Kill a training run with SIGKILL at random moments, twenty times, and let it finish.

Run by test_resume.py in a process of its own: it imports everything once and forks a child a life,
before any JAX backend exists.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import jax
import orbax.checkpoint  # noqa: F401 - imported before the fork

from jddl.loop import train

KILLS = 20
CONFIG = {
    "task": "least_squares",
    "model": "mlp(hidden=4)",
    "mesh": "data=4",
    "runtime": "vmap",
    "batch_size": 24,
    "aggregator": "error_feedback(int8(stochastic=True))",
    "optimizer": "sgd(learning_rate=0.05, momentum=0.9)",
    "steps": 300,
    "log_every": 1,
    "save_every": 3,
    "keep_last": 2,
}


def life(workdir):
    """A child that trains; returns its process id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            train(CONFIG, workdir)
            status = 0
        finally:
            os._exit(status)
    return child


def file(path):
    """(which file, how long) of a path: the writer replaces metrics.jsonl when a life begins."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None, 0
    return found.st_ino, found.st_size


def main(folder):
    jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    whole, broken = folder / "whole", folder / "broken"
    assert os.waitpid(life(whole), 0)[1] == 0
    draw, kills, saves, metrics = random.Random(0), 0, 0, broken / "metrics.jsonl"
    while kills < KILLS:
        before, _ = file(metrics)
        child, start = life(broken), None
        while True:  # until it has loaded what was saved, and gone on
            inode, size = file(metrics)
            if inode != before:
                start = size if start is None else start
                if size > start:
                    break
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the run ended before it was killed"
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.3))
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        kills += 1
        names = os.listdir(broken / "checkpoints") if (broken / "checkpoints").exists() else []
        saves += any(not name.isdigit() for name in names)
    assert os.waitpid(life(broken), 0)[1] == 0
    same = (whole / "metrics.jsonl").read_bytes() == (broken / "metrics.jsonl").read_bytes()
    print(f"kills {kills}, while saving {saves}, same {same}, rows {CONFIG['steps'] + 1}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
