"""The records: plain values made of pure functions, one kind for each shelf.

A component is such a record, made by a factory whose arguments are its hyper-parameters. Nothing
here computes. Names in signatures: `Tree` is a pytree of arrays, `Key` a JAX random key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import optax

from jddl.trees import fold_name

Tree: TypeAlias = Any
Key: TypeAlias = Any
Array: TypeAlias = Any
Sums: TypeAlias = Mapping[str, tuple[Any, Any]]  # name -> (sum, weight); the mean is taken last

# A transform of gradients that communicates: local gradients in, agreed gradients out.
Aggregator = optax.GradientTransformationExtraArgs


class Context(NamedTuple):
    """What a model or a loss may know about where it runs.

    All axis names are None on one device, so one file serves plain and parallel layers.
    key: of this step, the same on all workers; examples: i32[b], the places of this worker's rows
    in the global batch. Noise is drawn from both, so it does not depend on the number of workers.
    weights: [b], the batch's 'weight', None where all are 1; all_reduce: spec of the collective
    that carries a model's own sums over `data`.
    """

    key: Key = None
    train: bool = False
    examples: Array = None
    weights: Array = None
    all_reduce: str = "native"
    data: str | None = None
    tensor: str | None = None

    def within(self, place: str) -> Context:
        """The context of a part of the model: its key differs from every other part's."""
        return self if self.key is None else self._replace(key=fold_name(self.key, place))


class Task(NamedTuple):
    """Data and loss.

    batch(step, split, seed): {'inputs', 'labels', ...} of NumPy arrays, leading dimension =
      examples; pure in its arguments, so that resuming and independence from the number of
      workers follow. Splits:
      'train' has a batch for every step; the others have `num_batches[split]`.
      A batch may hold 'weight', one number an example (0 for padding); losses and metrics then
      return weighted sums and the sum of the weights (`tasks._weights.weighted`).
    loss(outputs, batch, ctx) -> (sum, weight); a weight that is a plain number is the same on
      every worker and does not travel.
    metrics(outputs, batch, ctx) -> {name: (sum, weight)}
    inputs: shape of one example; outputs: width of the model's last dimension.
    facts: what a run writes into summary.json about its data, as JSON values (`corpus_sha256`).
      Some names mean something to others: 'vocabulary', the number of different ids in integer
      inputs, is given to a model that has a parameter of that name; 'bytes_per_token' and
      'tokens_per_example' say that the loss is in nats a token of so many bytes, so that
      loss / (ln 2 * bytes_per_token) is bits a byte.
    """

    batch: Callable[[int, str, int], dict[str, Any]]
    loss: Callable[[Any, Any, Context], tuple[Any, Any]]
    metrics: Callable[[Any, Any, Context], Sums]
    num_batches: Mapping[str, int]
    inputs: tuple[int, ...]
    outputs: int
    facts: Mapping[str, Any] = MappingProxyType({})


class Model(NamedTuple):
    """A network cut where pipelines may cut it: embed, stackable blocks, head.

    params = {'shared': tree, 'blocks': (tree, ...)}; `embed` and `head` read 'shared', so tied
    embeddings need nothing special. `stats` has the same form and holds running statistics, the
    same on all workers; {} where there are none. `embed` and `head` get stats['shared'], a block
    its own part.
    Each part: (params, stats, x, ctx) -> (x, stats, aux) with aux {name: (sum, weight)}, reported
    as means beside the task's metrics. aux['penalty'] is (a value, 1.0): the values of all parts
    are added to the mean loss in training. Each must be the same on all workers, so it is computed
    from sums over `ctx.data` (a balancing loss of experts).
    `dims(params)`: per leaf a PartitionSpec over role names ('tensor', 'expert').
    """

    init: Callable[[Key], tuple[Tree, Tree]]
    dims: Callable[[Tree], Tree]
    embed: Callable[..., tuple[Any, Tree, Sums]]
    block: Callable[..., tuple[Any, Tree, Sums]]
    head: Callable[..., tuple[Any, Tree, Sums]]


class Compressor(NamedTuple):
    """A lossy or exact code for one array. It never communicates.

    The payload is exactly the arrays that travel; its size is read off with `jax.eval_shape`.
    combine 'sum': payloads of workers may be added before decoding; 'gather': they are collected
    and decoded one by one. key: None, 'shared' (same on all workers) or 'per_worker'. scope: what
    one leaf is: 'flat' (the whole gradient as one vector) or 'leaf'.
    """

    init: Callable[[Array], Tree]
    compress: Callable[..., tuple[Tree, Tree]]  # (leaf, state, key) -> (payload, state)
    decompress: Callable[..., Array]  # (payload, like, key=None) -> leaf
    combine: Literal["sum", "gather"]
    key: Literal["shared", "per_worker"] | None = None
    scope: Literal["flat", "leaf"] = "flat"


class OnLists(NamedTuple):
    """An aggregator's rule on an explicit list of workers, written without any axis.

    `jddl verify` compares training with it. A file of the shelf holds it as `on_lists`.

    init: (params, number of workers) -> state.
    update: (one gradient tree a worker, state, step) -> (one agreed tree a worker, state).
    """

    init: Callable[[Tree, int], Any]
    update: Callable[[list[Tree], Any, int], tuple[list[Tree], Any]]


class Runtime(NamedTuple):
    """A way to run per-device code: `spmd(f, mesh, in_specs, out_specs)` on whole arrays.

    devices(mesh): how many devices it needs; put(tree, mesh, specs): places whole arrays.
    """

    spmd: Callable[..., Callable[..., Any]]
    devices: Callable[[Mapping[str, int]], int]
    put: Callable[..., Tree]


class Strategy(NamedTuple):
    """One training step, whatever runs it.

    init: params, stats -> state, per device; layout: state of per-device shapes -> tree of
    layouts (a prefix is enough); batch: layout of the batch; step: (state, batch, key) ->
    (state, local sums), per device, with the step's own key, the same on all workers;
    params_of: whole-array state -> (params, stats); gradients: (state, batch, key) -> the worker's
    gradient as the aggregator gets it, None where the method has none.
    """

    axes: tuple[str, ...]
    init: Callable[..., Tree]
    layout: Callable[[Tree], Tree]
    batch: Any
    step: Callable[..., tuple[Tree, Sums]]
    params_of: Callable[[Tree], tuple[Tree, Tree]]
    gradients: Callable[..., Tree] | None = None


@dataclass(frozen=True)
class Cluster:
    """Machines and links in small: n workers, one class of link.

    latency: seconds a message; bandwidth: bytes per second and direction; flops: FLOP/s a worker.
    """

    name: str
    n: int
    latency: float
    bandwidth: float
    flops: float
