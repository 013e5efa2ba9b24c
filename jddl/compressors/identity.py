"""No compression."""

from __future__ import annotations

from typing import Any

from jddl.records import Compressor

EXAMPLES = ("identity",)


def identity() -> Compressor:
    """The payload is the leaf itself; the exact member that every lossy one is compared with."""

    def compress(leaf: Any, state: Any, key: Any) -> tuple[Any, Any]:
        return leaf, state

    def decompress(payload: Any, like: Any, key: Any = None) -> Any:
        return payload.reshape(like.shape).astype(like.dtype)

    return Compressor(lambda leaf: (), compress, decompress, combine="sum")
