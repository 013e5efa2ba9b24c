"""The property that only this component has, and a one-line mutant that must break it.

`PROPERTIES[component] = (check, (old, new))`: `check(factory)` raises AssertionError where the
property fails; the mutant replaces `old` by `new` in the component's source.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import jddl
from jddl.collectives._execute import execute
from jddl.mesh import Own
from jddl.mesh import P as Spec
from jddl.records import Context
from jddl.runtimes.vmap import vmap
from tests import properties_tasks

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


def digits(factory):
    """Every image of scikit-learn's set is in one split, scaled to [0, 1]."""
    task = factory(batch_size=1257)
    batches = [task.batch(0, split, 0) for split in ("train", "validation", "test")]
    ours = np.concatenate([b["inputs"].reshape(-1, 64) for b in batches])
    labels = np.concatenate([b["labels"] for b in batches])
    data = load_digits()
    both = [
        np.column_stack([x, y])[np.lexsort(np.column_stack([x, y]).T)]
        for x, y in ((ours, labels), (data.data / 16, data.target))
    ]
    np.testing.assert_array_equal(*both)


def least_squares(factory):
    """Without noise a least-squares solution has loss 0; an error of 2 costs 2 an example."""
    task = factory(batch_size=64, dim=3, noise=0.0)
    batch = task.batch(0, "train", 0)
    design = np.column_stack([batch["inputs"], np.ones(64)])
    solution = np.linalg.lstsq(design, batch["labels"], rcond=None)[0]
    outputs = design @ solution
    assert task.loss(outputs[:, None], batch, Context())[0] < 1e-6
    total, weight = task.loss(outputs[:, None] + 2, batch, Context())
    np.testing.assert_allclose(total / weight, 2, atol=1e-3)


def _outputs(model, change, x):
    params, stats = model.init(jax.random.key(0))
    params = change(jax.tree.map(np.asarray, params))
    ctx = Context()
    x, *_ = model.embed(params["shared"], stats, x, ctx)
    for block in params["blocks"]:
        x, *_ = model.block(block, stats, x, ctx)
    return np.asarray(model.head(params["shared"], stats, x, ctx)[0]), params


def mlp(factory):
    """Affine maps with max(0, .) between them, none after the last."""
    x = RNG.standard_normal((5, 6)).astype(np.float32)
    found, params = _outputs(factory((6,), 3, hidden=4, layers=2), lambda p: p, x)
    parts = [params["shared"]["embed"], *params["blocks"]]
    for part in parts:
        x = np.maximum(x @ part["linear"]["kernel"] + part["linear"]["bias"], 0)
    head = params["shared"]["head"]["linear"]
    np.testing.assert_allclose(found, x @ head["kernel"] + head["bias"], atol=1e-5)


def linear(factory):
    """Starts at 0, and is affine: f(a + b) + f(0) = f(a) + f(b) for any parameters."""
    a, b = RNG.standard_normal((2, 4, 6)).astype(np.float32)
    assert not _outputs(factory((6,), 2), lambda p: p, a)[0].any()
    noisy = lambda p: jax.tree.map(lambda w: w + np.linspace(-1, 1, w.size).reshape(w.shape), p)  # noqa: E731
    f = lambda x: _outputs(factory((6,), 2), noisy, x)[0]  # noqa: E731
    np.testing.assert_allclose(f(a + b) + f(0 * a), f(a) + f(b), atol=1e-4)


def small_cnn(factory):
    """With identity kernels and a head of ones the output is the sum of 2 x 2 averages."""
    x = RNG.random((2, 4, 6, 1)).astype(np.float32)

    def identity_kernels(params):
        for part in (params["shared"]["embed"], *params["blocks"]):
            kernel = np.zeros_like(part["convolution"]["kernel"])
            kernel[1, 1] = np.eye(*kernel.shape[2:])
            part["convolution"]["kernel"] = kernel
        head = params["shared"]["head"]["linear"]
        head["kernel"] = np.ones_like(head["kernel"])
        return params

    found, _ = _outputs(factory((4, 6, 1), 2, channels=1), identity_kernels, x)
    np.testing.assert_allclose(found, np.tile(x.sum((1, 2, 3))[:, None] / 4, (1, 2)), rtol=1e-5)


def resnet(factory):
    """Blocks whose convolutions are all 0 are the identity: the head sees the stem's output."""
    x = RNG.random((2, 4, 6, 1)).astype(np.float32)

    def empty_blocks(params):
        params = jax.tree.map(np.zeros_like, params)
        params["shared"]["embed"]["first"]["convolution"]["kernel"][1, 1] = 1
        params["shared"]["head"]["linear"]["kernel"][:] = 1
        return params

    found, _ = _outputs(factory((4, 6, 1), 2, stages=[2], width=1, norm="none"), empty_blocks, x)
    np.testing.assert_allclose(found, np.tile(x.mean((1, 2, 3))[:, None], (1, 2)), rtol=1e-5)


def vit(factory):
    """Attention knows no order: without positions the patches may be shuffled."""
    x = RNG.random((2, 4, 6, 1)).astype(np.float32)

    def no_positions(params):
        positions = params["shared"]["embed"]["positions"]
        params["shared"]["embed"]["positions"] = 0 * positions
        return params

    model = factory((4, 6, 1), 3, width=4, heads=2, layers=2, pool="mean")
    found, _ = _outputs(model, no_positions, x)
    shuffled = np.concatenate([x[:, 2:], x[:, :2]], 1)[:, :, [4, 5, 0, 1, 2, 3]]
    np.testing.assert_allclose(_outputs(model, no_positions, shuffled)[0], found, atol=1e-5)
    assert np.abs(_outputs(model, lambda p: p, shuffled)[0] - found).max() > 1e-4


