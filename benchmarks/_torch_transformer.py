"""The training of `hand_transformer` in PyTorch: a step for each line read, its loss written.

Run by another Python, so nothing of jddl or JAX is imported.
"""

import json
import sys

import numpy as np
import torch
import torch.nn.functional as F


def rotate(x):
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(x.shape[1])[:, None] * rates
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def norm(x, scale):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * scale


def attention(q, k, v):
    """q, k, v[b, heads, s, d]; PyTorch 2's own kernel where there is one."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    s = q.shape[2]
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    mask = torch.ones(s, s, dtype=torch.bool).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def loss(p, tokens, labels, shape):
    size = shape["width"] // shape["heads"]
    x = p["shared/embed/table"][tokens]
    b, s, _ = x.shape
    for i in range(shape["layers"]):
        of = lambda name, i=i: p[f"blocks/{i}/{name}"]  # noqa: E731
        y = norm(x, of("norm1/scale"))
        q, k, v = (
            (y @ of(f"attention/{name}/kernel")).view(b, s, -1, size)
            for name in ("query", "key", "value")
        )
        q, k = rotate(q), rotate(k)
        k, v = (z.repeat_interleave(shape["heads"] // shape["kv_heads"], 2) for z in (k, v))
        y = attention(*(z.transpose(1, 2) for z in (q, k, v)))
        x = x + y.transpose(1, 2).reshape(b, s, -1) @ of("attention/output/kernel")
        y = norm(x, of("norm2/scale"))
        gate = F.silu(y @ of("feed_forward/gate/kernel"))
        x = x + (gate * (y @ of("feed_forward/up/kernel"))) @ of("feed_forward/down/kernel")
    logits = norm(x, p["shared/head/norm/scale"]) @ p["shared/head/table"].T
    return F.cross_entropy(logits.reshape(b * s, -1), labels.reshape(-1))


def main():
    data, shape = np.load(sys.argv[1]), json.loads(sys.argv[2])
    p = {k: torch.tensor(data[k], requires_grad=True) for k in data if not k.startswith("batch/")}
    tokens, labels = (torch.tensor(data[f"batch/{k}"]).long() for k in ("inputs", "labels"))
    optimizer = torch.optim.AdamW(
        p.values(), lr=shape["rate"], weight_decay=shape["decay"], eps=1e-8
    )
    print(torch.__version__, flush=True)
    for _ in sys.stdin:
        optimizer.zero_grad(set_to_none=True)
        value = loss(p, tokens, labels, shape)
        value.backward()
        optimizer.step()
        print(float(value.detach()), flush=True)


main()
