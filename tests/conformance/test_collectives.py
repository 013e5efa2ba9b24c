"""Every algorithm of the shelf against lists of blocks in NumPy.

On a failure: `jddl.schedule(NAME, n).prove()` names the first wrong rank and chunk.
"""

import random

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jddl
from jddl import accounting, catalog
from jddl.collectives._schedule import Schedule
from jddl.mesh import Own
from jddl.runtimes.shard_map import device_mesh, shard_map
from jddl.runtimes.vmap import vmap

ALGORITHMS = catalog.examples("collectives")
CUSTOM = [a for a in ALGORITHMS if a != "native"]


def spread(f, n, runtime=None):
    """Run per-device f on rows [n, ...]."""
    spmd = (runtime or vmap()).spmd
    return jax.jit(spmd(f, {"data": n}, (Own(("data",)),), Own(("data",))))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 8, 16])
def test_sum_is_exact_on_integers_and_replicas_are_bit_identical(algorithm, n):
    rng = np.random.default_rng(n)
    reduce = spread(lambda x: jddl.all_reduce(x, "data", algorithm), n)
    for size in (1, 5, 24, 103):
        whole = rng.integers(-1000, 1000, (n, size)).astype(np.int32)
        out = np.asarray(reduce(whole))
        np.testing.assert_array_equal(out, np.broadcast_to(whole.sum(0), out.shape))
        floats = rng.standard_normal((n, size)).astype(np.float32)
        out = np.asarray(reduce(floats))
        np.testing.assert_allclose(out[0], floats.astype(np.float64).sum(0), atol=1e-5)
        np.testing.assert_array_equal(out, np.broadcast_to(out[:1], out.shape))
    half = jnp.asarray(rng.integers(-8, 8, (n, 7)), jnp.bfloat16)  # exact in bf16
    np.testing.assert_array_equal(
        np.asarray(reduce(half)[0], np.float32), np.asarray(half, np.float32).sum(0)
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_trees_keep_structure_shapes_and_dtypes(algorithm):
    tree = {"a": jnp.ones((5, 3)), "b": (jnp.arange(5), jnp.zeros((5, 0))), "c": jnp.ones((5,))}
    out = spread(lambda t: jddl.all_reduce(t, "data", algorithm), 5)(tree)
    chex.assert_trees_all_equal_shapes_and_dtypes(out, tree)
    assert int(out["b"][0][0]) == 0 + 1 + 2 + 3 + 4


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n", range(1, 17))
def test_proof_and_ports(algorithm, n):
    schedule = jddl.schedule(algorithm, n)
    schedule.prove()
    if n > 2 and algorithm == "direct":
        with pytest.raises(ValueError, match="ports"):
            schedule.prove(ports=1)
    elif algorithm != "direct":
        schedule.prove(ports=1)


def interpret(schedule: Schedule) -> bool:
    """An independent interpreter: rank r contributes 2^r to each chunk; sums must be 2^n - 1."""
    values = [[1 << r for _ in range(schedule.chunks)] for r in range(schedule.n)]
    for lanes in schedule.rounds:
        old = [row[:] for row in values]
        written = []
        for lane in lanes:
            for src, dst, chunks, op in lane:
                for c in chunks:
                    written.append((dst, c, op))
                    values[dst][c] = old[src][c] if op == "copy" else values[dst][c] + old[src][c]
        places = [(d, c) for d, c, _ in written]
        copied = {(d, c) for d, c, op in written if op == "copy"}
        if any(places.count(p) > 1 for p in copied):
            return False
    return all(v == (1 << schedule.n) - 1 for row in values for v in row)


def mutants(schedule: Schedule, rng: random.Random, count: int):
    """Schedules with one message dropped, redirected, re-chunked or with its operation changed."""
    flat = [(r, k, m) for r, lanes in enumerate(schedule.rounds) for k, ln in enumerate(lanes)
            for m in range(len(ln))]  # fmt: skip
    for _ in range(count):
        r, k, m = rng.choice(flat)
        lane = list(schedule.rounds[r][k])
        message = lane[m]
        kind = rng.choice(["drop", "chunk", "swap", "nothing"])
        if kind == "drop":
            del lane[m]
        elif kind == "chunk":
            lane[m] = message._replace(chunks=(rng.randrange(schedule.chunks),))
        elif kind == "swap" and len(lane) > 1:
            other = rng.randrange(len(lane))
            lane[m], lane[other] = (
                message._replace(dst=lane[other].dst),
                lane[other]._replace(dst=message.dst),
            )
        lanes = list(schedule.rounds[r])
        lanes[k] = tuple(lane)
        if not lane:
            del lanes[k]
        rounds = list(schedule.rounds)
        rounds[r] = tuple(lanes)
        yield Schedule(schedule.name, schedule.n, schedule.chunks, tuple(rounds))


@pytest.mark.parametrize("algorithm", CUSTOM)
def test_proof_accepts_exactly_what_the_interpreter_finds_right(algorithm):
    rng, verdicts = random.Random(0), []
    for n in (2, 3, 5, 8):
        for mutant in mutants(jddl.schedule(algorithm, n), rng, 100):
            try:
                mutant.prove()
                accepted = True
            except ValueError:
                accepted = False
            assert accepted == interpret(mutant), mutant
            verdicts.append(accepted)
    assert 50 < sum(verdicts) < 350  # both kinds occurred


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n", [3, 5, 8])
def test_bytes_and_rounds_jaxpr_hlo_schedule_closed_form(algorithm, n):
    size = 840  # divides over every n here: no padding
    x = jax.ShapeDtypeStruct((size,), np.float32)

    def reduce(v):
        return jddl.all_reduce(v, "data", algorithm)

    mesh = device_mesh((("data", n),))
    mapped = jax.jit(jax.shard_map(reduce, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False))
    jaxpr = accounting.measure(reduce, x, axes={"data": n})
    through = accounting.measure(mapped, x)
    compiled = mapped.lower(x).compile()
    hlo = accounting.measure_hlo(compiled)
    schedule = jddl.schedule(algorithm, n)
    nbytes = 4 * size
    k, surplus = n.bit_length() - 1, n - (1 << (n.bit_length() - 1))
    closed = {
        "native": 2 * (n - 1) * nbytes // n,
        "ring": 2 * (n - 1) * nbytes // n,
        "direct": 2 * (n - 1) * nbytes // n,
        "recursive_doubling": (k + (surplus > 0)) * nbytes,
    }[algorithm]
    for measured in (jaxpr, through, hlo):
        assert measured.sent_bytes == schedule.sent_bytes(nbytes) == closed
        assert measured.received_bytes == schedule.received_bytes(nbytes) == closed
        assert measured.rounds == schedule.num_rounds
    assert jaxpr.payload_bytes == through.payload_bytes == nbytes
    if algorithm != "native":
        assert "all-reduce" not in compiled.as_text()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_compile_for_one_shape(algorithm):
    traces = []

    def reduce(x):
        traces.append(1)
        return jddl.all_reduce(x, "data", algorithm)

    run = spread(reduce, 8, shard_map())
    for value in range(3):
        run(jnp.full((8, 11), value, jnp.float32))
    assert len(traces) == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_inside_a_users_loop_with_varying_types(algorithm):
    mesh = device_mesh((("data", 8),))
    run = jax.jit(
        jax.shard_map(
            lambda x: jddl.all_reduce(x, "data", algorithm)[None] if algorithm != "native"
            else jax.lax.pcast(jddl.all_reduce(x, "data", algorithm), "data", to="varying")[None],
            mesh=mesh, in_specs=P("data"), out_specs=P("data"),
        )
    )  # fmt: skip
    out = run(jnp.arange(16.0))
    np.testing.assert_array_equal(np.asarray(out)[3], np.arange(16.0).reshape(8, 2).sum(0))


def test_differentiating_names_the_conjugate_pair():
    with pytest.raises(ValueError, match=r"reduce_from.*copy_to"):
        spread(jax.grad(lambda x: jddl.all_reduce(x, "data", "ring").sum()), 4)(jnp.ones((4, 3)))


@pytest.mark.parametrize("runtime", ["vmap", "shard_map", "pmap"])
@pytest.mark.parametrize("algorithm", ["native", "ring"])
def test_conjugate_pair_gives_the_true_gradient(runtime, algorithm):
    """A two-layer tensor-parallel network: column-parallel w1, row-parallel w2."""
    rng = np.random.default_rng(0)
    x, w1, w2 = (rng.standard_normal(s).astype(np.float32) for s in ((3, 4), (4, 8), (8, 2)))

    def loss(w1, w2, x):
        h = jnp.tanh(jddl.copy_to(x, "tensor", algorithm) @ w1)
        return jnp.sum(jddl.reduce_from(h @ w2, "tensor", algorithm) ** 2)

    def plain(w1, w2, x):
        return jnp.sum((jnp.tanh(x @ w1) @ w2) ** 2)

    made = catalog.make("runtimes", runtime)
    specs = (P(None, "tensor"), P("tensor"), P())
    step = made.spmd(jax.grad(loss, (0, 1, 2)), {"tensor": 4}, specs, specs)
    chex.assert_trees_all_close(
        jax.jit(step)(w1, w2, x), jax.grad(plain, (0, 1, 2))(w1, w2, x), rtol=2e-5
    )


def test_modelled_times_are_the_textbooks():
    """a = 10 us, 1/b = 10 GB/s, 1 MiB: microseconds by 2(n-1)a + 2(n-1)/n M b and log2(n)(a + M b)."""
    for n, ring, doubling in ((4, 217.3, 229.7), (8, 323.5, 344.6), (16, 496.6, 459.4)):
        cluster = jddl.cluster(latency=1e-5, bandwidth=1e10, n=n)
        assert abs(jddl.schedule("ring", n).time(1 << 20, cluster) * 1e6 - ring) < 0.05
        assert abs(jddl.schedule("native", n).time(1 << 20, cluster) * 1e6 - ring) < 0.05
        assert (
            abs(jddl.schedule("recursive_doubling", n).time(1 << 20, cluster) * 1e6 - doubling)
            < 0.05
        )
