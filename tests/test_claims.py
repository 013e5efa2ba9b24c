"""The claims in experiments/: well-formed, judged rightly, and their table drawn from their results."""

import json

import pytest

from jddl.studies import reproduce
from jddl.studies.reproduce import Claim, Expected


@pytest.mark.parametrize("name", reproduce.names())
def test_a_claim_is_complete(name):
    claim, folder = reproduce.load(name), reproduce.folder() / name
    assert claim.source and claim.statement and claim.expected
    assert (folder / "config.py").exists() and "jddl reproduce" in (
        folder / "README.md"
    ).read_text()
    result = json.loads((folder / "result.json").read_text())
    assert not result["quick"] and set(result["quantities"]) == set(claim.expected)
    for quantity, values in result["quantities"].items():
        assert values["expected"] == str(claim.expected[quantity])  # recorded after the last change
    assert result["passed"] or result["found"]


def test_the_table_is_drawn_from_the_results():
    assert (reproduce.folder() / "RESULTS.md").read_text() == reproduce.table()


@pytest.mark.parametrize("name", ["crossover", "error_feedback", "ring_bytes"])
def test_a_claim_runs(name):
    assert reproduce.run(name, quick=True).passed


def test_a_wrong_number_fails(monkeypatch):
    right = reproduce.load("crossover")
    wrong = right._replace(
        expected=right.expected | {"crossover in bytes": Expected(1e6, tolerance=16)}
    )
    monkeypatch.setattr(reproduce, "load", lambda name: wrong)
    assert not reproduce.run("crossover").passed


def test_expected_numbers_bind():
    assert Expected(2.0, tolerance=0.1).holds(2.05) and not Expected(2.0, tolerance=0.1).holds(2.2)
    assert Expected(2.0, "at most").holds(1.0) and not Expected(2.0, "at most").holds(2.1)
    assert Expected(2.0, "at least").holds(3.0) and not Expected(2.0, "at least").holds(1.9)
    assert not Expected(2.0).holds(float("nan"))


def test_what_is_no_claim_is_named():
    with pytest.raises(ValueError, match="did you mean 'crossover'"):
        reproduce.load("crosover")
    assert isinstance(reproduce.load("crossover"), Claim)
