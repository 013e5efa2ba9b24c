"""The learning rate of a large batch, from that of a small one."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import optax

EXAMPLES = (
    "scaled(rate=0.1, base_batch=60)",
    "scaled(rate=0.1, base_batch=60, rule='sqrt', warmup=20)",
    "scaled(base_batch=60, rate=cosine_decay_schedule(init_value=0.1, decay_steps=100))",
)
RULES = {"linear": lambda ratio: ratio, "sqrt": math.sqrt}


def scaled(
    rate: optax.ScalarOrSchedule,
    batch_size: int,
    base_batch: int,
    rule: str = "linear",
    warmup: int = 0,
) -> optax.Schedule:
    """rate(t) times 1 + (k - 1) min(t / warmup, 1), k = batch_size / base_batch or its root.

    'linear' keeps the sum of steps an epoch; 'sqrt' keeps the variance of the update that comes
    from drawing batches, since the variance of a mean over a batch falls with its size. The warm-up
    begins at the rate of the small batch and rises linearly, so steps count from 0 and step
    `warmup` is the first at the full rate; the paper's own is over 5 epochs.

    Args:
      rate: the rate (or a schedule of it) that is right at `base_batch`.
      batch_size: examples in a global training batch (the run's `batch_size`).
      base_batch: examples of the batch for which `rate` was found.
      rule: 'linear' or 'sqrt'.
      warmup: steps; 0: the scaled rate from the first step on.

    Raises:
      ValueError: an unknown rule, a base_batch below 1, a negative warmup.

    Reference: Goyal et al., "Accurate, large minibatch SGD", 2017 (linear, gradual warm-up);
    Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014 (sqrt).
    """
    if rule not in RULES:
        raise ValueError(f"rule is one of {', '.join(RULES)}, not {rule!r}")
    if base_batch < 1 or warmup < 0:
        raise ValueError(f"base_batch is at least 1 and warmup 0, not {base_batch} and {warmup}")
    gain = RULES[rule](batch_size / base_batch) - 1.0

    def at(count: Any) -> Any:
        share = jnp.minimum(count / warmup, 1.0) if warmup else 1.0
        return (rate(count) if callable(rate) else rate) * (1.0 + gain * share)

    return at
