"""Certificates of the shipped configs and of one example of every lossy component."""

import datetime
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jddl
from jddl import catalog
from jddl.clipping import clip_by_global_norm
from jddl.mesh import P
from jddl.runtimes.vmap import vmap
from jddl.studies.verify import judge, verify
from tests.test_configs import has_its_data

CONFIGS = sorted((Path(jddl.__file__).parent.parent / "configs").glob("[!_]*.py"))


FIXED = {"quickstart", "float16", "cnn_batch_norm"}  # each run; of the others one a day
OTHERS = [p for p in CONFIGS if p.stem not in FIXED]
DAILY = FIXED | {OTHERS[datetime.date.today().toordinal() % len(OTHERS)].stem}


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] * (p.stem not in DAILY)) for p in CONFIGS],
    ids=lambda p: p.stem,
)
def test_every_config_has_a_certificate(path):
    if not has_its_data(path):
        return  # the message that names its package has been seen
    config = dict(jddl.validate(path).config) | {"runtime": "vmap"}
    pieces = int(config["mesh"].removeprefix("data=")) * config["accumulate"]
    even = config["uneven_batch"] == "error"
    config["batch_size"] = config["batch_size"] // 3 // pieces * pieces if even else 83
    config["batch_size"] = max(config["batch_size"], pieces)
    certificate = verify(config, steps=3)
    assert certificate.ok, certificate.rows


@pytest.mark.parametrize("spec", catalog.examples("aggregators"))
def test_every_aggregator_equals_its_rule_on_lists(spec):
    config = {
        "task": "least_squares", "model": "mlp(hidden=4)", "mesh": "data=3", "runtime": "vmap",
        "batch_size": 12, "aggregator": spec,
    }  # fmt: skip
    certificate = verify(config, steps=6)
    assert certificate.ok, certificate.rows
    assert bool(certificate.lossy) == (spec not in ("mean", "compressed(identity)",
                                                    "error_feedback(identity)"))  # fmt: skip


@pytest.mark.parametrize("spec", catalog.examples("compressors"))
def test_the_exact_setting_loses_nothing(spec):
    compressor = catalog.make("compressors", catalog.exact("compressors", spec))
    x = jnp.asarray(np.random.default_rng(0).standard_normal(37).astype(np.float32))
    payload, _ = compressor.compress(x, compressor.init(x), jax.random.key(0))
    np.testing.assert_array_equal(compressor.decompress(payload, x, jax.random.key(0)), x)


def test_through_shard_map_the_compiled_bytes_stand_beside_the_traced():
    certificate = verify({"model": "mlp(hidden=4)", "all_reduce": "ring"}, steps=2)
    assert certificate.ok
    assert [row.name for row in certificate.rows if row.check == "bytes"] == [
        "sent bytes, jaxpr = HLO",
        "sent bytes, jaxpr = closed form",
    ]


def test_the_rule_of_judging():
    assert judge(0, 0) == "exact"
    assert judge(1e-7, 1e-16) == "summation order"
    assert judge(3e-2, 1e-9) == "summation order"  # shrunk 3e7 times
    assert judge(0, 1e-16) == "summation order"
    assert judge(1e-7, 1e-9) == "BUG"  # shrunk 100 times only
    assert judge(1e-3, 1e-3) == "BUG"
    assert judge(1.0, 1e-6) == "BUG"  # shrunk 1e6 times, yet not equal in float64
    assert judge(0, float("nan")) == "BUG"


def test_clipping_knows_its_axes():
    """A leaf cut over 4 workers and a replicated one: the norm of the whole, each once."""
    rng = np.random.default_rng(0)
    g = {"cut": rng.standard_normal((8, 3)), "same": rng.standard_normal(5)}
    g = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), g)
    specs = {"cut": P("data"), "same": P()}
    for norm in (0.5, 100.0):
        tx = clip_by_global_norm(norm, specs)
        run = vmap().spmd(lambda x, tx=tx: tx.update(x, ())[0], {"data": 4}, (specs,), specs)
        wanted, _ = optax.clip_by_global_norm(norm).update(g, ())
        found = jax.jit(run)(g)
        for name in g:
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6)


def test_dropout_belongs_to_the_example():
    """1, 2, 4 and 8 workers drop the same units: equal parameters after ten steps."""
    config = {"model": "mlp(drop=0.5, hidden=16)", "runtime": "vmap", "steps": 10, "log_every": 10}
    runs = [jddl.train(config | {"mesh": f"data={n}"}) for n in (1, 2, 4, 8)]
    plain = jddl.train(config | {"mesh": "data=1", "model": "mlp(hidden=16)"})
    for run in runs[1:]:
        for a, b in zip(jax.tree.leaves(run.params), jax.tree.leaves(runs[0].params), strict=True):
            assert np.abs(a - b).max() < 1e-5
    assert abs(plain.history[0]["loss"] - runs[0].history[0]["loss"]) > 1e-2
