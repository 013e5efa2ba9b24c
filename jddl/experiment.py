"""A config: a locked, flat ConfigDict of scalars and spec strings, and what it builds."""

from __future__ import annotations

import difflib
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import optax
from ml_collections import ConfigDict

from jddl import assembly, catalog
from jddl import spec as specs
from jddl.clipping import clip_by_global_norm
from jddl.collectives._api import schedule
from jddl.guard import POLICIES, skip_nonfinite
from jddl.mesh import Mesh, Own, parse_mesh, size
from jddl.mesh import P as PartitionSpec
from jddl.precision import PRECISIONS, LossScaling, in_precision
from jddl.records import Cluster, Model, Runtime, Strategy, Task
from jddl.remat import rematerialised
from jddl.runtimes.vmap import vmap
from jddl.tasks._weights import padded
from jddl.trees import as_key

DEFAULTS: dict[str, Any] = {
    "task": "digits",
    "model": "mlp",
    "mesh": "data=8",
    "runtime": "shard_map",
    "aggregator": "mean",
    "all_reduce": "native",
    "optimizer": "sgd(learning_rate=0.1, momentum=0.9)",
    "clip_norm": 0.0,
    "cluster": "cluster",
    "batch_size": 240,
    "uneven_batch": "error",  # or "pad": where batch_size does not divide
    "accumulate": 1,
    "precision": "float32",
    "remat": "none",  # or "selective", "full": what is computed again in the backward pass
    "loss_scale": LossScaling().initial,  # the first one, for precision='float16'
    "loss_scale_period": LossScaling().period,  # good steps after which it doubles
    "steps": 100,
    "log_every": 10,
    "seed": 0,
    "save_every": 0,  # steps between checkpoints; 0: none
    "keep_last": 3,  # checkpoints
    "on_nonfinite": "stop",
    "step_timeout": 0.0,  # seconds; 0: none
}
SPEC_FIELDS = {
    "task": "tasks",
    "model": "models",
    "runtime": "runtimes",
    "aggregator": "aggregators",
    "all_reduce": "collectives",
    "optimizer": "optimizers",
    "cluster": "network",
}


class Experiment(NamedTuple):
    """Everything that a config builds; nothing here has touched a device.

    model: without rematerialisation, which concerns the strategy's backward pass alone.
    """

    config: ConfigDict
    mesh: Mesh
    runtime: Runtime
    task: Task
    model: Model
    strategy: Strategy
    cluster: Cluster


def default_config() -> ConfigDict:
    """A locked config with every field at its default: the start of a config file."""
    return ConfigDict(DEFAULTS).lock()


