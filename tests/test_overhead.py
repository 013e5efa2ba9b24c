"""The compiled training step holds nothing that a hand-written one does not."""

import re
from collections import Counter

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P

import jddl
from jddl import assembly
from jddl.experiment import abstract_inputs
from jddl.loop import compiled_step
from jddl.records import Context
from jddl.runtimes.shard_map import device_mesh

N = 8


def ring(x):
    """A ring all-reduce of f32[d] written out."""
    rank = lax.axis_index("data")
    ahead = [(i, (i + 1) % N) for i in range(N)]
    length = -(-x.size // N)
    chunks = jnp.pad(x, (0, N * length - x.size)).reshape(N, length)
    for t in range(N - 1):
        chunks = chunks.at[(rank - t - 1) % N].add(
            lax.ppermute(chunks[(rank - t) % N], "data", ahead)
        )
    for t in range(N - 1):
        chunks = chunks.at[(rank - t) % N].set(
            lax.ppermute(chunks[(rank + 1 - t) % N], "data", ahead)
        )
    return chunks.reshape(-1)[: x.size]


def operations(compiled):
    """Heavy operations of the compiled program, by opcode."""
    found = re.findall(r"= \S+ ([a-z][\w\-]*)\(", compiled.as_text())
    kinds = ("dot", "convolution", "collective-permute", "all-reduce", "all-gather", "while",
             "custom-call", "conditional", "sort", "rng-bit-generator", "scatter", "gather")  # fmt: skip
    return {kind: Counter(found)[kind] for kind in kinds}


def test_the_step_has_a_hand_written_steps_operations():
    experiment = jddl.validate({"all_reduce": "ring", "model": "mlp(hidden=16)"})
    model, task = experiment.model, experiment.task
    tx = optax.sgd(0.1, momentum=0.9)
    ctx = Context(train=True)

    def step(params, opt, batch):
        def loss(params):
            out, _ = assembly.forward(model, params, {}, batch["inputs"], ctx)
            total, _ = task.loss(out, batch, ctx)
            return total / len(out), (total, task.metrics(out, batch, ctx)["accuracy"][0])

        gradient, seen = jax.grad(loss, has_aux=True)(params)
        flat, unravel = ravel_pytree(gradient)
        updates, opt = tx.update(unravel(ring(flat) / N), opt)
        return optax.apply_updates(params, updates), opt, [s[None] for s in seen]

    state, batch, _ = abstract_inputs(experiment)
    opt = jax.eval_shape(tx.init, state.params)
    specs = ((P(), P(), P("data")), (P(), P(), P("data")))
    mesh = device_mesh((("data", N),))
    mapped = jax.shard_map(step, mesh=mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)
    by_hand = jax.jit(mapped, donate_argnums=(0, 1)).lower(state.params, opt, batch).compile()
    ours = operations(compiled_step(experiment))
    assert ours == operations(by_hand)
    assert ours["collective-permute"] == 14 and ours["dot"] > 0
