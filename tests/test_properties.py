"""Each component's own property, and proof that the property can fail."""

import importlib.util

import pytest

from jddl import catalog
from jddl.components import SHELVES
from tests.properties import PROPERTIES


def test_every_component_has_a_row():
    assert set(PROPERTIES) == {f"{s}/{n}" for s in SHELVES for n in catalog.names(s)}


@pytest.mark.parametrize("component", PROPERTIES)
def test_property(component):
    PROPERTIES[component][0](catalog.factory(*component.split("/")))


@pytest.mark.parametrize("component", PROPERTIES)
def test_the_mutant_is_caught(component, tmp_path):
    check, (old, new) = PROPERTIES[component]
    shelf, name = component.split("/")
    source = catalog.describe(shelf, name).path.read_text()
    assert source.count(old) >= 1, f"the mutant's text {old!r} is not in {component}"
    path = tmp_path / f"{name}.py"
    path.write_text(source.replace(old, new, 1))
    spec = importlib.util.spec_from_file_location(f"mutant_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises((AssertionError, ValueError)):
        check(getattr(module, name))
