"""A decoder-only transformer: GPT-2 style, Llama style and what lies between."""

from __future__ import annotations

from jddl.models._decoder import decoder
from jddl.models._presets import shape_of
from jddl.records import Model

EXAMPLES = (
    "transformer(layers=1, width=16)",
    "transformer(layers=1, preset='llama_debug', width=16)",
    "transformer(drop=0.1, kv_heads=2, layers=1, tied=False, width=16)",
)


def transformer(
    inputs: tuple[int, ...],
    outputs: int,
    preset: str = "gpt2_debug",
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    hidden: int | None = None,
    norm: str | None = None,
    positions: str | None = None,
    activation: str | None = None,
    bias: bool | None = None,
    tied: bool | None = None,
    theta: float | None = None,
    drop: float = 0.0,
) -> Model:
    """Pre-norm blocks x + attention(norm(x)), x + feed_forward(norm(x)); a norm and a linear head.

    Tokens i32[b, s] in, logits f[b, s, outputs] out; position i sees 0 to i. Arguments that are
    left out are the preset's. GPT-2 style: layer norm, learned positions, GELU (tanh form), biases,
    tied. Llama style: RMS norm, rotary positions, SwiGLU, grouped-query attention, no bias, untied.
    Weights start normal with deviation 0.02, those that add to the residual stream with
    0.02 / sqrt(2 layers), biases at 0.

    Args:
      inputs: (longest sequence,), given by the task.
      outputs: size of the vocabulary, given by the task.
      preset: 'gpt2_debug', 'gpt2', 'gpt2_medium', 'gpt2_large', 'gpt2_xl', 'megatron_8b',
        'gpt3_175b', 'llama_debug', 'llama2_7b', 'llama3_8b' or 'llama3_70b'. The large ones are for
        `jax.eval_shape`.
      layers: number of blocks.
      width: of the residual stream.
      heads: of the queries; divides the width.
      kv_heads: of keys and values, each read by heads / kv_heads query heads; left out, in the
        preset's ratio to heads.
      hidden: width of the feed-forward layer; left out, in the preset's ratio to width.
      norm: 'layer' or 'rms'.
      positions: 'learned' or 'rope'.
      activation: 'gelu' or 'swiglu'.
      bias: whether linear layers have one.
      tied: whether the head is the embedding's transpose.
      theta: base of the rotary angles.
      drop: dropout of the embedding and of what each half block adds. Attention weights are not
        dropped, unlike GPT-2.

    Raises:
      ValueError: unknown preset or choice; heads that do not divide.

    Reference: Radford et al. 2019; Touvron et al. 2023; Ainslie et al. 2023 (grouped queries).
    """
    changes = {
        "layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads, "hidden": hidden,
        "norm": norm, "positions": positions, "activation": activation, "bias": bias,
        "tied": tied, "theta": theta,
    }  # fmt: skip
    return decoder(inputs, outputs, shape_of("transformer", preset, False, changes), drop)
