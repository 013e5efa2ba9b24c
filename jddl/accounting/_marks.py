"""Marks that a collective leaves in the jaxpr; they cost nothing in the compiled program."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

PAYLOAD, EXCHANGE = "jddl.payload", "jddl.exchange"


def payload(tree: Any) -> Any:
    """The identity; marks the arrays as what one worker contributes to an exchange."""
    return jax.tree.map(lambda x: checkpoint_name(x, PAYLOAD), tree)


def exchange() -> AbstractContextManager[Any]:
    """Inside it payloads are marked, so its collectives' operands do not count as payload again."""
    return jax.named_scope(EXCHANGE)
