"""The recurrent language model against a loop over time in NumPy, and one device."""

import jax
import numpy as np
import pytest

import jddl
from jddl import catalog
from jddl.studies.verify import verify
from tests.models.by_numpy import agree

TOKENS = {"task": "tests.models.tokens.tokens", "batch_size": 8}
SEEN = np.random.default_rng(0).integers(0, 5, (3, 6)).astype(np.int32)


def model_of(spec):
    return catalog.make("models", spec, {"inputs": (6,), "outputs": 5})


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def recurrent_network(params, tokens):
    x = params["shared"]["embed"]["table"][tokens]
    for layer in params["blocks"]:
        y = np.zeros_like(x)
        for b in range(len(x)):
            h = c = np.zeros(x.shape[-1])
            for t in range(x.shape[1]):
                gates = x[b, t] @ layer["inputs"] + h @ layer["recurrent"] + layer["bias"]
                i, f, g, o = np.split(gates, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
                y[b, t] = h
        x = y
    head = params["shared"]["head"]["linear"]
    return x @ head["kernel"] + head["bias"]


def test_it_is_the_loop_over_time():
    agree(model_of("lstm(layers=2, width=4)"), recurrent_network, SEEN)


def test_the_forget_gate_starts_open():
    params, _ = model_of("lstm(width=3)").init(jax.random.key(0))
    np.testing.assert_array_equal(params["blocks"][0]["bias"], np.repeat([0, 1, 0, 0], 3))


@pytest.mark.slow
def test_workers_train_what_one_device_trains():
    config = TOKENS | {"model": "lstm(drop=0.3, layers=2, width=4)", "mesh": "data=4"}
    certificate = verify(config | {"runtime": "vmap"}, steps=3, allow_import=("tests",))
    assert certificate.ok, [row for row in certificate.rows if row.verdict == "BUG"]


def test_it_learns_to_count():
    config = TOKENS | {"model": "lstm(width=16)", "mesh": "data=2", "runtime": "vmap", "steps": 60}
    config["optimizer"] = "adam(learning_rate=0.03)"
    assert jddl.train(config, allow_import=("tests",)).summary["test_accuracy"] == 1


@pytest.mark.parametrize(
    "arguments, words",
    [("width=0", "at least 1"), ("layers=0", "at least 1"), ("drop=1.0", r"\[0, 1\)")],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        model_of(f"lstm({arguments})")


def test_images_are_no_tokens():
    with pytest.raises(ValueError, match="wants tokens"):
        jddl.validate({"model": "lstm"})
