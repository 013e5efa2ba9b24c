"""Planted bugs: each makes a config's training finite, plausible and wrong.

`BUGS[name] = (config, make, words, leaves)`: `make(config)` builds the experiment with the bug in it,
`words` must stand in the cause that is named, and `leaves` are the leaves in which it must begin
(None: in all of them; other leaves may follow a step later).
"""

from unittest import mock

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from jddl import assembly, catalog
from jddl.experiment import build
from jddl.mesh import P as Spec
from jddl.trees import Local

N = 4
BASE = {
    "task": "least_squares",
    "model": "mlp(hidden=4)",
    "mesh": f"data={N}",
    "runtime": "vmap",
    "batch_size": 24,
}
MOMENTUM = "sgd(learning_rate=0.05, momentum=0.9)"


def mean(tree):
    return jax.tree.map(lambda g: lax.pmean(g, "data"), tree)


def rank():
    return lax.axis_index("data")


def stateless(update):
    return optax.GradientTransformationExtraArgs(
        lambda params: optax.EmptyState(), lambda g, state, params=None, **_: (update(g), state)
    )


def with_aggregator(aggregator, after=None):
    """An experiment whose exchange is `aggregator` (a transform, or (config) -> transform)."""

    def make(config):
        right = build(config)
        tx = aggregator(config) if not hasattr(aggregator, "update") else aggregator
        optimizer = catalog.make("optimizers", config.optimizer)
        if after:
            tx, optimizer = after(tx, optimizer)
        strategy = assembly.data_parallel(right.task, right.model, right.mesh, tx, optimizer)
        return right._replace(strategy=strategy)

    return make


def with_step(change):
    """An experiment whose step is `change(right step)`."""

    def make(config):
        right = build(config)
        strategy = right.strategy
        return right._replace(strategy=strategy._replace(step=change(strategy.step)))

    return make


def with_task(change):
    """An experiment whose data is `change(task, number of workers)`."""

    def make(config):
        right = build(config)
        return right._replace(task=change(right.task, right.mesh["data"]))

    return make


# --- the exchange ---------------------------------------------------------------------------------


def _sum(g):
    return jax.tree.map(lambda x: lax.psum(x, "data"), g)


def _mean_over_n_again(g):
    return jax.tree.map(lambda x: x / N, mean(g))


def _own(g):
    return g


def _bias_per_rank(g):
    return mean(jax.tree.map(lambda x: x + 1e-3 * (1.0 + rank()), g))


def _without_the_last(g):
    return mean(jax.tree.map(lambda x: jnp.where(rank() < N - 1, x, 0), g))


def _first_twice(g):
    return mean(jax.tree.map(lambda x: jnp.where(rank() == 0, 2 * x, x), g))


def _pairs_only(g):
    partner = [(i, i ^ 1) for i in range(N)]
    return jax.tree.map(lambda x: (x + lax.ppermute(x, "data", partner)) / 2, g)


