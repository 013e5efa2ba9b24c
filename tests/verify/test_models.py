"""`jddl verify` of every model of the shelf, data-parallel."""

import datetime

import pytest

import jddl
from jddl import catalog
from jddl.studies.verify import verify

TASKS = {
    "text": "text(glob='README.md', held_out=2, length=8)",
    "images": "digits",
    "ids": "recsys(fields=3, vocabulary=60)",
}
KINDS = {"transformer": "text", "moe_transformer": "text", "lstm": "text", "embedding_bag": "ids"}


def config(spec, **changes):
    name = spec.split("(")[0]
    return {
        "task": TASKS[KINDS.get(name, "images")],
        "model": spec,
        "mesh": "data=3",
        "runtime": "vmap",
        "batch_size": 6,
        "optimizer": "sgd(learning_rate=0.1, momentum=0.9)",
    } | changes


EXAMPLES = catalog.examples("models")
TODAY = datetime.date.today().toordinal() % len(EXAMPLES)
SAMPLE = [EXAMPLES[TODAY]]
REST = [pytest.param(e, marks=pytest.mark.slow) for e in EXAMPLES if e not in SAMPLE]


@pytest.mark.parametrize("spec", [*SAMPLE, *REST])
def test_training_on_three_workers_is_that_of_one_device(spec):
    certificate = verify(config(spec), steps=2)
    assert certificate.ok, certificate.rows


@pytest.mark.parametrize(
    "spec",
    [
        "small_cnn(channels=4, layers=0, norm='batch')",
        pytest.param(
            "moe_transformer(capacity_factor=1.0, layers=1, penalty=0.5, top=1, width=8)",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_lossy_exchange_of_a_model_that_communicates(spec):
    """The explicit workers share the batch statistics, or the balance of the experts."""
    certificate = verify(config(spec, aggregator="error_feedback(topk(ratio=0.1))"), steps=2)
    assert certificate.ok and certificate.lossy, certificate.rows
    assert {row.check for row in certificate.rows} >= {"one device", "explicit workers"}


def test_a_balancing_loss_of_each_worker_alone_would_be_seen(monkeypatch):
    """The control: without the sum over the workers the certificate says BUG."""
    from jddl.models import _experts

    monkeypatch.setattr(_experts, "over_workers", lambda x, ctx: x)
    spec = "moe_transformer(layers=1, penalty=0.5, width=16)"
    assert not verify(config(spec), steps=2).ok


def test_sums_of_micro_batches_have_no_reference():
    spec = "moe_transformer(layers=1, penalty=0.5, width=16)"
    with pytest.raises(ValueError, match="sums over the workers"):
        verify(config(spec, accumulate=2))


@pytest.mark.slow
def test_without_a_penalty_experts_do_not_communicate():
    """Accumulation is then exact, and the closed form of the bytes holds."""
    spec = "moe_transformer(layers=1, penalty=0.0, width=16)"
    certificate = verify(config(spec, accumulate=2), steps=2)
    assert certificate.ok
    assert any("closed form" in row.name for row in certificate.rows)


def test_the_report_holds_the_drops_and_the_penalty():
    spec = "moe_transformer(capacity_factor=0.5, layers=2, penalty=0.01, top=1, width=16)"
    result = jddl.train(config(spec, steps=2, log_every=1))
    row = result.history[0]
    assert 0 < row["dropped"] < 1 and 0 < row["penalty"] <= 0.01 * 4  # sum_e f_e p_e is at most 1
    assert 0 < result.summary["validation_dropped"] < 1
    assert "validation_penalty" not in result.summary