def load_config(path: str | Path) -> tuple[ConfigDict, tuple[str, ...]]:
    """Read a `.py` with get_config() or a run's config.json.

    Returns (config, packages that the file may import): a `.py` config is code, so the packages
    that it names in specs are accepted; a config.json accepts none. A path that the working
    directory lacks is looked up among the configs that jddl ships.

    Raises:
      ValueError: in one line.
    """
    found = _find(Path(path))
    if found.suffix == ".json":
        try:
            values = json.loads(found.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is no JSON: {error}") from None
        return complete(values), ()
    if found.suffix != ".py":
        raise ValueError(f"{path}: a config is a .py file with get_config() or a run's config.json")
    module_spec = importlib.util.spec_from_file_location("jddl_config", found)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
    if not hasattr(module, "get_config"):
        raise ValueError(f"{path} defines no get_config()")
    try:
        config = complete(module.get_config())
    except Exception as error:  # the file is the user's: name it, whatever it raised
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
    return config, tuple(sorted(_packages(config)))


def complete(config: Mapping[str, Any]) -> ConfigDict:
    """A locked config from any mapping: missing fields at their defaults, types checked."""
    if not isinstance(config, (Mapping, ConfigDict)):
        raise ValueError(f"a config is a mapping of fields, not {type(config).__name__}")
    done = default_config()
    for field, value in dict(config).items():
        if field not in DEFAULTS:
            near = difflib.get_close_matches(field, DEFAULTS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(DEFAULTS)}"
            raise ValueError(f"unknown config field {field!r}; {hint}")
        if type(value) is not type(DEFAULTS[field]):
            wanted = type(DEFAULTS[field]).__name__
            raise ValueError(f"config field {field!r} is of type {wanted}, not {value!r}")
        done[field] = value
    return done


def validate(config: Any, allow_import: tuple[str, ...] = ()) -> Experiment:
    """Parse, build, and `jax.eval_shape` one step; no device is touched.

    Args:
      config: a path, a mapping or a ConfigDict.
      allow_import: packages from which dotted names may be imported.

    Raises:
      ValueError: in one line, naming the mistake and the alternatives.
    """
    if isinstance(config, (str, Path)):
        config, accepted = load_config(config)
        allow_import = (*allow_import, *accepted)
    experiment = build(complete(config), allow_import)
    try:
        step_shapes(experiment)
    except (TypeError, ArithmeticError, AttributeError, IndexError) as error:
        short = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"a step of this config cannot be traced: {short}") from error
    except NameError as error:  # JAX's word for an axis that the mesh lacks
        raise ValueError(f"{error}; the mesh has: {', '.join(experiment.mesh)}") from error
    return experiment


def build(config: ConfigDict, allow_import: tuple[str, ...] = ()) -> Experiment:
    """The records that the config's spec strings name."""
    mesh = parse_mesh(config.mesh)
    for field in ("batch_size", "steps", "log_every", "accumulate"):
        if config[field] < 1:
            raise ValueError(f"{field} is at least 1, not {config[field]}")
    if not 0 <= config.seed < 1 << 32:
        raise ValueError(f"seed is from 0 to 2**32 - 1, not {config.seed}")
    pieces = size(mesh) * config.accumulate
    if config.uneven_batch not in ("error", "pad"):
        raise ValueError(f"uneven_batch is one of error, pad, not {config.uneven_batch!r}")
    if config.batch_size % pieces and config.uneven_batch == "error":
        times = f" times accumulate={config.accumulate}" if config.accumulate > 1 else ""
        raise ValueError(
            f"batch_size={config.batch_size} does not divide over the {size(mesh)} workers of mesh "
            f"{config.mesh!r}{times}; for example {_divisible(config.batch_size, pieces)} does, "
            "and uneven_batch='pad' takes any"
        )
    given: dict[str, Any] = {
        "batch_size": config.batch_size,
        "all_reduce": config.all_reduce,
        "axis": "data",
        "seed": config.seed,
        "n": size(mesh),
    }

    def make(field: str) -> Any:
        try:
            return catalog.make(SPEC_FIELDS[field], config[field], given, allow_import)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error

    runtime, cluster, task = make("runtime"), make("cluster"), make("task")
    task = padded(task, pieces) if config.uneven_batch == "pad" else task
    given |= {"inputs": task.inputs, "outputs": task.outputs}
    if "vocabulary" in task.facts:
        given["vocabulary"] = task.facts["vocabulary"]
    try:
        schedule(config.all_reduce, size(mesh)).prove()
    except ValueError as error:
        raise ValueError(f"all_reduce: {error}") from error
    if config.clip_norm < 0:
        raise ValueError(f"clip_norm is a norm, or 0 for no clipping, not {config.clip_norm}")
    optimizer = make("optimizer")
    if config.clip_norm:
        optimizer = optax.chain(clip_by_global_norm(config.clip_norm), optimizer)
    model, scaling = make("model"), _loss_scaling(config)
    if config.precision != "float32":
        model = in_precision(model, config.precision)
    strategy = assembly.data_parallel(
        task,
        rematerialised(model, config.remat),
        mesh,
        make("aggregator"),
        optimizer,
        config.all_reduce,
        config.accumulate,
        scaling,
    )
    if config.on_nonfinite not in POLICIES:
        raise ValueError(
            f"on_nonfinite is one of {', '.join(POLICIES)}, not {config.on_nonfinite!r}"
        )
    if config.on_nonfinite == "skip":
        strategy = skip_nonfinite(strategy)
    if config.save_every < 0 or config.keep_last < 1 or config.step_timeout < 0:
        raise ValueError("save_every and step_timeout are not negative, keep_last is at least 1")
    return Experiment(config, mesh, runtime, task, model, strategy, cluster)


