"""The equivalence certificate: is training on the mesh the training that one device would do?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from jddl import catalog, spec
from jddl.experiment import (
    DEFAULTS,
    SPEC_FIELDS,
    Experiment,
    build,
    complete,
    load_config,
)
from jddl.mesh import size
from jddl.runtimes._devices import ensure_devices
from jddl.studies import _causes, _explicit, _on_mesh
from jddl.studies._bytes import bytes_three_ways, communicates
from jddl.trees import leaf_names

PRECISION_FIELDS = ("precision", "loss_scale", "loss_scale_period")
Verdict = Literal["exact", "summation order", "BUG"]
Build = Callable[[ConfigDict], Experiment]
SHRINKS = 1e5  # times that float64 makes a difference of summation order smaller, at least
EQUAL = 1e-9  # in float64, whatever float32 gave


class Row(NamedTuple):
    """One statement of the certificate.

    check: 'data', 'one device', 'explicit workers', 'replicas' or 'bytes'; name: the leaf, or what
    was counted; float32, float64: the largest difference over the leaf's scale; cause: of a BUG.
    """

    check: str
    name: str
    verdict: Verdict
    float32: float = 0.0
    float64: float = 0.0
    cause: str = ""


class Certificate(NamedTuple):
    """Rows, and whether none of them is a BUG. `lossy`: what was set exact for 'one device'."""

    ok: bool
    rows: list[Row]
    lossy: str
    steps: int


def verify(
    config: Any,
    steps: int = 20,
    allow_import: tuple[str, ...] = (),
    make: Build | None = None,
) -> Certificate:
    """Compare a config's training with independent ones, leaf by leaf.

    'one device': the whole batch on one device, plain optax. Where the config is lossy by design,
    its lossy parts are first set so that they lose nothing, and then the config itself is compared
    with 'explicit workers': a Python list of workers and the aggregator's rule on lists. Both run
    in float32 and float64; a float32 difference is 'summation order' only if float64 shrinks it at
    least 1e5 times (or to below 1e-5 of one float32 rounding) and to 1e-9 of the leaf, else it is a
    BUG. Half precision is set to float32 for both, since its rounding shrinks in neither. 'data':
    batches do not depend on the number of workers. 'replicas': every output that the layout calls
    replicated is returned by each worker and compared bit for bit. 'bytes': sent bytes from the
    jaxpr, from the compiled program and from a closed form.

    Args:
      config: a path, a mapping or a ConfigDict.
      steps: how many steps each training takes.
      make: builds an experiment from a config; for steps that jddl did not assemble.

    Raises:
      ValueError: a wrong config, too few devices, an aggregator without a form on lists; a model
        that sums over the workers (batch statistics, balanced experts) under accumulation.
    """
    if isinstance(config, (str, bytes)) or hasattr(config, "__fspath__"):
        config, accepted = load_config(config)
        allow_import = (*allow_import, *accepted)
    config = complete(config)
    make = make or (lambda c: build(c, allow_import))
    experiment = make(config)
    ensure_devices(experiment.runtime.devices(experiment.mesh))
    wide = complete(dict(config) | {f: DEFAULTS[f] for f in PRECISION_FIELDS})
    lossless = exact_config(wide, allow_import)
    changed = [f for f in config if config[f] != lossless[f]]
    lossy = ", ".join(f"{f}={lossless[f]!r}" for f in changed)

    _check_comparable(experiment)
    rows = _data(config, experiment, make)
    rows += _against_one_device(lossless, steps, make, allow_import)
    if wide != lossless:
        rows += _against_explicit_workers(wide, make(wide), steps, make, allow_import)
    rows += _replicas(experiment, min(steps, 5))
    rows += [
        Row("bytes", name, "exact" if same else "BUG", cause=cause)
        for name, same, cause in bytes_three_ways(experiment)
    ]
    return Certificate(all(r.verdict != "BUG" for r in rows), rows, lossy, steps)


def exact_config(config: ConfigDict, allow_import: tuple[str, ...] = ()) -> ConfigDict:
    """The config with every lossy component set so that it loses nothing."""
    found = complete(config)
    for field, shelf in SPEC_FIELDS.items():
        plain = catalog.canonical(shelf, config[field], allow_import)
        lossless = catalog.exact(shelf, config[field], allow_import)
        if plain != lossless:
            found[field] = lossless
    return found


def _check_comparable(experiment: Experiment) -> None:
    """A model's sums over the workers are a micro-batch's, which the whole batch does not have."""
    if experiment.config.accumulate > 1 and communicates(experiment):
        raise ValueError(
            "a model that sums over the workers (batch statistics, balanced experts) has no "
            "one-device reference under accumulate > 1: each micro-batch has its own sums; verify "
            "it with accumulate=1"
        )


def judge(float32: float, float64: float) -> Verdict:
    """The verdict on a leaf from its relative differences in both precisions."""
    if not (np.isfinite(float32) and np.isfinite(float64)):
        return "BUG"
    if float32 == 0 and float64 == 0:
        return "exact"
    shrunk = max(float32, float(np.finfo(np.float32).eps)) / SHRINKS
    return "summation order" if float64 <= min(shrunk, EQUAL) else "BUG"


class _Pair(NamedTuple):
    """Both trainings of one precision, step by step."""

    mesh: list[Any]
    reference: list[Any]


def _compare(check: str, config: ConfigDict, pairs: dict[Any, _Pair], explain: Any) -> list[Row]:
    names = leaf_names(pairs[np.float64].mesh[0])
    apart = {d: _differences(pair, _learning_rate(config)) for d, pair in pairs.items()}
    verdicts = [judge(*both) for both in zip(apart[np.float32], apart[np.float64], strict=True)]
    causes = {}
    if "BUG" in verdicts:
        causes = explain([i for i, v in enumerate(verdicts) if v == "BUG"])
    return [
        Row(check, name, verdict, a, b, causes.get(i, ""))
        for i, (name, verdict, a, b) in enumerate(
            zip(names, verdicts, apart[np.float32], apart[np.float64], strict=True)
        )
    ]


def _differences(pair: _Pair, learning_rate: float) -> list[float]:
    """max |a - b| over max(|leaf|, learning rate) of each leaf, the largest over the steps."""
    found = []
    for mine, theirs in zip(pair.mesh, pair.reference, strict=True):
        leaves = zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True)
        found.append(
            [
                float(np.max(np.abs(a - b), initial=0.0))
                / max(float(np.max(np.abs(b), initial=0.0)), learning_rate)
                for a, b in leaves
            ]
        )
    return [float(x) for x in np.max(np.nan_to_num(found, nan=np.inf), axis=0)]


def _learning_rate(config: ConfigDict) -> float:
    """The optimiser's rate; 1e-3 for a schedule or a rate without a name."""
    rate = dict(spec.parse_call(config.optimizer).keywords).get("learning_rate")
    return float(rate) if isinstance(rate, (int, float)) else 1e-3


