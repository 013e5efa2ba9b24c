"""The same seed gives the same initial parameters, bit for bit, whatever the number of devices."""

import datetime

import jax
import numpy as np
import pytest

import jddl
from jddl import catalog
from jddl.loop import start

TASKS = ("digits", "tests.models.tokens.tokens", "recsys(fields=3, vocabulary=60)")
TODAY = datetime.date.today().toordinal() % len(catalog.names("models"))
MODELS = catalog.names("models")[TODAY:] + catalog.names("models")[:TODAY]  # the first is not slow


def initial(model, n):
    """The whole initial state of a run on n devices, on the host."""
    for task in TASKS:
        config = {"task": task, "model": model, "mesh": f"data={n}", "seed": 3}
        try:
            experiment = jddl.validate(config, allow_import=("tests",))
        except ValueError as refused:
            reasons = str(refused)
            continue
        return jax.device_get(start(experiment, None)[0])
    raise AssertionError(f"no task has inputs for {model}: {reasons}")


@pytest.mark.parametrize(
    "name", [pytest.param(m, marks=[pytest.mark.slow] * (m != MODELS[0])) for m in MODELS]
)
def test_the_number_of_devices_changes_no_bit(name):
    model = catalog.describe("models", name).examples[0]
    one = jax.tree.leaves(initial(model, 1))
    assert sum(leaf.size for leaf in one)
    for n in (2, 4, 8):
        for a, b in zip(one, jax.tree.leaves(initial(model, n)), strict=True):
            assert a.dtype == b.dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("spec", catalog.examples("models"))
def test_parameters_are_float32_whatever_jax_enable_x64_says(spec):
    def shapes():
        for task in TASKS:
            try:
                experiment = jddl.validate({"task": task, "model": spec}, allow_import=("tests",))
            except ValueError:
                continue
            return jax.eval_shape(experiment.model.init, jax.random.key(0))
        raise AssertionError(f"no task has inputs for {spec}")

    with jax.enable_x64(True):
        wide = shapes()
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(wide)} == {"float32"}
