"""`jddl measure` where the counts could part: thirds of bytes, flags, widening, foreign code."""

import json

import jax
import pytest

import jddl
from jddl.cli import main
from jddl.studies import traffic_table as room
from jddl.studies.traffic_table import traffic_table

SMALL = ["--config=configs/quickstart.py", "--config.model=mlp(hidden=16)"]
# digits: 64 inputs, two hidden layers, 10 classes: 1482 floats, 5928 bytes
PARAMETERS = (64 * 16 + 16) + (16 * 16 + 16) + (16 * 10 + 10)


@pytest.fixture(autouse=True)
def eight_devices():
    """The backend starts before a smaller mesh could ask for fewer devices."""
    assert jax.device_count() == 8


def call(capsys, *argv):
    with pytest.raises(SystemExit) as stop:
        main(["measure", *SMALL, *argv])
    return stop.value.code, capsys.readouterr().out


def rows_of(capsys, *argv):
    code, out = call(capsys, *argv, "--json")
    return code, {row["operation"]: row for row in json.loads(out)["rows"]}


def chunk(n):
    return -(-PARAMETERS // n)


@pytest.mark.parametrize("runtime", ["shard_map", "vmap"])
@pytest.mark.parametrize("n", [2, 3, 5, 6])
def test_any_number_of_workers_under_each_runtime(capsys, runtime, n):
    """2 (n-1)/n of 5928 bytes: thirds and fifths of a byte are the same in all three counts."""
    mesh = (f"--config.mesh=data={n}", f"--config.runtime={runtime}")
    code, rows = rows_of(capsys, *mesh)
    assert code == 0 and list(rows) == ["psum"]
    assert rows["psum"]["sent_bytes"] == pytest.approx(2 * (n - 1) / n * 5928, abs=1e-9)
    assert rows["psum"]["hlo_sent_bytes"] == rows["psum"]["closed_form"]
    code, rows = rows_of(capsys, *mesh, "--config.all_reduce=ring")
    assert code == 0 and list(rows) == ["ppermute"]
    row = rows["ppermute"]
    assert row["sent_bytes"] == row["hlo_sent_bytes"] == 2 * (n - 1) * chunk(n) * 4
    assert row["received_bytes"] == row["hlo_received_bytes"] == row["sent_bytes"]
    assert row["calls"] == row["hlo_calls"] == row["rounds"] == row["hlo_rounds"] == 2 * (n - 1)
    assert row["axes"] == ["data"] and row["verdict"] == "equal"


@pytest.mark.parametrize(
    ("aggregator", "flag"),
    [("mean", 0), ("compressed(int8)", 0), ("error_feedback(int8)", 7), ("error_feedback(identity)", 7)],
)  # fmt: skip
def test_the_flag_of_skipping_travels_where_workers_hold_their_own_state(capsys, aggregator, flag):
    """One int32 summed over 8: 2 * 7/8 * 4 = 7 bytes, only beside an error memory."""
    skip = "--config.on_nonfinite=skip"
    code, rows = rows_of(capsys, skip, f"--config.aggregator={aggregator}")
    dense = 2 * 7 * PARAMETERS * 4 // 8 if "mean" in aggregator or "identity" in aggregator else 0
    assert code == 0
    assert sum(r["sent_bytes"] for n, r in rows.items() if n == "psum") == dense + flag


def test_a_row_that_only_the_formula_has_differs(monkeypatch):
    experiment = jddl.validate({"model": "mlp(hidden=16)", "runtime": "vmap"})
    right = room.closed_form(experiment)
    monkeypatch.setattr(room, "closed_form", lambda e: {**right, ("all_gather", ("data",)): 12.0})
    rows = {row["operation"]: row for row in traffic_table(experiment)}
    assert rows["psum"]["verdict"] == "equal"
    assert (rows["all_gather"]["verdict"], rows["all_gather"]["sent_bytes"]) == ("DIFFERS", 0)


def test_a_wrong_formula_is_exit_code_1(capsys, monkeypatch):
    monkeypatch.setattr(room, "closed_form", lambda e: {("psum", ("data",)): 10375.0})
    code, out = call(capsys)
    assert code == 1 and "DIFFERS" in out and "10,374" in out and "10,375" in out


FOREIGN = """
import jax.numpy as jnp
from jddl.compressors import identity
from jddl.records import Compressor

def cast() -> Compressor:
    return identity()._replace(compress=lambda leaf, state, key: (leaf.astype(jnp.bfloat16), state))
"""


def test_a_native_sum_in_bfloat16_is_called_widened(capsys, tmp_path, monkeypatch):
    """The jaxpr's 2 * 7/8 * 2 bytes an element; XLA:CPU moves 4 bytes; a ring's bits 2."""
    (tmp_path / "foreign_cast.py").write_text(FOREIGN)
    monkeypatch.syspath_prepend(tmp_path)
    args = ["--allow_import=foreign_cast", "--config.aggregator=compressed(foreign_cast.cast)"]
    code, out = call(capsys, *args)
    assert code == 0 and "equal, widened" in out and "no closed form" in out
    assert "XLA:CPU moves a native collective's bfloat16 as float32" in out
    code, rows = rows_of(capsys, *args)
    assert rows["psum"]["sent_bytes"] == 2 * 7 * PARAMETERS * 2 / 8
    assert rows["psum"]["hlo_sent_bytes"] == 2 * rows["psum"]["sent_bytes"]
    code, rows = rows_of(capsys, *args, "--config.all_reduce=ring")
    row = rows["ppermute"]
    assert code == 0 and row["verdict"] == "equal"
    assert row["sent_bytes"] == row["hlo_sent_bytes"] == 2 * 7 * chunk(8) * 2


def test_too_few_devices_leave_the_compiled_program_out():
    config = {"model": "mlp(hidden=16)", "runtime": "vmap", "mesh": "data=16"}
    experiment = jddl.validate(config)
    assert jax.device_count() < 16
    (row,) = traffic_table(experiment)
    assert row["hlo_sent_bytes"] is None and row["verdict"] == "equal"
    assert row["closed_form"] == row["sent_bytes"] == 2 * 15 * 5928 / 16
