"""Every config parses, builds and traces; a rotating sample trains two steps."""

import datetime
from pathlib import Path

import pytest

import jddl
from jddl.experiment import load_config

CONFIGS = sorted(
    p for p in (Path(jddl.__file__).parent.parent / "configs").rglob("*.py") if p.stem != "__init__"
)
TODAY = datetime.date.today().toordinal()
PACKAGES = {  # Debian's packages that hold a config's data, and where
    "fashion_mnist": ("dataset-fashion-mnist", Path("/usr/share/datasets/fashion-mnist")),
}


def has_its_data(path):
    """Whether a config's files are here; where they are not, it must say which package to install."""
    package, folder = PACKAGES.get(path.stem, ("", Path()))
    if folder.is_dir():
        return True
    with pytest.raises(ValueError, match=f"install .*{package}"):
        jddl.validate(path)
    return False


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_config_is_valid_and_says_how_to_run_it(path):
    if has_its_data(path):
        jddl.validate(path)
    text = path.read_text()
    assert "jddl train --config=" in text or "jddl compare --config=" in text
    assert f"configs/{path.name}" in text


@pytest.mark.parametrize("path", CONFIGS[TODAY % len(CONFIGS) :][:1], ids=lambda p: p.stem)
def test_a_sample_trains_two_steps(path):
    if has_its_data(path):
        config = dict(jddl.validate(path).config) | {"steps": 2}
        assert jddl.train(config).summary["steps"] == 2


@pytest.mark.parametrize("name", PACKAGES)
def test_a_config_without_its_data_names_the_package(name, tmp_path):
    path = next(path for path in CONFIGS if path.stem == name)
    config = dict(load_config(path)[0])
    config["task"] += f"(dir='{tmp_path}')"
    with pytest.raises(ValueError, match=f"install .*{PACKAGES[name][0]}"):
        jddl.validate(config)


NUMBERS = {"quickstart": ("test_accuracy", 0.96, 1), "cnn": ("test_accuracy", 0.96, 1),
           "least_squares": ("test_loss", 0.004, 0.006), "float16": ("test_accuracy", 0.95, 1),
           "cnn_batch_norm": ("test_accuracy", 0.96, 1), "resnet": ("test_accuracy", 0.98, 1),
           "vit": ("test_accuracy", 0.95, 1), "fashion_mnist": ("test_accuracy", 0.9, 1),
           "logistic": ("test_loss", 0.97, 1.01), "recsys": ("test_accuracy", 0.79, 1),
           "lm": ("validation_bits_per_byte", 1.0, 2.6),
           "moe": ("validation_bits_per_byte", 1.0, 3.0),
           "lstm": ("validation_bits_per_byte", 1.0, 2.8),
           "lars": ("test_accuracy", 0.95, 1), "lamb": ("test_accuracy", 0.96, 1)}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_config_reaches_the_number_in_its_docstring(path):
    name, low, high = NUMBERS[path.stem]
    if not has_its_data(path):
        return
    assert low <= jddl.train(path).summary[name] <= high
