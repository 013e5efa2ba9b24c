"""What one would write by hand, to compare jddl's compiled programs and times with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P

from jddl import assembly
from jddl.records import Context
from jddl.runtimes.shard_map import device_mesh

N = 8
OPTIMIZER = optax.sgd(0.1, momentum=0.9)


def ring(x):
    """A ring all-reduce of f32[d] over 8 devices, written out with ppermute."""
    rank = lax.axis_index("data")
    ahead = [(i, (i + 1) % N) for i in range(N)]
    length = -(-x.size // N)
    chunks = jnp.pad(x, (0, N * length - x.size)).reshape(N, length)
    for t in range(N - 1):
        received = lax.ppermute(chunks[(rank - t) % N], "data", ahead)
        chunks = chunks.at[(rank - t - 1) % N].add(received)
    for t in range(N - 1):
        received = lax.ppermute(chunks[(rank + 1 - t) % N], "data", ahead)
        chunks = chunks.at[(rank - t) % N].set(received)
    return chunks.reshape(-1)[: x.size]


def step(model, task):
    """A jitted data-parallel step: (params, opt, batch) -> (params, opt, local sums)."""
    ctx = Context(train=True)

    def local(params, opt, batch):
        def loss(params):
            out, *_ = assembly.forward(model, params, {}, batch["inputs"], ctx)
            total, _ = task.loss(out, batch, ctx)
            return total / len(out), (total, task.metrics(out, batch, ctx)["accuracy"][0])

        gradient, seen = jax.grad(loss, has_aux=True)(params)
        flat, unravel = ravel_pytree(gradient)
        updates, opt = OPTIMIZER.update(unravel(ring(flat) / N), opt)
        return optax.apply_updates(params, updates), opt, jnp.stack(seen)[None]

    mapped = jax.shard_map(
        local,
        mesh=device_mesh((("data", N),)),
        in_specs=(P(), P(), P("data")),
        out_specs=(P(), P(), P("data")),
        check_vma=False,
    )
    return jax.jit(mapped, donate_argnums=(0, 1))
