"""A file imports lower layers only, and members of a shelf never import members."""

import ast
from pathlib import Path

import jddl
from jddl import components

PACKAGE = Path(jddl.__file__).parent
LAYERS = [
    {"spec", "components", "catalog", "trees", "records", "mesh", "accounting", "network"},
    {"collectives", "compressors", "schedules", "tasks"},
    {"models", "aggregators", "clipping", "precision", "remat"},
    {"assembly", "guard"},
    {"runtimes"},
    {"experiment", "runs", "checkpoints", "watchdog"},
    {"evaluation", "gradients", "throughput"},
    {"loop"},
    {"studies", "report"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def imports(path):
    """Every jddl module that a file imports, at its top or inside a function."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("jddl"):
            names = (
                [node.module] if node.module != "jddl" else [f"jddl.{a.name}" for a in node.names]
            )
            yield from names
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("jddl"))


def test_no_file_imports_upwards_or_a_sibling_member():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        room = parts[0]
        if room in ("__init__", "__main__"):
            continue
        for module in imports(path):
            target = module.split(".")[1:]
            if not target or target[0] not in LEVEL:
                continue
            if LEVEL[target[0]] > LEVEL[room]:
                wrong.append(f"{'/'.join(parts)} imports {module}, which is above it")
            if LEVEL[target[0]] == LEVEL[room] > 0 and target[0] != room:
                wrong.append(f"{'/'.join(parts)} imports {module}, which is beside it")
            same_shelf = room in components.SHELVES and target[0] == room and len(target) > 1
            if same_shelf and not parts[-1].startswith("_") and not target[1].startswith("_"):
                wrong.append(f"{'/'.join(parts)} imports the member {module}")
    assert not wrong, "\n".join(wrong)


def test_every_room_has_a_layer():
    rooms = {p.stem for p in PACKAGE.glob("*.py")} | {
        p.name for p in PACKAGE.iterdir() if p.is_dir()
    }
    assert {r for r in rooms if not r.startswith("__")} - {"_shipped", "py.typed"} == set(LEVEL)


def test_no_module_makes_an_array_at_import():
    import subprocess
    import sys

    modules = [
        ".".join(("jddl", *p.relative_to(PACKAGE).with_suffix("").parts))
        for p in PACKAGE.rglob("*.py")
        if p.stem not in ("__main__", "__init__")
    ]
    code = (
        f"import importlib\nfor m in {modules!r}: importlib.import_module(m)\n"
        "from jax._src import xla_bridge\nassert not xla_bridge.backends_are_initialized()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
