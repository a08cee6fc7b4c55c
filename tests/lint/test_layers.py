"""The layers: arrows between packages point down, and a library is imported in the layer that it belongs to."""

from __future__ import annotations

import ast

from lint.tree import assert_none, imports, layer_of, planted, read_packages

# Each layer may import the ones before it, and itself.
LAYERS = [
    "former",
    "exports",
    "next_step",
    "errors",
    "tracebacks",
    "arrays",
    "boundary",
    "asynchronous",
    "paths",
    "data_files",
    "documents",
    "html",
    "shown",
    "digests",
    "derivation",
    "encoders",
    "versions",
    "in_memory",
    "artifacts",
    "devices",
    "evaluation",
    "storage",
    "upgrade",
    "report",
    "notebook",
    "upkeep",
    "verification",
    "ingest",
    "search",
    "stores",
    "trainers",
    "gallery",
    "conversion",
    "shards",
    "integrations",
    "demo",
    "cli",
    "__main__",
]
# Within `upgrade`, each folder or file may import the ones before it, and itself.
UPGRADE_LAYERS = [
    "requests",
    "context",
    "progress",
    "engines",
    "states",
    "transform",
    "hop",
    "leases",
    "indexing",
    "backfilling",
    "estimates",
    "training_pairs",
    "judging",
    "full_backfill",
    "learning",
    "resolve",
    "plan",
    "run",
    "cutover",
    "retire",
    "status",
    "views",
]
ONLY_IN = {
    "lance": "storage",
    "lancedb": "storage",
    "click": "cli",
    "rich": "cli",
    "faiss": "in_memory",
    "ray": "upgrade",
    **dict.fromkeys(("langchain_core", "haystack", "llama_index", "prometheus_client"), "integrations"),
}
# Files that may import more: an app's own LanceDB connection is what this one returns.
BESIDES = {"compatstore/integrations/lancedb.py": {"lancedb"}}
# Copied to devices as one file: it may import nothing of ours at all, and opens Lance tables by itself.
ALONE = "compatstore/devices/runner.py"


def imports_upwards(sources):
    """Imports of a higher layer, and of a library outside the layer that it belongs to."""
    for source in sources:
        layer = layer_of(source)
        if layer == "__init__":
            continue  # the front door names every layer, and loads it when asked
        if layer not in LAYERS:
            yield f"{source.place}: {layer} is no layer"
            continue
        allowed = {*LAYERS[: LAYERS.index(layer) + 1], "__version__"}
        for line, name in imports(source):
            place, (first, _, rest) = f"{source.place}:{line}", name.partition(".")
            if first == "compatstore" and rest and rest.split(".")[0] not in allowed:
                yield f"{place}: {layer} imports {name}"
            if source.place == ALONE:
                if first == "compatstore":
                    yield f"{place}: {ALONE} imports {name}"
            elif first in ONLY_IN and layer != ONLY_IN[first] and first not in BESIDES.get(source.place, set()):
                yield f"{place}: only {ONLY_IN[first]} imports {first}"
            if first in ("trainers", "cli"):
                yield f"{place}: {first} is imported as compatstore.{first}"


def upgrade_modules(sources):
    """Modules of `upgrade`, by name."""
    modules = {source.name: source for source in sources if source.name.startswith("compatstore.upgrade.")}
    return {name: source for name, source in modules.items() if not source.place.endswith("__init__.py")}


def imports_within(source, names):
    """(line, module) of the modules of `names` that a file imports, `from package import module` included."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            yield from ((node.lineno, name) for name in sorted(named & names))


def part_of(name):
    """The part of `upgrade` that a module belongs to."""
    return name.split(".")[2]


def upgrade_imports_upwards(sources):
    """Imports of a higher part of `upgrade`, and parts that the list lacks or has in vain."""
    modules = upgrade_modules(sources)
    yield from (f"upgrade/{part}: listed or there alone" for part in {*map(part_of, modules)} ^ {*UPGRADE_LAYERS})
    for name, source in modules.items():
        if part_of(name) in UPGRADE_LAYERS:
            below = UPGRADE_LAYERS[: UPGRADE_LAYERS.index(part_of(name)) + 1]
            for line, other in imports_within(source, modules.keys()):
                if part_of(other) not in below:
                    yield f"{source.place}:{line}: {part_of(name)} imports {other}"


def circles(sources):
    """Modules of `upgrade` that import each other in a circle, and those that import them."""
    modules = upgrade_modules(sources)
    left = {name: {other for _, other in imports_within(modules[name], modules.keys())} for name in modules}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    return [f"{modules[name].place}: in a circle with {', '.join(sorted(left[name] & left.keys()))}" for name in left]


def test_imports_point_down():
    assert_none(imports_upwards(read_packages()))


def test_the_parts_of_an_upgrade_import_the_ones_below_them():
    assert_none(upgrade_imports_upwards(read_packages()))


def test_no_modules_of_an_upgrade_import_each_other_in_a_circle():
    assert_none(circles(read_packages()))


def test_each_rule_finds_a_planted_offender():
    assert list(
        imports_upwards(
            [
                planted("import click\nfrom compatstore.gallery import core\nfrom compatstore import Gallery\n"),
                planted("def f():\n    import trainers.images\n    import lance\n"),
                planted("import lance\nimport compatstore.errors\n", "compatstore.devices.runner"),
                planted("", "compatstore.unlisted"),
            ]
        )
    ) == [
        "compatstore/storage/planted.py:1: only cli imports click",
        "compatstore/storage/planted.py:2: storage imports compatstore.gallery",
        "compatstore/storage/planted.py:3: storage imports compatstore.Gallery",
        "compatstore/storage/planted.py:2: trainers is imported as compatstore.trainers",
        "compatstore/devices/runner.py:2: compatstore/devices/runner.py imports compatstore.errors",
        "compatstore/unlisted.py: unlisted is no layer",
    ]
    low = planted("from compatstore.upgrade import status\n", "compatstore.upgrade.states")
    high = planted("from compatstore.upgrade.states import walk\n", "compatstore.upgrade.status")
    upwards = list(upgrade_imports_upwards([low, high]))
    assert "compatstore/upgrade/states.py:1: states imports compatstore.upgrade.status" in upwards
    assert "upgrade/hop: listed or there alone" in upwards
    assert not any("status imports" in each for each in upwards)
    assert len(circles([low, high])) == 2