def _shifted_chunks(g):
    flat, restore = ravel_pytree(mean(g))
    length = -(-flat.size // N)
    chunks = jnp.pad(flat, (0, N * length - flat.size)).reshape(N, length)
    mine = chunks[(rank() + 1) % N]  # after a reduce-scatter: the wrong rank's place
    return restore(lax.all_gather(mine, "data").reshape(-1)[: flat.size])


def _negative(g):
    return jax.tree.map(lambda x: -x, mean(g))


def _through(dtype):
    return lambda g: jax.tree.map(lambda x: x.astype(dtype).astype(x.dtype), mean(g))


def _bias_left_out(g):
    reduced = mean(g)
    reduced["shared"]["head"]["linear"]["bias"] = g["shared"]["head"]["linear"]["bias"]
    return reduced


def _leaf_divided_twice(g):
    reduced = mean(g)
    kernel = reduced["shared"]["embed"]["linear"]["kernel"]
    reduced["shared"]["embed"]["linear"]["kernel"] = kernel / N
    return reduced


def _leaf_lost(g):
    reduced = mean(g)
    kernel = reduced["shared"]["head"]["linear"]["kernel"]
    reduced["shared"]["head"]["linear"]["kernel"] = jnp.zeros_like(kernel)
    return reduced


def _delayed():
    return optax.GradientTransformationExtraArgs(
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda g, state, params=None, **_: (state, mean(g)),
    )


def _forget_memory(config):
    right = catalog.make("aggregators", config.aggregator, {"seed": config.seed})

    def update(g, state, params=None, **extra):
        out, after = right.update(g, state, params)
        zeros = Local([jnp.zeros_like(x) for x in after.memory.value], after.memory.rule)
        return out, after._replace(memory=zeros)

    return optax.GradientTransformationExtraArgs(right.init, update)


def _same_noise(config):
    right = catalog.make("aggregators", config.aggregator, {"seed": config.seed})

    def update(g, state, params=None, **extra):
        out, after = right.update(g, state, params)
        return out, after._replace(step=state.step)

    return optax.GradientTransformationExtraArgs(right.init, update)


def _sum_of_codes(config):
    right = catalog.make("aggregators", config.aggregator, {"seed": config.seed})

    def update(g, state, params=None, **extra):
        out, after = right.update(g, state, params)
        return jax.tree.map(lambda x: x * N, out), after

    return optax.GradientTransformationExtraArgs(right.init, update)


# --- the update -----------------------------------------------------------------------------------


def _multi_steps(aggregator, optimizer):
    """optax.MultiSteps around a chain that communicates: its accumulator is a worker's own."""
    whole = optax.MultiSteps(optax.chain(aggregator, optimizer), 2)
    return whole.gradient_transformation(), optax.identity()


def _state_reset(aggregator, optimizer):
    return aggregator, optax.GradientTransformation(
        optimizer.init,
        lambda g, state, params=None: (optimizer.update(g, optimizer.init(g), params)[0], state),
    )


def _applied_twice(aggregator, optimizer):
    return aggregator, optax.chain(optimizer, optax.scale(2.0))


def _clip_first(aggregator, optimizer):
    return optax.chain(optax.clip_by_global_norm(0.5), aggregator), optimizer


def _no_clip(aggregator, optimizer):
    return aggregator, optimizer


def _on_shards(aggregator, optimizer):
    """The optimiser state and update cut into N shards of the flat vector, as a naive ZeRO does."""

    def cut(tree):
        flat, _ = ravel_pytree(tree)
        length = -(-flat.size // N)
        return jnp.pad(flat, (0, N * length - flat.size)).reshape(N, length)

    def init(params):
        return Local(optimizer.init(cut(params)[0]))

    def update(g, state, params=None):
        flat, restore = ravel_pytree(g)
        mine = (cut(g)[rank()], state.value, cut(params)[rank()])
        part, after = optimizer.update(*mine)
        return restore(lax.all_gather(part, "data").reshape(-1)[: flat.size]), Local(after)

    return aggregator, optax.GradientTransformation(init, update)


# --- the step -------------------------------------------------------------------------------------


def _stale(config):
    """The gradient is taken at the parameters before the last update."""
    right = build(config)
    inner, good = right.strategy.step, right.strategy

    def init(params, stats):
        return good.init(params, stats), params

    def layout(state):
        return good.layout(state[0]), Spec()

    def step(state, batch, key):
        now, before = state
        old, local = inner(now._replace(params=before), batch, key)
        moved = jax.tree.map(lambda a, b: a - b, old.params, before)
        params = jax.tree.map(lambda p, m: p + m, now.params, moved)
        return (old._replace(params=params), now.params), local

    strategy = good._replace(
        init=init, layout=layout, step=step, params_of=lambda state: good.params_of(state[0])
    )
    return right._replace(strategy=strategy)


def _tail_of_each(step):
    return lambda state, batch, key: step(state, jax.tree.map(lambda x: x[:-1], batch), key)


def _one_mask(step):
    """Every worker believes that its examples are the first ones of the batch."""

    def wrong(state, batch, key):
        with mock.patch.object(assembly, "places", lambda batch: jnp.arange(rows(batch))):
            return step(state, batch, key)

    return wrong


def rows(batch):
    return len(jax.tree.leaves(batch)[0])


def _rank_in_key(step):
    return lambda state, batch, key: step(state, batch, jax.random.fold_in(key, rank()))


def _masks_differ(step):
    """Workers that compute the same activations, as in tensor parallelism, drop different units."""

    def wrong(state, batch, key):
        everything = jax.tree.map(lambda x: lax.all_gather(x, "data", tiled=True), batch)
        return _one_mask(_rank_in_key(step))(state, everything, key)

    return wrong


# --- the data -------------------------------------------------------------------------------------


def _masked(task):
    """Weights of examples that differ between workers: the global weight must be summed."""

    def batch(step, split, seed):
        rows = task.batch(step, split, seed)
        size = len(rows["labels"])
        return rows | {
            "mask": (jnp.arange(size) % 7 < 4 - jnp.arange(size) // 12).astype("float32")
        }

    def loss(outputs, rows, ctx):
        errors = (outputs[:, 0] - rows["labels"]) ** 2 / 2
        return (errors * rows["mask"]).sum(), rows["mask"].sum()

    return task._replace(batch=batch, loss=loss)


def _local_weight(config):
    """Each worker divides by its own weight; the mean of means follows."""
    right = build(config)
    task = _masked(right.task)

    def own(outputs, rows, ctx):
        total, weight = _masked(right.task).loss(outputs, rows, ctx)
        return total / weight, 1.0

    bad = assembly.data_parallel(
        task._replace(loss=own),
        right.model,
        right.mesh,
        catalog.make("aggregators", "mean"),
        catalog.make("optimizers", config.optimizer),
    )
    return right._replace(task=task, strategy=bad)


def _order_by_workers(task, n):
    def batch(step, split, seed):
        return task.batch(step, split, seed + (n > 1))

    return task._replace(batch=batch)


def _case(make, words, leaves=None, **config):
    return BASE | {"optimizer": MOMENTUM} | config, make, words, leaves


PLAIN = "sgd(learning_rate=0.05)"
EF = "error_feedback(topk(ratio=0.1))"
NOISE = "compressed(int8(stochastic=True))"
BUGS = {
    "a sum where the mean is meant": _case(with_aggregator(stateless(_sum)), "4 times too large"),
    "divided by n twice": _case(
        with_aggregator(stateless(_mean_over_n_again)), "4 times too small"
    ),
    "no sum": _case(with_aggregator(stateless(_own)), "no sum over the workers"),
    "a bias added per rank": _case(
        with_aggregator(stateless(_bias_per_rank)), "a constant is added", optimizer=PLAIN
    ),
    "the last worker left out": _case(
        with_aggregator(stateless(_without_the_last)), "worker 3 is left out of the sum"
    ),
    "one worker twice": _case(
        with_aggregator(stateless(_first_twice)), "worker 0 is counted twice"
    ),
    "wrong group": _case(with_aggregator(stateless(_pairs_only)), "wrong group: workers 0 to 1"),
    "another rank's chunk": _case(
        with_aggregator(stateless(_shifted_chunks)), "another rank's chunk"
    ),
    "wrong sign": _case(with_aggregator(stateless(_negative)), "wrong sign"),
    "reduced in bfloat16": _case(
        with_aggregator(stateless(_through(jnp.bfloat16))), "passes through bfloat16"
    ),
    "reduced in float16": _case(
        with_aggregator(stateless(_through(jnp.float16))), "passes through float16"
    ),
    "float64 cut to float32": _case(
        with_aggregator(stateless(_through(jnp.float32))), "passes through float32"
    ),
    "one leaf not reduced": _case(
        with_aggregator(stateless(_bias_left_out)),
        "no sum over the workers",
        ["['shared']['head']['linear']['bias']"],
    ),
    "one leaf divided twice": _case(
        with_aggregator(stateless(_leaf_divided_twice)),
        "4 times too small",
        ["['shared']['embed']['linear']['kernel']"],
    ),
    "one leaf lost": _case(
        with_aggregator(stateless(_leaf_lost)),
        "this leaf is not updated",
        ["['shared']['head']['linear']['kernel']"],
    ),
    "a step late": _case(with_aggregator(_delayed()), "the gradient of the step before"),
    "memory reset each step": _case(
        with_aggregator(_forget_memory), "the memory is reset", aggregator=EF
    ),
    "the same noise each step": _case(
        with_aggregator(_same_noise), "the random key is the same", aggregator=NOISE
    ),
    "codes summed, not averaged": _case(
        with_aggregator(_sum_of_codes), "a sum where the mean", aggregator=NOISE
    ),
    "MultiSteps around a communicating chain": _case(
        with_aggregator(stateless(mean), _multi_steps), "MultiSteps goes inside"
    ),
    "momentum reset each step": _case(
        with_aggregator(stateless(mean), _state_reset), "state is reset each step"
    ),
    "the update applied twice": _case(
        with_aggregator(stateless(mean), _applied_twice), "applied twice"
    ),
    "clipped before the mean": _case(
        with_aggregator(stateless(mean), _clip_first), "own gradient is clipped", clip_norm=0.5
    ),
    "not clipped": _case(
        with_aggregator(stateless(mean), _no_clip), "nothing is clipped", clip_norm=0.5
    ),
    "clipped by a shard's norm": _case(
        with_aggregator(
            stateless(mean),
            lambda a, o: _on_shards(a, optax.chain(optax.clip_by_global_norm(0.5), o)),
        ),
        "sees shards",
        clip_norm=0.5,
    ),
    "a trust ratio on shards": _case(
        with_aggregator(stateless(mean), _on_shards),
        "sees shards",
        optimizer="lars(learning_rate=0.5)",
    ),
    "a stale parameter": _case(_stale, "stale parameters", optimizer=PLAIN),
    "each worker's tail dropped": _case(with_step(_tail_of_each), "last example of each worker"),
    "one dropout mask on all workers": _case(
        with_step(_one_mask), "noise is the same on all workers", model="mlp(hidden=4, drop=0.5)"
    ),
    "the rank in the dropout key": _case(
        with_step(_rank_in_key), "the rank is in its key", model="mlp(hidden=4, drop=0.5)"
    ),
    "dropout masks differ where they must agree": _case(
        with_step(_masks_differ), "that must draw the same", model="mlp(hidden=4, drop=0.5)"
    ),
    "mean of means": _case(_local_weight, "mean of the workers' means"),
    "batch order depends on n": _case(with_task(_order_by_workers), "depends on the number"),
}
