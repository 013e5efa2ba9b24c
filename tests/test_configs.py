"""Every config parses, builds and traces; a rotating sample trains two steps."""

import datetime
from pathlib import Path

import pytest

import jddl

CONFIGS = sorted(
    p for p in (Path(jddl.__file__).parent.parent / "configs").rglob("*.py") if p.stem != "__init__"
)
TODAY = datetime.date.today().toordinal()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_config_is_valid_and_says_how_to_run_it(path):
    jddl.validate(path)
    text = path.read_text()
    assert "jddl train --config=" in text or "jddl compare --config=" in text
    assert f"configs/{path.name}" in text


@pytest.mark.parametrize("path", CONFIGS[TODAY % len(CONFIGS) :][:1], ids=lambda p: p.stem)
def test_a_sample_trains_two_steps(path):
    config = dict(jddl.validate(path).config) | {"steps": 2}
    assert jddl.train(config).summary["steps"] == 2


NUMBERS = {"quickstart": ("test_accuracy", 0.96, 1), "cnn": ("test_accuracy", 0.96, 1),
           "least_squares": ("test_loss", 0.004, 0.006), "float16": ("test_accuracy", 0.95, 1),
           "cnn_batch_norm": ("test_accuracy", 0.96, 1),
           "lars": ("test_accuracy", 0.95, 1), "lamb": ("test_accuracy", 0.96, 1)}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_config_reaches_the_number_in_its_docstring(path):
    name, low, high = NUMBERS[path.stem]
    assert low <= jddl.train(path).summary[name] <= high
