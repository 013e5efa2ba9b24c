"""Transformers against NumPy: loops over heads, positions, experts, written from the formulas."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jddl import assembly, catalog
from jddl.models._attention import attention, rotate
from jddl.models._experts import balance, choose
from jddl.models._presets import PRESETS
from jddl.records import Context

VOCABULARY, LENGTH, BATCH = 11, 6, 3
TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, LENGTH)).astype(np.int32)
GPT = "transformer(heads=2, hidden=12, layers=2, width=8)"
LLAMA = "transformer(heads=4, hidden=12, kv_heads=2, layers=2, preset='llama_debug', theta=100.0, width=16)"
SWITCH = (
    "moe_transformer(capacity_factor=1.0, experts=3, heads=2, hidden=12, kv_heads=1, layers=2, "
    "penalty=0.5, top=1, width=8)"
)
TOP2 = SWITCH.replace("top=1", "top=2").replace("penalty=0.5", "activation='gelu', penalty=0.5")
MIXED = "transformer(bias=False, heads=2, hidden=12, kv_heads=1, layers=1, norm='rms', positions='rope', tied=False, width=8)"


def make(spec, inputs=(LENGTH,), outputs=VOCABULARY):
    return catalog.make("models", spec, {"inputs": inputs, "outputs": outputs})


def parameters(model):
    """Initial parameters in float64, moved away from the zeros and ones that would hide a mistake."""
    params, _ = model.init(jax.random.key(0))
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda x: np.asarray(x, np.float64) + 0.3 * rng.standard_normal(x.shape), params
    )


# --- the reference ------------------------------------------------------------------------------


def norm(x, part):
    x = x - x.mean() if "bias" in part else x
    y = x / math.sqrt((x**2).mean() + 1e-5) * part["scale"]
    return y + part["bias"] if "bias" in part else y


def linear(x, part):
    return x @ part["kernel"] + part.get("bias", 0.0)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def turn(vector, position, theta):
    """Pairs (i, i + d/2) as complex numbers times exp(i p theta^(-2i/d))."""
    half = len(vector) // 2
    out = np.empty_like(vector)
    for i in range(half):
        z = complex(vector[i], vector[i + half]) * np.exp(
            1j * position * theta ** (-2 * i / (2 * half))
        )
        out[i], out[i + half] = z.real, z.imag
    return out


def attend(rows, part, heads, kv_heads, theta):
    """rows[s, width] of one example -> the attention's output, head by head and place by place."""
    q, k, v = (linear(rows, part[name]) for name in ("query", "key", "value"))
    size = q.shape[1] // heads
    out = np.zeros_like(q)
    for head in range(heads):
        mine, theirs = slice(head * size, (head + 1) * size), head * kv_heads // heads
        other = slice(theirs * size, (theirs + 1) * size)
        for i in range(len(rows)):
            scores = []
            for j in range(i + 1):
                a, b = q[i, mine], k[j, other]
                if theta:
                    a, b = turn(a, i, theta), turn(b, j, theta)
                scores.append(a @ b / math.sqrt(size))
            weights = np.exp(np.array(scores) - max(scores))
            weights /= weights.sum()
            out[i, mine] = sum(w * v[j, other] for j, w in enumerate(weights))
    return linear(out, part["output"])


def one_expert(x, part, e):
    up = x @ part["up"][e]
    up = silu(x @ part["gate"][e]) * up if "gate" in part else gelu(up)
    return up @ part["down"][e]


def through_experts(rows, part, top, capacity):
    """(output, dropped, probabilities, first choices) of one example; choices in order of rank."""
    logits = rows @ part["router"]["kernel"]
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    order = np.argsort(-p, axis=1)[:, :top]
    used, out, dropped = np.zeros(p.shape[1], int), np.zeros_like(rows), 0
    for rank in range(top):
        for s in range(len(rows)):
            e = order[s, rank]
            gate = p[s, e] / (p[s, order[s]].sum() if top > 1 else 1.0)
            if used[e] < capacity:
                out[s] += gate * one_expert(rows[s], part, e)
            else:
                dropped += 1
            used[e] += 1
    return out, dropped, p, order[:, 0]