def _loss_scaling(config: ConfigDict) -> LossScaling | None:
    if config.precision not in PRECISIONS:
        raise ValueError(
            f"precision is one of {', '.join(PRECISIONS)}, not {config.precision!r}; parameters "
            "and optimiser stay float32 in each"
        )
    if config.loss_scale <= 0 or config.loss_scale_period < 1:
        raise ValueError("loss_scale is above 0, loss_scale_period at least 1 step")
    if config.precision == "float16":
        return LossScaling(config.loss_scale, config.loss_scale_period)
    for field in ("loss_scale", "loss_scale_period"):
        if config[field] != DEFAULTS[field]:
            raise ValueError(
                f"{field}={config[field]} has no effect with precision={config.precision!r}: "
                "float16 alone needs its loss scaled"
            )
    return None


def step_shapes(experiment: Experiment) -> tuple[Any, Any]:
    """Whole-array shapes of (state, local sums) after one step, traced without devices."""
    state, batch, raw = abstract_inputs(experiment)
    strategy, mesh = experiment.strategy, experiment.mesh
    layout = strategy.layout(device_state(experiment))
    out_specs = (layout, Own(strategy.axes))
    step = vmap().spmd(strategy.step, mesh, (layout, strategy.batch, PartitionSpec()), out_specs)
    return jax.eval_shape(step, state, batch, jax.eval_shape(as_key, raw))


def device_state(experiment: Experiment) -> Any:
    """Shapes of the state as one worker sees it."""
    return jax.eval_shape(lambda: experiment.strategy.init(*_initial(experiment)))


def abstract_inputs(experiment: Experiment) -> tuple[Any, Any, Any]:
    """Whole-array shapes of (state, batch, raw key of a step)."""
    strategy, mesh = experiment.strategy, experiment.mesh
    layout = strategy.layout(device_state(experiment))
    init = vmap().spmd(strategy.init, mesh, (PartitionSpec(), PartitionSpec()), layout)
    state = jax.eval_shape(lambda: init(*_initial(experiment)))
    return state, batch_shapes(experiment, 1), jax.ShapeDtypeStruct((2,), "uint32")


def batch_shapes(experiment: Experiment, workers: int) -> Any:
    """Shapes of one worker's batch when the global batch is split over that many."""
    batch = experiment.task.batch(0, "train", experiment.config.seed)
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((x.shape[0] // workers, *x.shape[1:]), x.dtype), batch
    )


def _initial(experiment: Experiment) -> tuple[Any, Any]:
    return experiment.model.init(jax.random.key(experiment.config.seed))


def _packages(config: ConfigDict) -> set[str]:
    named = [c for f in SPEC_FIELDS for c in specs.calls(specs.parse(config[f])) if c.dotted]
    return {c.name.split(".")[0] for c in named}


def _divisible(batch: int, workers: int) -> int:
    return max(workers, batch // workers * workers)


def _find(path: Path) -> Path:
    package = Path(__file__).parent
    for root in (Path(), package / "_shipped", package.parent):
        if (root / path).is_file():
            return root / path
    shipped = [
        p.name
        for r in (package / "_shipped", package.parent)
        for p in (r / "configs").glob("[!_]*.py")
    ]
    raise ValueError(
        f"no such config file: {path}; shipped: configs/{{{', '.join(sorted(set(shipped)))}}}"
    )
