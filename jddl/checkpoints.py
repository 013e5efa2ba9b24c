"""A run's checkpoints: WORKDIR/checkpoints/STEP, written by orbax.

One holds every leaf of the state by its path, as the whole array, and a record of where the run
stood. The data position is the step, and random keys are folded from (seed, step), so both are in
it. Orbax writes into a temporary folder and renames it, so that a folder named by a number alone
is complete; what a killed process left half-written is ignored and removed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jddl.mesh import RULES, Mesh, Own, broadcast, is_layout, parse_mesh
from jddl.trees import leaf_names

FOLDER = "checkpoints"
Leaves = dict[str, np.ndarray]


class Saved(NamedTuple):
    """A checkpoint as read: its folder, the step after which it was taken, leaves, the record.

    about: 'mesh' (text); 'own' {leaf: axes}; 'keys' {leaf: PRNG name}; 'metrics_bytes', the length
    of metrics.jsonl; 'seconds' of training so far.
    """

    path: Path
    step: int
    leaves: Leaves
    about: dict[str, Any]


class Keeper:
    """Saves a run's states and removes all but the last `keep`; without a workdir, does nothing."""

    def __init__(self, workdir: Path | None, keep: int) -> None:
        self.workdir, self.keep = workdir, keep
        self.manager: Any = None  # made at the first save: orbax takes seconds to import
        self.last: int | None = None

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        if self.manager is not None:
            self.manager.close()

    def save(self, step: int, leaves: Leaves, about: dict[str, Any]) -> None:
        """Write one checkpoint; on return it is complete."""
        if self.workdir is not None:
            import orbax.checkpoint as ocp

            self.manager = self.manager or _manager(self.workdir, self.keep)
            self.last = step
            arrays = {name: x for name, x in leaves.items() if x.size}  # orbax takes no empty ones
            self.manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(arrays), about=ocp.args.JsonSave(about)
                ),
                force=True,
            )


def steps(workdir: str | Path) -> list[int]:
    """The steps of the complete checkpoints in a run's folder, in order."""
    folder = Path(workdir) / FOLDER
    if not folder.is_dir():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit())


def load(workdir: str | Path, step: int | None = None) -> Saved | None:
    """The checkpoint of a step, the last one by default; None where there is none.

    Raises:
      ValueError: a folder that orbax cannot read.
    """
    found = steps(workdir)
    if step is None and found:
        step = found[-1]
    if step is None or step not in found:
        return None
    path = Path(workdir).resolve() / FOLDER / str(step)
    import orbax.checkpoint as ocp
    from absl import logging

    said = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # orbax warns of a file that such checkpoints never have
    try:
        about = json.loads((path / "about" / "metadata").read_text())
        with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as reader:
            shapes = reader.metadata(path / "state")
            item = getattr(shapes, "item_metadata", shapes)
            target = {k: np.empty(v.shape, v.dtype) for k, v in item.tree.items()}
            leaves = reader.restore(path / "state", args=ocp.args.StandardRestore(target))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"cannot read the checkpoint {path}: {error}") from None
    finally:
        logging.set_verbosity(said)
    return Saved(path, step, {k: np.asarray(v) for k, v in leaves.items()}, about)


def leaves_of(state: Any) -> Leaves:
    """{path: whole array} of a state, on the host; random keys as their data."""
    data = jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, state)
    return dict(zip(leaf_names(state), map(np.asarray, jax.tree.leaves(jax.device_get(data)))))


def record(state: Any, layout: Any, mesh: str) -> dict[str, Any]:
    """What a checkpoint says about its leaves."""
    paths = leaf_names(state)
    layouts = jax.tree.leaves(broadcast(layout, state), is_leaf=is_layout)
    named = zip(paths, jax.tree.leaves(state), strict=True)
    keys = {p: str(jax.random.key_impl(x)) for p, x in named if _is_key(x)}
    own = {p: list(w.axes) for p, w in zip(paths, layouts, strict=True) if isinstance(w, Own)}
    return {"mesh": mesh, "own": own, "keys": keys}


def restore(saved: Saved, shapes: Any, layout: Any, mesh: Mesh) -> Any:
    """The whole-array state (on the host) that a run on `mesh` starts from.

    Natural leaves are loaded as they are. A worker's own leaves are too where their axes have the
    old sizes; else the rule that their method states is applied.

    Args:
      saved: the checkpoint.
      shapes: the state's whole arrays under the new mesh, as `jax.eval_shape` gives them.
      layout: of that state (a prefix is enough).

    Raises:
      ValueError: a leaf is missing, of another shape, or has no rule; in one line with its path.
    """
    old = parse_mesh(saved.about["mesh"])
    layouts = jax.tree.leaves(broadcast(layout, shapes), is_leaf=is_layout)
    wanted, structure = jax.tree.flatten(shapes)
    found = []
    for name, want, where in zip(leaf_names(shapes), wanted, layouts, strict=True):
        if not want.size:
            found.append(np.zeros(want.shape, want.dtype))
            continue
        if name not in saved.leaves:
            raise ValueError(f"{saved.path} has no leaf {name}: it is of another method or model")
        x, axes = saved.leaves[name], saved.about["own"].get(name)
        if isinstance(where, Own) and axes is not None:
            before, now = {a: old[a] for a in axes}, {a: mesh[a] for a in where.axes}
            if list(before.items()) != list(now.items()):
                x = _by_rule(name, x, before, now, where.rule)
        if name in saved.about["keys"]:
            x = jax.random.wrap_key_data(jnp.asarray(x), impl=saved.about["keys"][name])
        if (x.shape, x.dtype) != (want.shape, want.dtype):
            raise ValueError(
                f"{saved.path}: leaf {name} is {x.dtype}{list(x.shape)}, the run wants "
                f"{want.dtype}{list(want.shape)}"
            )
        found.append(x)
    return jax.tree.unflatten(structure, found)


def _by_rule(name: str, x: np.ndarray, old: Mesh, new: Mesh, rule: str | None) -> np.ndarray:
    """A worker's own leaf for other workers; axes of unchanged size keep their places."""
    if rule is None:
        raise ValueError(
            f"leaf {name} is each worker's own, {_text(old)} became {_text(new)}, and its method "
            f"states no rule for that: resume with {_text(old)}"
        )
    if rule not in RULES:
        raise ValueError(f"leaf {name}: unknown rule {rule!r}; there are: {', '.join(RULES)}")
    if not np.issubdtype(np.result_type(x.dtype, np.float32), np.floating):
        raise ValueError(f"leaf {name} is {x.dtype}[...]: the rule {rule!r} is for real numbers")
    kept = [a for a in old if new.get(a) == old[a]]
    gone = tuple(i for i, a in enumerate(old) if a not in kept)
    mean = x.astype(np.float64).mean(axis=gone)  # [kept..., local]
    places = [kept.index(a) for a in new if a in kept]
    mean = mean.transpose(*places, *range(len(kept), mean.ndim))
    mean = np.expand_dims(mean, tuple(i for i, a in enumerate(new) if a not in kept))
    whole = np.broadcast_to(mean, (*new.values(), *mean.shape[len(new) :]))
    return whole.astype(x.dtype)


def _text(mesh: Mesh) -> str:
    return ",".join(f"{name}={size}" for name, size in mesh.items())


def _is_key(x: Any) -> bool:
    return bool(jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key))


def _manager(workdir: Path, keep: int) -> Any:
    import orbax.checkpoint as ocp

    return ocp.CheckpointManager(
        workdir.resolve() / FOLDER,
        options=ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False),
    )
