"""`jddl measure`: three independent counts of the same step."""

import json

import jax
import pytest
from jax import lax

import jddl
from jddl.cli import main
from jddl.loop import measured_step
from jddl.studies import traffic_table as room
from jddl.studies._bytes import closed_form
from jddl.studies.traffic_table import traffic_table


def call(capsys, *argv):
    with pytest.raises(SystemExit) as stop:
        main(["measure", "--config=configs/quickstart.py", *argv])
    return stop.value.code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "operation", "sent"),
    [
        ({"all_reduce": "native"}, "psum", 2 * 7 * 8970 * 4 / 8),
        ({"all_reduce": "ring"}, "ppermute", 2 * 7 * 1122 * 4),
        ({"all_reduce": "direct"}, "ppermute", 2 * 7 * 1122 * 4),
        ({"aggregator": "error_feedback(topk(ratio=0.01))"}, "all_gather", 7 * 90 * 6),
        ({"aggregator": "compressed(int8)"}, "all_gather", 7 * (8970 + 36 * 4)),
    ],
)
def test_by_hand(change, operation, sent):
    """mlp(hidden=64) on digits has 8,970 parameters; a ring's chunk is ceil(8970 / 8) = 1,122."""
    base = dict(jddl.validate("configs/quickstart.py").config)
    (row,) = traffic_table(jddl.validate(base | change))
    assert row["operation"] == operation and row["axes"] == ["data"]
    assert row["sent_bytes"] == row["hlo_sent_bytes"] == row["closed_form"] == sent
    assert row["verdict"] == "equal"


@pytest.mark.parametrize("all_reduce", ["native", "ring", "recursive_doubling"])
def test_the_closed_form_is_exact(all_reduce):
    """On any number of workers, with chunks that do not divide, and with the flag of a skip."""
    changes = [{}, {"on_nonfinite": "skip"}]
    if all_reduce == "native":  # a gathered payload takes no other
        changes.append({"on_nonfinite": "skip", "aggregator": "error_feedback(int8)"})
    for n in (2, 3, 8):
        for hidden in (3, 16):
            for more in changes:
                config = {"model": f"mlp(hidden={hidden})", "mesh": f"data={n}", "runtime": "vmap"}
                config |= {"batch_size": 840, "all_reduce": all_reduce}
                experiment = jddl.validate(config | more)
                expected = closed_form(experiment)
                assert expected is not None
                assert measured_step(experiment).sent_bytes == float(sum(expected.values()))


@pytest.mark.parametrize(("all_reduce", "sent"), [("native", 62790), ("ring", 62832)])
def test_pmap_sends_what_its_step_sends_and_no_more(all_reduce, sent):
    """No all-gather of replicated outputs: they leave the map as one device's value."""
    change = {"runtime": "pmap", "all_reduce": all_reduce}
    base = dict(jddl.validate("configs/quickstart.py").config)
    (row,) = traffic_table(jddl.validate(base | change))
    assert row["sent_bytes"] == row["hlo_sent_bytes"] == row["closed_form"] == sent


def test_the_table_and_the_exit_code(capsys):
    code, out = call(capsys, "--config.all_reduce=ring")
    assert code == 0 and "62,832" in out and "equal" in out and "rounds 14" in out
    code, out = call(capsys, "--config.runtime=vmap", "--json")
    (row,) = json.loads(out)["rows"]  # compiled under shard_map, on the eight devices of the tests
    assert code == 0 and row["hlo_sent_bytes"] == row["sent_bytes"] == 62790


def test_a_hidden_all_reduce_differs(monkeypatch):
    """A native all-reduce beside the ring, as if somebody had forgotten one in the step."""
    experiment = jddl.validate({"all_reduce": "ring", "model": "mlp(hidden=16)"})
    right = experiment.strategy.step

    def step(state, batch, key):
        after, local = right(state, batch, key)
        return after, jax.tree.map(lambda x: lax.psum(x, "data"), local)

    bad = experiment._replace(strategy=experiment.strategy._replace(step=step))
    rows = {row["operation"]: row["verdict"] for row in traffic_table(bad)}
    assert rows == {"ppermute": "equal", "psum": "DIFFERS"}
    monkeypatch.setattr(room, "measured_step", lambda e: measured_step(experiment))
    rows = {row["operation"]: row["verdict"] for row in traffic_table(bad)}
    assert rows == {"ppermute": "equal", "all-reduce": "DIFFERS"}  # only the HLO has it
