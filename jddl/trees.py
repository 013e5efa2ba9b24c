"""Small things about pytrees: one flat vector, leaf names, keys, the per-worker marker."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_pytree_node_class
class Local:
    """Marks a part of a state in which each worker has its own value.

    Layouts are found from it, so any optax chain may hold per-worker leaves.

    Args:
      value: any pytree.
      rule: what a checkpoint's values become on another number of workers, as the method states
        it (`mesh.RULES`); None: there is no answer, and loading them there is refused.
    """

    def __init__(self, value: Any, rule: str | None = None) -> None:
        self.value, self.rule = value, rule

    def tree_flatten(self) -> tuple[tuple[Any], str | None]:
        """One child; the rule is static."""
        return (self.value,), self.rule

    @classmethod
    def tree_unflatten(cls, rule: str | None, children: tuple[Any]) -> Local:
        """The inverse of `tree_flatten`."""
        return cls(children[0], rule)

    def __repr__(self) -> str:
        return f"Local({self.value!r})"


def ravel(tree: Any) -> tuple[dict[str, jax.Array], Callable[[dict[str, jax.Array]], Any]]:
    """One flat vector for each dtype of the tree, and the inverse.

    Communication goes over whole vectors: leaf by leaf, every leaf would pay all the rounds.
    """
    leaves, structure = jax.tree.flatten(tree)
    leaves = [jnp.asarray(x) for x in leaves]
    groups: dict[str, list[int]] = {}
    for index, leaf in enumerate(leaves):
        groups.setdefault(str(leaf.dtype), []).append(index)
    vectors = {
        dtype: leaves[members[0]].reshape(-1)
        if len(members) == 1
        else jnp.concatenate([leaves[i].reshape(-1) for i in members])
        for dtype, members in groups.items()
    }

    def unravel(flat: dict[str, jax.Array]) -> Any:
        out: list[Any] = [None] * len(leaves)
        for dtype, members in groups.items():
            offset = 0
            for i in members:
                out[i] = flat[dtype][offset : offset + leaves[i].size].reshape(leaves[i].shape)
                offset += leaves[i].size
        return jax.tree.unflatten(structure, out)

    return vectors, unravel


def leaf_names(tree: Any) -> list[str]:
    """The path of each leaf as text: "['shared']['head']['bias']"."""
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def step_key(seed: int, step: int) -> np.ndarray:
    """The raw key u32[2] of a step, made on the host: a step that draws nothing receives nothing.

    `as_key` turns it into a JAX key inside the program.
    """
    return np.array([seed & 0xFFFFFFFF, step], np.uint32)


def as_key(raw: Any) -> Any:
    """A JAX key (threefry2x32, whatever JAX's default) from the raw key of `step_key`."""
    return jax.random.wrap_key_data(raw, impl="threefry2x32")


def fold_name(key: Any, name: str) -> Any:
    """Fold a text into a random key (CRC-32, the same in every process)."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))