def _optimizers(config: ConfigDict, allow: tuple[str, ...]) -> tuple[Any, Any]:
    """optax as one would chain it by hand on one device, and the same without clipping."""
    given = {"seed": config.seed, "batch_size": config.batch_size}
    plain = catalog.make("optimizers", config.optimizer, given, allow)
    if not config.clip_norm:
        return plain, plain
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), plain), plain


def _data(config: ConfigDict, experiment: Experiment, make: Build) -> list[Row]:
    """Batches must not know the number of workers."""
    alone = make(complete(dict(config) | {"mesh": "data=1", "accumulate": 1})).task
    for step in range(3):
        batches = [t.batch(step, "train", config.seed) for t in (experiment.task, alone)]
        for name, theirs in batches[1].items():  # rows after the batch's end are padding
            if not np.array_equal(batches[0][name][: len(theirs)], theirs):
                cause = f"the batch of step {step} depends on the number of workers"
                return [Row("data", "batches", "BUG", cause=cause)]
    return [Row("data", "batches", "exact")]


def _against_one_device(
    config: ConfigDict, steps: int, make: Build, allow: tuple[str, ...]
) -> list[Row]:
    experiment = make(config)
    optimizer, plain = _optimizers(config, allow)
    pairs = {}
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype is np.float64):
            reference = _explicit.train(experiment, optimizer, 1, steps, dtype, _explicit.whole)
            pairs[dtype] = _Pair(_on_mesh.train(experiment, steps, dtype), reference)
    seek = lambda bad: _causes.of_gradients(  # noqa: E731
        experiment,
        optimizer,
        plain,
        size(experiment.mesh),
        bad,
        *pairs[np.float64],
    )
    return _compare("one device", config, pairs, seek)


def _against_explicit_workers(
    config: ConfigDict, experiment: Experiment, steps: int, make: Build, allow: tuple[str, ...]
) -> list[Row]:
    optimizer, _ = _optimizers(config, allow)
    workers, together = size(experiment.mesh), communicates(experiment)
    given = {"seed": config.seed, "axis": "data", "all_reduce": config.all_reduce}
    rule = catalog.on_lists("aggregators", config.aggregator, given, allow)
    if rule is None:
        raise ValueError(
            f"{config.aggregator} has no form on lists (`on_lists` in its file), so a lossy config "
            "cannot be verified"
        )
    pairs = {}
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype is np.float64):
            params, _ = _explicit.cast(experiment.model.init(jax.random.key(config.seed)), dtype)
            agree = _explicit.by_lists(rule, params, workers)
            reference = _explicit.train(
                experiment, optimizer, workers, steps, dtype, agree, together=together
            )
            pairs[dtype] = _Pair(_on_mesh.train(experiment, steps, dtype), reference)
    seek = lambda bad: _causes.of_exchange(  # noqa: E731
        experiment, optimizer, rule, workers, bad, *pairs[np.float64], together
    )
    return _compare("explicit workers", config, pairs, seek)


def _replicas(experiment: Experiment, steps: int) -> list[Row]:
    parted = _on_mesh.replicas(experiment, steps)
    if not parted:
        return [Row("replicas", "all replicated leaves", "exact")]
    own = (
        "; each worker fills this state by itself: mark it Local, or communicate before it "
        "(optax.MultiSteps goes inside a chain that communicates, not around it)"
    )
    return [
        Row("replicas", name, "BUG", cause=cause + (own if ".opt" in name else ""))
        for name, cause in parted.items()
    ]
