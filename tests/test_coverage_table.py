"""docs/coverage.md against the file system."""

import re
from pathlib import Path

import jddl

ROOT = Path(jddl.__file__).parent.parent
TEXT = (ROOT / "docs" / "coverage.md").read_text()
ROWS = [
    [c.strip() for c in line.strip().strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| name")
]
MINIMUM = 268
SHELVES = (
    "collectives",
    "topologies",
    "compressors",
    "aggregators",
    "pipelines",
    "protocols",
    "layouts",
    "outers",
)


def test_rows_are_well_formed_and_never_fewer():
    assert all(len(r) == 7 for r in ROWS), [r for r in ROWS if len(r) != 7]
    names = [r[0].lower() for r in ROWS]
    assert len(set(names)) == len(names)
    assert len(ROWS) == int(re.search(r"Rows: (\d+)", TEXT)[1]) >= MINIMUM


def test_each_named_component_and_config_exists():
    for name, *_, component, config, status in ROWS:
        assert status == "done" or re.fullmatch(r"not yet: .{10,}", status), name
        assert (status == "done") == bool(component), name
        for part in filter(None, component.split(", ")):
            assert (ROOT / "jddl" / f"{part}.py").is_file(), f"{name}: no {part}"
        assert not config or (ROOT / config).is_file(), f"{name}: no {config}"


def test_every_component_has_a_row():
    named = {part for r in ROWS for part in r[4].split(", ")}
    found = {
        f"{shelf}/{path.stem}"
        for shelf in SHELVES
        for path in (ROOT / "jddl" / shelf).glob("*.py")
        if not path.name.startswith("_")
    }
    assert found <= named, found - named