def lstm(factory):
    """With all gates open the cell counts: h is tanh(1), tanh(2), ... whatever the tokens."""

    def open_gates(params):
        params = jax.tree.map(np.zeros_like, params)
        params["blocks"][0]["bias"][:] = 30  # sigmoid and tanh of it are 1
        params["shared"]["head"]["linear"]["kernel"][:] = 0.5
        return params

    found, _ = _outputs(factory((5,), 3, width=2), open_gates, np.array([[0, 2, 1, 1, 0]]))
    wanted = np.tanh(np.arange(1.0, 6))
    np.testing.assert_allclose(found[0], np.tile(wanted[:, None], (1, 3)), rtol=1e-5)


def cluster(factory):
    """A message of M bytes costs latency + M / bandwidth; a ring has 14 of an eighth."""
    made = factory(latency=1e-3, bandwidth=1e6, flops=2e6)
    ring_of_8 = jddl.schedule("ring", 8)
    np.testing.assert_allclose(ring_of_8.time(8000, made), 14 * (1e-3 + 1000 / 1e6))
    assert made.flops == 2e6


def ethernet(factory):
    """10 Gbit/s are 1.25e9 bytes per second."""
    assert factory(gigabits=10.0).bandwidth == 1.25e9


def _mean_gradient(runtime, n):
    """Gradients of worker-dependent losses of one replicated w: [n] local, and their sum."""
    own, mesh = Own(("data",)), {"data": n}

    def f(w, x):
        gradient = jax.grad(lambda w: w * x)(w)
        return gradient, jax.lax.psum(gradient, "data")

    xs = np.arange(1.0, n + 1).astype(np.float32)
    run = runtime.spmd(f, mesh, (Spec(), own), (own, own))
    local, total = jax.jit(run)(jnp.float32(2), xs)
    np.testing.assert_array_equal(local, xs)
    np.testing.assert_array_equal(total, np.full(n, xs.sum()))


def vmap_runtime(factory):
    """Any number of workers, a prime above the devices too, on one device."""
    assert factory().devices({"data": 13}) == 1
    _mean_gradient(factory(), 13)


def pmap_runtime(factory):
    """One axis: two are refused with the alternatives."""
    _mean_gradient(factory(), 4)
    try:
        factory().spmd(lambda x: x, {"data": 2, "tensor": 2}, (Spec(),), Spec())
    except ValueError as error:
        assert "shard_map" in str(error)
    else:
        raise AssertionError("two axes were accepted")


def shard_map_runtime(factory):
    """Gradients of a replicated parameter are a worker's own, not summed on the way."""
    assert factory().devices({"data": 4}) == 4
    _mean_gradient(factory(), 4)


def transformer(factory):
    """Radford et al.: 124,439,808 parameters with a tied head, one table more without."""
    for tied, size in ((True, 124_439_808), (False, 124_439_808 + 50_257 * 768)):
        model = factory((1024,), 50_257, preset="gpt2", tied=tied)
        params, _ = jax.eval_shape(model.init, jax.random.key(0))
        assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params)) == size


def moe_transformer(factory):
    """Fedus et al.: an expert takes ceil(factor * tokens / experts) tokens of a sequence."""
    tokens = RNG.integers(0, 20, (3, 8)).astype(np.int32)
    model = factory((8,), 20, layers=1, width=16, heads=2, kv_heads=1, top=1, capacity_factor=0.5)
    params, _ = model.init(jax.random.key(0))
    x, _, _ = model.embed(params["shared"], {}, tokens, Context())
    _, _, aux = model.block(params["blocks"][0], {}, x, Context())
    assert aux["dropped"][1] == 24 and 12 <= aux["dropped"][0] < 24  # 4 experts, a place each


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
    "tasks/digits": (digits, ("/ 16.0", "/ 8.0")),
    "tasks/least_squares": (least_squares, ("0.5 * errors", "errors")),
    "models/mlp": (mlp, ("nnx.relu(x)", "x")),
    "models/linear": (linear, ("zeros_init()", "ones_init()")),
    "models/small_cnn": (small_cnn, ("nnx.avg_pool", "nnx.max_pool")),
    "models/resnet": (resnet, ("residual + (x if", "residual + (0 * x if")),
    "models/vit": (vit, ("x.mean(1)", "x[:, 1]")),
    "models/transformer": (transformer, ('"tied": tied,', '"tied": True,')),
    "models/moe_transformer": (
        moe_transformer,
        ("shape, drop, capacity_factor, penalty)", "shape, drop, 0.0, penalty)"),
    ),
    "models/lstm": (lstm, ("sigmoid(f) * c", "sigmoid(f) * h")),
    "network/cluster": (
        cluster,
        ("n, latency, bandwidth, flops)", "n, latency, flops, bandwidth)"),
    ),
    "network/ethernet": (ethernet, ("gigabits * 1.25e8", "gigabits * 1e9")),
    "runtimes/vmap": (vmap_runtime, ("lambda mesh: 1", "lambda mesh: mesh['data']")),
    "runtimes/pmap": (pmap_runtime, ("len(mesh) != 1", "len(mesh) > 2")),
    "runtimes/shard_map": (shard_map_runtime, ("  check_vma=False,", "  check_vma=True,")),
    "aggregators/error_feedback": (error_feedback, ("x - own", "0 * own")),
}
PROPERTIES |= properties_tasks.PROPERTIES
