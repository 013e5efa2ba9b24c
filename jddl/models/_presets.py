"""Published sizes of decoder-only transformers, and small ones of the same form."""

from __future__ import annotations

from typing import Any, NamedTuple


class Shape(NamedTuple):
    """What fixes a decoder but for its vocabulary and its longest context.

    layers, width: blocks and width of the residual stream; heads, kv_heads: of queries, and of keys
    and values; hidden: width of a feed-forward layer; norm: 'layer' or 'rms'; positions: 'learned'
    or 'rope' with base theta; activation: 'gelu' or 'swiglu'; bias: of linear layers; tied: whether
    the head is the embedding's transpose; experts, top: of each block, 0 without.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    norm: str = "layer"
    positions: str = "learned"
    activation: str = "gelu"
    bias: bool = True
    tied: bool = True
    theta: float = 10_000.0
    experts: int = 0
    top: int = 0


def _gpt(layers: int, width: int, heads: int) -> Shape:
    return Shape(layers, width, heads, heads, 4 * width)


def _llama(layers: int, width: int, heads: int, kv_heads: int, hidden: int, **more: Any) -> Shape:
    shape = Shape(layers, width, heads, kv_heads, hidden, "rms", "rope", "swiglu", False, False)
    return shape._replace(**more)


# Radford et al. 2019; Shoeybi et al. 2019, table 1; Brown et al. 2020, table 2.1;
# Touvron et al. 2023; Grattafiori et al. 2024, table 3; Jiang et al. 2024, table 1.
PRESETS: dict[str, Shape] = {
    "gpt2_debug": _gpt(2, 64, 4),
    "gpt2": _gpt(12, 768, 12),
    "gpt2_medium": _gpt(24, 1024, 16),
    "gpt2_large": _gpt(36, 1280, 20),
    "gpt2_xl": _gpt(48, 1600, 25),
    "megatron_8b": _gpt(72, 3072, 32),
    "gpt3_175b": _gpt(96, 12288, 96),
    "llama_debug": _llama(2, 64, 4, 2, 176),
    "llama2_7b": _llama(32, 4096, 32, 32, 11008),
    "llama3_8b": _llama(32, 4096, 32, 8, 14336, theta=500_000.0),
    "llama3_70b": _llama(80, 8192, 64, 8, 28672, theta=500_000.0),
    "mixtral_debug": _llama(2, 64, 4, 2, 128, experts=4, top=2),
    "mixtral_8x7b": _llama(32, 4096, 32, 8, 14336, theta=1_000_000.0, experts=8, top=2),
}


def shape_of(model: str, preset: str, experts: bool, changes: dict[str, Any]) -> Shape:
    """The preset with the changes that are not None.

    Without a change of their own, `hidden` and `kv_heads` keep their ratio to width and heads.

    Raises:
      ValueError: unknown preset, one of the other model, values that cannot be.
    """
    known = [name for name, shape in PRESETS.items() if bool(shape.experts) == experts]
    if preset not in known:
        raise ValueError(f"{model}: preset is one of {', '.join(known)}, not {preset!r}")
    plain = PRESETS[preset]
    made = plain._replace(**{k: v for k, v in changes.items() if v is not None})
    for name, of in (("hidden", "width"), ("kv_heads", "heads")):
        if changes.get(name) is None:
            kept = getattr(made, of) * getattr(plain, name) / getattr(plain, of)
            made = made._replace(**{name: max(1, round(kept))})
    for name, allowed in (
        ("norm", ("layer", "rms")),
        ("positions", ("learned", "rope")),
        ("activation", ("gelu", "swiglu")),
    ):
        if getattr(made, name) not in allowed:
            raise ValueError(
                f"{model}: {name} is one of {', '.join(allowed)}, not {getattr(made, name)!r}"
            )
    for name in ("layers", "width", "heads", "kv_heads", "hidden", "theta"):
        if getattr(made, name) <= (-1 if name == "layers" else 0):
            raise ValueError(f"{model}: {name} cannot be {getattr(made, name)}")
    if made.width % made.heads or made.heads % made.kv_heads:
        raise ValueError(
            f"{model}: heads={made.heads} divides width={made.width}, and kv_heads="
            f"{made.kv_heads} divides heads"
        )
    if made.positions == "rope" and made.width // made.heads % 2:
        raise ValueError(f"{model}: rope turns pairs: width / heads = {made.width // made.heads}")
    if experts and not 1 <= made.top <= made.experts:
        raise ValueError(f"{model}: top={made.top} of experts={made.experts} is not possible")
    return made
