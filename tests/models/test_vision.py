"""Image models against loops in NumPy, published counts of parameters, and one device."""

from math import erf, sqrt

import jax
import numpy as np
import pytest

import jddl
from jddl import catalog
from jddl.studies.verify import verify
from tests.models.by_numpy import agree, layer_norm

IMAGES = np.random.default_rng(0).standard_normal((2, 5, 4, 2))


def model_of(spec, inputs=(5, 4, 2), outputs=3):
    return catalog.make("models", spec, {"inputs": inputs, "outputs": outputs})


def count(spec, inputs, outputs):
    params, _ = jax.eval_shape(lambda: model_of(spec, inputs, outputs).init(jax.random.key(0)))
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def relu(x):
    return np.maximum(x, 0)


def convolve(x, part, stride):
    """One output position after the other; as many zeros around as half the kernel is wide."""
    kernel = part["kernel"]
    size = len(kernel)
    around = size // 2
    wide = np.pad(x, ((0, 0), (around, around), (around, around), (0, 0)))
    high, long = ((n + 2 * around - size) // stride + 1 for n in x.shape[1:3])
    y = np.zeros((len(x), high, long, kernel.shape[-1]))
    for b in range(len(x)):
        for i in range(high):
            for j in range(long):
                rows = wide[b, i * stride : i * stride + size, j * stride : j * stride + size]
                y[b, i, j] = np.tensordot(rows, kernel, 3)
    return y + part.get("bias", 0.0)


def layer(x, part, stride=1, groups=2):
    x = convolve(x, part["convolution"], stride)
    if "norm" not in part:
        return x
    norm = part["norm"]
    if "norm" in norm:  # each example and group by itself
        cut = x.reshape(*x.shape[:3], groups, -1)
        over, norm = (1, 2, 4), norm["norm"]
    else:
        cut, over = x, (0, 1, 2)
    y = (cut - cut.mean(over, keepdims=True)) / np.sqrt(cut.var(over, keepdims=True) + 1e-5)
    return norm["scale"] * y.reshape(x.shape) + norm["bias"]


def residual_network(stem, *strides):
    def run(params, x):
        x = relu(layer(x, params["shared"]["embed"]["first"], stem))
        for block, stride in zip(params["blocks"], strides, strict=True):
            y = layer(relu(layer(x, block["first"], stride)), block["second"])
            x = relu(y + (layer(x, block["shortcut"], stride) if "shortcut" in block else x))
        head = params["shared"]["head"]["linear"]
        return x.mean((1, 2)) @ head["kernel"] + head["bias"]

    return run


@pytest.mark.parametrize(
    "spec, strides",
    [
        ("resnet(stages=[1, 1], width=2)", (1, 1, 2)),
        ("resnet(groups=2, norm='group', stages=[1, 1], width=4)", (1, 1, 2)),
        ("resnet(norm='none', stages=[1, 2], stem_stride=2, width=2)", (2, 1, 2, 1)),
    ],
)
def test_a_residual_network_is_the_one_of_loops(spec, strides):
    agree(model_of(spec), residual_network(*strides), IMAGES, train="norm" not in spec)


def test_the_published_residual_network_has_its_number_of_parameters():
    assert count("resnet(layers=18)", (32, 32, 3), 10) == 11_173_962
    assert count("resnet", (32, 32, 3), 10) == 11_173_962


def affine(x, part):
    return x @ part["kernel"] + part["bias"]


def vision_transformer(patch, heads, pool):
    """Patches, heads and queries one after the other."""

    def attend(x, block):
        d = x.shape[-1] // heads
        q, k, v = np.split(affine(x, block["qkv"]), 3, axis=-1)
        y = np.zeros_like(x)
        for image in range(len(x)):
            for head in range(heads):
                own = slice(head * d, (head + 1) * d)
                for i in range(x.shape[1]):
                    scores = np.exp(k[image, :, own] @ q[image, i, own] / sqrt(d))
                    y[image, i, own] = scores / scores.sum() @ v[image, :, own]
        return affine(y, block["out"])

    def run(params, x):
        embed, head = params["shared"]["embed"], params["shared"]["head"]
        patches = [
            x[:, i : i + patch, j : j + patch].reshape(len(x), -1)
            for i in range(0, x.shape[1], patch)
            for j in range(0, x.shape[2], patch)
        ]
        words = [affine(p, embed["linear"]) for p in patches]
        if pool == "token":
            words = [np.tile(embed["token"], (len(x), 1)), *words]
        x = np.stack(words, 1) + embed["positions"]
        for block in params["blocks"]:
            x = x + attend(layer_norm(x, block["attention_norm"], 1e-6), block)
            wide = affine(layer_norm(x, block["mlp_norm"], 1e-6), block["up"])
            gelu = wide * (1 + np.vectorize(erf)(wide / sqrt(2))) / 2
            x = x + affine(gelu, block["down"])
        x = layer_norm(x, head["norm"], 1e-6)
        return affine(x[:, 0] if pool == "token" else x.mean(1), head["linear"])

    return run


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_a_vision_transformer_is_the_one_of_loops(pool):
    model = model_of(f"vit(heads=2, hidden=5, layers=2, pool='{pool}', width=4)", (4, 6, 2))
    images = np.random.default_rng(0).standard_normal((2, 4, 6, 2))
    agree(model, vision_transformer(2, 2, pool), images)


def test_the_published_vision_transformer_has_its_number_of_parameters():
    base = "vit(heads=12, layers=12, patch=16, width=768)"
    assert count(base, (224, 224, 3), 1000) == 86_567_656


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("patch=3", "does not divide images"),
        ("heads=5", "does not divide width=32"),
        ("pool='max'", "token, mean"),
        ("drop=1.0", r"\[0, 1\)"),
        ("width=0", "at least 1"),
    ],
)
def test_wrong_arguments_of_vit_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        model_of(f"vit({arguments})", (8, 8, 1))


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("layers=19", "10, 18, 34"),
        ("layers=18, stages=[1]", "no effect beside"),
        ("stages=[]", "a list such as"),
        ("stages=[0]", "each at least 1"),
        ("stages=[1.5]", "each at least 1"),
        ("norm='layer'", "none, batch, group"),
        ("norm='group'", "does not"),
        ("norm='group', groups=3, width=4", "does not"),
        ("groups=2", "no effect"),
        ("width=0", "at least 1"),
        ("stem_stride=0", "at least 1"),
    ],
)
def test_wrong_arguments_of_resnet_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        model_of(f"resnet({arguments})")


@pytest.mark.parametrize("model", ["resnet", "vit"])
def test_flat_inputs_are_named(model):
    with pytest.raises(ValueError, match="wants images"):
        jddl.validate({"task": "least_squares", "model": model})


@pytest.mark.parametrize(
    "config",
    [
        {"model": "resnet(stages=[1, 1], width=2)", "mesh": "data=2", "runtime": "vmap"},
        pytest.param(
            {"model": "vit(heads=2, layers=1, patch=4, width=4)", "mesh": "data=2"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"model": "resnet(groups=2, norm='group', stages=[1, 1], width=2)", "mesh": "data=4"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"model": "vit(drop=0.3, heads=2, layers=2, patch=4, width=4)", "mesh": "data=4"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["batch norm", "vit", "group norm", "dropout"],
)
def test_workers_train_what_one_device_trains(config):
    certificate = verify(config | {"batch_size": 8}, steps=2)
    assert certificate.ok, [row for row in certificate.rows if row.verdict == "BUG"]