def reference(params, tokens, heads, kv_heads=None, theta=0.0, top=0, capacity=0):
    """(logits[b, s, vocabulary], dropped choices, sum over blocks of the unscaled balancing loss)."""
    shared, kv_heads = params["shared"], kv_heads or heads
    examples = [shared["embed"]["table"][row] for row in tokens]
    if "positions" in shared["embed"]:
        examples = [x + shared["embed"]["positions"][: len(x)] for x in examples]
    dropped, uneven = 0, 0.0
    for block in params["blocks"]:
        mean_p, first = [], []
        for b, x in enumerate(examples):
            normed = np.stack([norm(row, block["norm1"]) for row in x])
            x = x + attend(normed, block["attention"], heads, kv_heads, theta)
            normed = np.stack([norm(row, block["norm2"]) for row in x])
            part = block["feed_forward"]
            if top:
                y, lost, p, chosen = through_experts(normed, part, top, capacity)
                dropped += lost
                mean_p.append(p)
                first.append(chosen)
            else:
                up = linear(normed, part["up"])
                up = silu(linear(normed, part["gate"])) * up if "gate" in part else gelu(up)
                y = linear(up, part["down"])
            examples[b] = x + y
        if top:
            p, first = np.concatenate(mean_p), np.concatenate(first)
            share = np.bincount(first, minlength=p.shape[1]) / len(first)
            uneven += p.shape[1] * float(share @ p.mean(0))
    table = shared["head"].get("table", shared["embed"]["table"])
    head = shared["head"]["norm"]
    return (
        np.stack([np.stack([norm(r, head) for r in x]) @ table.T for x in examples]),
        dropped,
        uneven,
    )


CASES = {
    GPT: {"heads": 2},
    LLAMA: {"heads": 4, "kv_heads": 2, "theta": 100.0},
    MIXED: {"heads": 2, "kv_heads": 1, "theta": 10_000.0},
    SWITCH: {"heads": 2, "kv_heads": 1, "theta": 10_000.0, "top": 1, "capacity": 2},
    TOP2: {"heads": 2, "kv_heads": 1, "theta": 10_000.0, "top": 2, "capacity": 4},
}


@pytest.mark.parametrize("spec", CASES)
def test_forward_and_gradient_are_those_of_the_formulas(spec):
    """Logits to 1e-10; the gradient along random directions against differences of the reference."""
    with jax.enable_x64(True):
        model = make(spec)
        params = parameters(model)
        direction = np.random.default_rng(2).standard_normal((BATCH, LENGTH, VOCABULARY))

        def value(params):
            ctx = Context(train=True)
            logits, _, aux = assembly.forward(model, params, {}, TOKENS, ctx)
            return jnp.sum(logits * direction) + aux.get("penalty", (0.0,))[0], (logits, aux)

        gradient, (logits, aux) = jax.device_get(jax.jit(jax.grad(value, has_aux=True))(params))
        expected, dropped, uneven = reference(params, TOKENS, **CASES[spec])
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-10)
    if "top" in CASES[spec]:
        assert aux["dropped"][0] == dropped and dropped > 0
        assert aux["dropped"][1] == len(params["blocks"]) * TOKENS.size * CASES[spec]["top"]
        np.testing.assert_allclose(aux["penalty"][0], 0.5 * uneven, rtol=1e-12)

    def by_reference(params):
        logits, _, uneven = reference(params, TOKENS, **CASES[spec])
        return (logits * direction).sum() + 0.5 * uneven

    rng = np.random.default_rng(3)
    for _ in range(2):
        along = jax.tree.map(lambda x: rng.standard_normal(x.shape), params)
        moved = [jax.tree.map(lambda x, d, h=h: x + h * d, params, along) for h in (1e-6, -1e-6)]
        ends = [by_reference(p) for p in moved]
        slope = sum(
            np.sum(g * d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(along))
        )
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-5)


def test_a_position_does_not_see_what_follows_it():
    model = make(LLAMA)
    params, _ = model.init(jax.random.key(0))
    later = TOKENS.copy()
    later[:, 4:] = (later[:, 4:] + 1) % VOCABULARY
    forward = jax.jit(lambda tokens: assembly.forward(model, params, {}, tokens, Context())[0])
    one, two = forward(TOKENS), forward(later)
    np.testing.assert_array_equal(one[:, :4], two[:, :4])
    assert np.abs(one[:, 4:] - two[:, 4:]).min(axis=(0, 2)).max() > 0


def test_rotary_scores_depend_on_the_distance_only():
    rng = np.random.default_rng(0)
    q, k = (np.broadcast_to(rng.standard_normal((1, 1, 1, 8)), (1, 9, 1, 8)) for _ in range(2))
    with jax.enable_x64(True):
        a, b = (np.asarray(rotate(jnp.asarray(x), 100.0))[0, :, 0] for x in (q, k))
    scores = a @ b.T
    for distance in range(-8, 9):
        assert np.ptp(np.diagonal(scores, distance)) < 1e-12
    assert np.ptp(scores[0]) > 0.1
    np.testing.assert_allclose(np.linalg.norm(a, axis=1), np.linalg.norm(q[0, :, 0], axis=1))


def test_attention_without_a_mask_sees_everything():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        q, k, v = (jnp.asarray(rng.standard_normal((1, 3, 1, 4))) for _ in range(3))
        seen = np.asarray(attention(q, k, v, causal=False))[0, :, 0]
    scores = np.exp(np.asarray(q[0, :, 0]) @ np.asarray(k[0, :, 0]).T / 2)
    np.testing.assert_allclose(seen, scores / scores.sum(1, keepdims=True) @ np.asarray(v[0, :, 0]))


