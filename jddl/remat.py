"""Rematerialisation: what the forward pass keeps for the backward pass, and what is done again."""

from __future__ import annotations

from typing import Any

import jax

from jddl.collectives._api import REDUCED
from jddl.records import Context, Model

POLICIES = ("none", "selective", "full")


def rematerialised(model: Model, policy: str) -> Model:
    """The model with its blocks' intermediate values computed again in the backward pass.

    'none': every value that the backward pass reads is kept. 'selective': of each block its input
    and the results of its matrix products, convolutions and `reduce_from`; element-wise operations,
    normalisations and products with batch dimensions (attention's scores) are done again. 'full':
    of each block its input alone; the whole block runs again, its collectives too, so a
    block that sends in the forward pass sends it twice.

    Values, gradients and random numbers are those of the model itself: the same operations run
    twice. `embed` and `head` are left as they are. A block that keeps little but the results of
    its products (linear and ReLU) gains little from 'selective'.

    XLA's CPU compiler merges repeated products with the first ones (not collectives): there a step,
    its time and its memory are the same under every policy.

    Args:
      policy: one of POLICIES.

    Raises:
      ValueError: an unknown policy.

    Reference: Chen et al., "Training deep nets with sublinear memory cost", 2016 ('full', one
    segment a block, where the paper takes the square root of their number); Korthikanti et al.,
    "Reducing activation recomputation in large transformer models", 2022 ('selective').
    """
    if policy not in POLICIES:
        raise ValueError(f"remat is one of {', '.join(POLICIES)}, not {policy!r}")
    if policy == "none":
        return model
    keep = jax.checkpoint_policies.nothing_saveable if policy == "full" else _is_saved

    def block(params: Any, stats: Any, x: Any, ctx: Context) -> tuple[Any, Any, Any]:
        plain: dict[str, Any] = {}

        def run(params: Any, stats: Any, x: Any) -> tuple[Any, Any, Any]:
            x, stats, aux = model.block(params, stats, x, ctx)
            plain.update({k: w for k, (_, w) in aux.items() if isinstance(w, (int, float))})
            return x, stats, aux

        x, stats, aux = jax.checkpoint(run, policy=keep)(params, stats, x)
        # A weight that is a plain number travels nowhere, so it stays one.
        return x, stats, {k: (s, plain.get(k, w)) for k, (s, w) in aux.items()}

    return model._replace(block=block)


def _is_saved(primitive: Any, *_: Any, **parameters: Any) -> bool:
    if primitive.name == "dot_general":
        _, (batch, _) = parameters["dimension_numbers"]
        return not batch
    if primitive.name == "name":
        return bool(parameters["name"] == REDUCED)
    return bool(primitive.name == "conv_general_dilated")
