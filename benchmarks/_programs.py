"""The programs that several benchmarks time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import jddl
from benchmarks import hand_written
from benchmarks.hand_written import N
from jddl.loop import jitted_step
from jddl.runtimes.shard_map import device_mesh
from jddl.trees import step_key


def compiled(f: Any, mebibytes: float) -> tuple[Any, jax.Array]:
    """(f compiled on the whole array [N * d], one piece a device; that array, f32 normal)."""
    mesh = device_mesh((("data", N),))
    drawn = np.random.default_rng(0).standard_normal(N * int(mebibytes * 2**18))
    x = jax.device_put(drawn.astype(np.float32), jax.NamedSharding(mesh, P("data")))
    mapped = jax.shard_map(f, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    return jax.jit(mapped).lower(x).compile(), x


class Training:
    """jddl's training step and a hand-written one on the same data, each with its own state."""

    def __init__(self) -> None:
        self.experiment = jddl.validate({"all_reduce": "ring", "model": "mlp(hidden=16)"})
        self.put, self.mesh = self.experiment.runtime.put, self.experiment.mesh
        task = self.experiment.task
        self.batch = self.put(task.batch(0, "train", 0), self.mesh, P("data"))
        self.params, self.stats = self.experiment.model.init(jax.random.key(0))

    def _fresh(self, tree: Any) -> Any:
        return self.put(jax.tree.map(jnp.array, tree), self.mesh, P())

    def ours(self) -> Any:
        """A call that takes one step: compiled anew for each caller, with a state of its own."""
        step = jitted_step(self.experiment)
        state = self._fresh(self.experiment.strategy.init(self.params, self.stats))
        number = 0

        def call() -> Any:
            nonlocal state, number
            number += 1
            state, seen = step(state, self.batch, step_key(0, number))
            return state, seen

        return call

    def hand(self) -> Any:
        """The same of the hand-written step."""
        step = hand_written.step(self.experiment.model, self.experiment.task)
        params = self._fresh(self.params)
        opt = self._fresh(hand_written.OPTIMIZER.init(self.params))

        def call() -> Any:
            nonlocal params, opt
            params, opt, seen = step(params, opt, self.batch)
            return params, opt, seen

        return call


def warm(call: Any, steps: int = 20) -> Any:
    """Run some steps; returns the last one's results, ready."""
    for _ in range(steps):
        out = jax.block_until_ready(call())
    return jax.tree.map(np.asarray, out)