def test_second_choices_wait_for_all_first_ones():
    """4 tokens, 2 experts, 2 places: written out by hand."""
    p = jnp.array([[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]]])
    routes = choose(p, 2, 2)
    np.testing.assert_array_equal(routes.experts[0], [[0, 1], [0, 1], [0, 1], [1, 0]])
    np.testing.assert_array_equal(routes.places[0], [[0, 1], [1, 2], [2, 3], [0, 3]])
    np.testing.assert_array_equal(
        routes.kept[0], [[True, True], [True, False], [False, False], [True, False]]
    )
    np.testing.assert_allclose(routes.gates[0, :, 0], [0.9, 0.8, 0.7, 0.6], rtol=1e-6)
    np.testing.assert_allclose(choose(p, 1, 2).gates[0, :, 0], [0.9, 0.8, 0.7, 0.6], rtol=1e-6)


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_balancing_loss_is_that_of_the_global_batch(workers, padding):
    """Value and gradient do not depend on the workers; a mean of the workers' own would."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        logits = rng.standard_normal((8, 5, 3))
        weights = np.ones(8)
        weights[8 - padding :] = 0

        def worker(logits, weights):
            ctx = Context(weights=weights if padding else None, data="data")

            def loss(logits):
                p = jax.nn.softmax(logits)
                return balance(p, jnp.argmax(logits, -1), ctx) / workers

            return jax.value_and_grad(loss)(logits)

        cut = lambda x: x.reshape(workers, 8 // workers, *x.shape[1:])  # noqa: E731
        step = jax.jit(jax.vmap(worker, axis_name="data"))
        value, gradient = jax.device_get(step(cut(logits), cut(weights)))
    real = logits[: 8 - padding].reshape(-1, 3)

    def whole(logits):
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        share = np.bincount(real.argmax(1), minlength=3) / len(real)
        return 3 * share @ p.mean(0)

    np.testing.assert_allclose(value * workers, whole(real), rtol=1e-12)
    slope = np.zeros_like(real)
    for index in np.ndindex(real.shape):
        step = np.zeros_like(real)
        step[index] = 1e-6
        slope[index] = (whole(real + step) - whole(real - step)) / 2e-6
    np.testing.assert_allclose(
        np.asarray(gradient).reshape(8, 5, 3)[: 8 - padding].reshape(-1, 3), slope, atol=1e-9
    )
    assert not np.any(np.asarray(gradient).reshape(8, 5, 3)[8 - padding :])


PUBLISHED = {
    "gpt2": (1024, 50257, 124_439_808),
    "llama2_7b": (4096, 32_000, 6_738_415_616),
    "llama3_8b": (8192, 128_256, 8_030_261_248),
    "llama3_70b": (8192, 128_256, 70_553_706_496),
    "mixtral_8x7b": (32_768, 32_000, 46_702_792_704),
}


def count(preset, length, vocabulary):
    kind = "moe_transformer" if PRESETS[preset].experts else "transformer"
    model = make(f"{kind}(preset={preset!r})", (length,), vocabulary)
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    return sum(math.prod(x.shape) for x in jax.tree.leaves(params))


@pytest.mark.parametrize("preset", PUBLISHED)
def test_sizes_are_the_published_ones(preset):
    length, vocabulary, published = PUBLISHED[preset]
    assert count(preset, length, vocabulary) == published


@pytest.mark.parametrize("preset", ["gpt2_debug", "gpt2", "gpt2_xl", "megatron_8b", "gpt3_175b"])
def test_gpt_sizes_follow_megatrons_formula(preset):
    """12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), and 2 h for the last norm."""
    shape, vocabulary, length = PRESETS[preset], 50_257, 2048
    layers, width = shape.layers, shape.width
    terms = 12 * layers * width**2 + 13 * layers * width + (vocabulary + length) * width
    assert count(preset, length, vocabulary) == terms + 2 * width


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("transformer(preset='gpt5')", "preset is one of"),
        ("transformer(preset='mixtral_8x7b')", "preset is one of"),
        ("transformer(heads=3)", "heads=3 divides width=64"),
        ("transformer(kv_heads=3)", "kv_heads=3"),
        ("transformer(norm='batch')", "norm is one of layer, rms"),
        ("transformer(drop=1.0)", "drop is in [0, 1)"),
        ("transformer(heads=64, positions='rope')", "rope turns pairs"),
        ("moe_transformer(top=5)", "top=5 of experts=4"),
        ("moe_transformer(capacity_factor=-1.0)", "not negative"),
    ],
)
def test_a_wrong_argument_is_named(spec, words):
    with pytest.raises(ValueError, match="transformer") as caught:
        make(spec)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_transformer_wants_sequences():
    with pytest.raises(ValueError, match="sequences"):
        make(GPT, (8, 8, 1))
