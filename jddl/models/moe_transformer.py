"""A decoder-only transformer whose feed-forward layers are experts."""

from __future__ import annotations

from jddl.models._decoder import decoder
from jddl.models._presets import shape_of
from jddl.records import Model

EXAMPLES = (
    "moe_transformer(capacity_factor=1.25, layers=1, penalty=0.01, width=16)",
    "moe_transformer(capacity_factor=1.0, layers=1, top=1, width=16)",
    "moe_transformer(layers=1, penalty=0.0, width=16)",
)


def moe_transformer(
    inputs: tuple[int, ...],
    outputs: int,
    preset: str = "mixtral_debug",
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    hidden: int | None = None,
    experts: int | None = None,
    top: int | None = None,
    norm: str | None = None,
    positions: str | None = None,
    activation: str | None = None,
    bias: bool | None = None,
    tied: bool | None = None,
    theta: float | None = None,
    capacity_factor: float = 0.0,
    penalty: float = 0.01,
    drop: float = 0.0,
) -> Model:
    """`transformer` with, in each block, a router and `experts` feed-forward layers.

    A token's output is the sum of its `top` chosen experts' outputs times their gates: for top=1
    the router's probability (Switch), for more the probabilities scaled to add up to 1 (GShard,
    Mixtral). An expert has ceil(capacity_factor top length / experts) places in each example; a
    choice beyond them is dropped and adds nothing. Capacity is counted an example, not a worker's
    batch as in Switch, so workers and padding change nothing. All first choices are placed before
    any second one, so with top > 1 and a capacity a token's second choice may be dropped for a
    later token's first: as in GShard, such a model is not strictly causal.

    Reports 'dropped', the share of choices dropped, and in training 'penalty', the mean over
    layers of penalty E sum_e f_e p_e, whose sum over layers is added to the loss; f and p are taken
    over the global batch (with accumulate=k over each micro-batch of all workers).

    Args:
      inputs: (longest sequence,), given by the task.
      outputs: size of the vocabulary, given by the task.
      preset: 'mixtral_debug' or 'mixtral_8x7b', for `jax.eval_shape`.
      layers: number of blocks.
      width: of the residual stream.
      heads: of the queries; divides the width.
      kv_heads: of keys and values, each read by heads / kv_heads query heads; left out, in the
        preset's ratio to heads.
      hidden: width of each expert; left out, in the preset's ratio to width.
      experts: feed-forward layers a block.
      top: experts a token chooses.
      norm: 'layer' or 'rms'.
      positions: 'learned' or 'rope'.
      activation: 'gelu' or 'swiglu'.
      bias: whether the attention's linear layers have one; experts and router have none.
      tied: whether the head is the embedding's transpose.
      theta: base of the rotary angles.
      capacity_factor: 0: as many places as tokens, so nothing is dropped.
      penalty: factor of the balancing loss; 0: none.
      drop: dropout of the embedding and of what each half block adds.

    Raises:
      ValueError: unknown preset or choice; heads that do not divide; a negative factor.

    Reference: Lepikhin et al., "GShard", 2021; Fedus et al., "Switch transformers", 2022; Jiang et
    al., "Mixtral of experts", 2024 (its code counts all choices in f; here, as in GShard, the
    first).
    """
    if capacity_factor < 0 or penalty < 0:
        raise ValueError(
            f"capacity_factor and penalty are not negative, not {capacity_factor} and {penalty}"
        )
    changes = {
        "layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads, "hidden": hidden,
        "experts": experts, "top": top, "norm": norm, "positions": positions,
        "activation": activation, "bias": bias, "tied": tied, "theta": theta,
    }  # fmt: skip
    shape = shape_of("moe_transformer", preset, True, changes)
    return decoder(inputs, outputs, shape, drop, capacity_factor, penalty)
