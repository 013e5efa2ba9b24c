"""The property that only this component has, and a one-line mutant that must break it.

`PROPERTIES[component] = (check, (old, new))`: `check(factory)` raises AssertionError where the
property fails; the mutant replaces `old` by `new` in the component's source.
"""

import jax
import jax.numpy as jnp
import numpy as np

import jddl
from jddl.collectives._execute import execute
from jddl.mesh import Own
from jddl.runtimes.vmap import vmap

RNG = np.random.default_rng(0)


def _reduced(schedule, whole):
    run = vmap().spmd(
        lambda x: execute(schedule, x, "data"),
        {"data": schedule.n},
        (Own(("data",)),),
        Own(("data",)),
    )
    return np.asarray(jax.jit(run)(whole))


def _sums(schedule):
    whole = np.arange(schedule.n * 10, dtype=np.int32).reshape(schedule.n, 10)
    np.testing.assert_array_equal(_reduced(schedule, whole), np.tile(whole.sum(0), (schedule.n, 1)))


def ring(factory):
    """Patarasu and Yuan: the lower bound 2 (n-1)/n M in 2 (n-1) rounds, neighbours only."""
    for n in (2, 5, 8):
        schedule = factory(n)
        _sums(schedule)
        assert schedule.sent_bytes(40 * n) == 2 * (n - 1) * 40
        assert all((m.dst - m.src) % n == 1 for m in schedule.messages)


def recursive_doubling(factory):
    """log2 n rounds of M bytes; partners exchange, so both compute the same two-term sum."""
    for k in (1, 2, 4):
        schedule = factory(2**k)
        _sums(schedule)
        assert schedule.num_rounds == k and schedule.sent_bytes(64) == 64 * k
        for (lane,) in schedule.rounds:
            assert {(m.src, m.dst) for m in lane} == {(m.dst, m.src) for m in lane}
    _sums(factory(7))


def direct(factory):
    """Two rounds whatever n, each rank meets each other rank twice."""
    for n in (2, 5, 8):
        schedule = factory(n)
        _sums(schedule)
        assert len(schedule.rounds) == 2 and len(schedule.messages) == 2 * n * (n - 1)


def native(factory):
    """One psum: no ppermute in the jaxpr."""
    schedule = factory(4)
    _sums(schedule)
    jaxpr = str(
        jax.make_jaxpr(lambda x: execute(schedule, x, "data"), axis_env=[("data", 4)])(jnp.ones(8))
    )
    assert "psum" in jaxpr and "ppermute" not in jaxpr


def identity(factory):
    """C(x) = x, bit for bit, and payloads add."""
    c, x, y = factory(), RNG.standard_normal(9).astype(np.float32), np.ones(9, np.float32)
    both = c.compress(x, (), None)[0] + c.compress(y, (), None)[0]
    np.testing.assert_array_equal(c.decompress(both, x), x + y)


def topk(factory):
    """The k largest magnitudes, negative ones too, exactly; no k-sparse vector is nearer."""
    c, x = factory(ratio=0.5), jnp.array([1.0, -9.0, 3.0, 0.5])
    decoded = c.decompress(c.compress(x, (), None)[0], x)
    np.testing.assert_array_equal(decoded, [0, -9, 3, 0])


def int8(factory):
    """Half a step of each block's own scale, the block's largest entry exactly."""
    c, x = factory(block=4), jnp.array([127.0, 1.6, -3.6, 0.0, 0.0127, -0.0001, 0.0, 0.005])
    decoded = np.asarray(c.decompress(c.compress(x, (), None)[0], x))
    np.testing.assert_allclose(decoded[:4], [127, 2, -4, 0], atol=1e-5)
    assert np.abs(decoded[4:] - x[4:]).max() <= 0.0001 / 2 + 1e-8


def _worker_updates(tx, gradients):
    own = Own(("data",))
    n = gradients[0].shape[0]
    states = vmap().spmd(lambda g: tx.init(g), {"data": n}, (own,), own)(gradients[0])
    out = []
    for g in gradients:
        update, states = vmap().spmd(tx.update, {"data": n}, (own, own), (own, own))(g, states)
        out.append(np.asarray(update)[0])
    return out


GRADIENTS = [RNG.standard_normal((3, 8)).astype(np.float32) for _ in range(4)]


def mean(factory):
    """(1/n) sum_i g_i."""
    for update, g in zip(_worker_updates(factory(), GRADIENTS), GRADIENTS, strict=True):
        np.testing.assert_allclose(update, g.mean(0), atol=1e-6)


def compressed(factory):
    """No memory: the same gradients give the same update again."""
    tx = factory(jddl.make("compressors", "topk(ratio=0.25)"))
    first, second = _worker_updates(tx, GRADIENTS[:1] * 2)
    np.testing.assert_array_equal(first, second)
    g = GRADIENTS[0]
    sent = np.where(np.abs(g) >= np.sort(np.abs(g), 1)[:, -2:-1], g, 0)
    np.testing.assert_allclose(first, sent.mean(0), atol=1e-6)


def error_feedback(factory):
    """A constant gradient that top-1 would starve is delivered in full over time."""
    g = np.tile(np.array([3.0, 2.0, 1.0, 1.0], np.float32), (3, 1))
    updates = _worker_updates(factory(jddl.make("compressors", "topk(ratio=0.25)")), [g] * 40)
    np.testing.assert_allclose(np.sum(updates, 0) / 40, g[0], atol=0.25)


PROPERTIES = {
    "collectives/ring": (ring, ("all_gather_rounds(n))", "reduce_scatter_rounds(n))")),
    "collectives/recursive_doubling": (
        recursive_doubling,
        ("r ^ (1 << k)", "(r + (1 << k)) % core"),
    ),
    "collectives/direct": (direct, ('(s,), "copy")', '(d,), "copy")')),
    "collectives/native": (native, ("primitive=lax.psum", "primitive=None")),
    "compressors/identity": (identity, ("return leaf, state", "return 2 * leaf, state")),
    "compressors/topk": (topk, ("jnp.abs(flat)", "flat")),
    "compressors/int8": (int8, ("else 0.5", "else 0.0")),
    "aggregators/mean": (mean, ("mean_over(updates, axis, all_reduce)", "updates")),
    "aggregators/compressed": (compressed, ("restore(means)", "updates")),
    "aggregators/error_feedback": (error_feedback, ("x - own", "0 * own")),
}
