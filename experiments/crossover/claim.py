"""From which size on a ring beats recursive doubling."""

from jddl.collectives._api import schedule
from jddl.experiment import load_config, validate
from jddl.loop import traffic
from jddl.studies.reproduce import Claim, Expected

N, LATENCY, BANDWIDTH = 8, 1e-5, 1e10
# log2(n) (a + M/b) = 2 (n-1) (a + M/(n b)), solved for M
CROSSOVER = LATENCY * BANDWIDTH * (2 * (N - 1) - 3) / (3 - 2 * (N - 1) / N)


def run(folder, quick):
    """Bisect the two schedules' own times on the config's cluster; ask a training step too."""
    config = dict(load_config(folder / "config.py")[0])
    cluster = validate(config).cluster
    ring, doubling = schedule("ring", N), schedule("recursive_doubling", N)
    low, high = 8, 1 << 30
    while high - low > 8:
        middle = (low + high) // 16 * 8
        faster = ring.time(middle, cluster) < doubling.time(middle, cluster)
        low, high = (low, middle) if faster else (middle, high)
    small, large = (
        traffic(validate(config | {"model": model, "all_reduce": "ring"}))["modelled_step_seconds"]
        - traffic(validate(config | {"model": model, "all_reduce": "recursive_doubling"}))[
            "modelled_step_seconds"
        ]
        for model in ("mlp(hidden=64)", "mlp(hidden=1024)")
    )
    return {
        "crossover in bytes": high,
        "ring is slower on 36 kB of gradients": small > 0,
        "ring is faster on 4.5 MB of gradients": large < 0,
    }


CLAIM = Claim(
    source="Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in "
    "MPICH, 2005: short messages by recursive doubling, long ones by a ring's two phases",
    statement="On links of 10 us and 10 GB/s with 8 workers a ring is faster from 880 kB on",
    kind="modelled time",
    expected={
        "crossover in bytes": Expected(CROSSOVER, tolerance=16),
        "ring is slower on 36 kB of gradients": Expected(1),
        "ring is faster on 4.5 MB of gradients": Expected(1),
    },
    run=run,
)
