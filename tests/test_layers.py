"""The layers: arrows between packages point down, heavy libraries load where they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Each layer may import the ones before it, and itself.
LAYERS = [
    "errors",
    "arrays",
    "bits",
    "boundary",
    "asynchronous",
    "permissions",
    "paths",
    "documents",
    "visible",
    "html",
    "tables",
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
    "trainers",
    "gallery",
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
    "path",
    "states",
    "transform",
    "hop_job",
    "hop",
    "expand",
    "leases",
    "indexing",
    "backfilling",
    "refit",
    "estimates",
    "judging",
    "lesson",
    "learned_serving",
    "learning",
    "int8",
    "precision",
    "resolve",
    "plan",
    "run",
    "cutover",
    "retire",
    "abort",
    "rollback",
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
BESIDES = {ROOT / "compatstore" / "integrations" / "lancedb.py": {"lancedb"}}
LAZY = {
    *("torch", "torchvision", "timm", "matplotlib", "sklearn", "ray", "faiss", "accelerate", "urllib3"),
    *("pandas", "polars", "IPython"),
    *("transformers", "sentence_transformers", "fastembed", "model2vec", "open_clip"),
    *("onnx", "onnxruntime"),
}
# Copied to devices as one file: it may import nothing of ours at all, and opens Lance tables by itself.
ALONE = "compatstore/devices/runner.py"
# Torch modules, in files that are themselves loaded where they are used.
NETWORKS = {
    "compatstore.encoders.backbones.basis_network",
    "compatstore.encoders.backbones.generalised_mean_pool",
}


def modules():
    for path in sorted((ROOT / "compatstore").rglob("*.py")):
        if not path.is_relative_to(ROOT / "compatstore" / "trainers") and not path.is_relative_to(
            ROOT / "compatstore" / "cli"
        ):
            yield path.relative_to(ROOT / "compatstore").parts[0].removesuffix(".py"), path
    for folder in ("trainers", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield folder, path


def imports(tree, *, top_level=False):
    """Modules that a file imports, type checking aside."""
    nodes = _outside_type_checking(tree) if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "compatstore":
                yield from (f"compatstore.{alias.name}" for alias in node.names)


def _outside_type_checking(tree):
    for node in tree.body:
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not guarded:
            yield node


@pytest.mark.parametrize(("layer", "path"), [pytest.param(*m, id=str(m[1].relative_to(ROOT))) for m in modules()])
def test_imports_point_down(layer, path):
    tree = ast.parse(path.read_text())
    if layer == "__init__":
        return  # the front door names every layer, and loads it when asked
    allowed = set(LAYERS[: LAYERS.index(layer) + 1])
    for name in imports(tree):
        first, _, rest = name.partition(".")
        if first == "compatstore" and rest:
            assert rest.split(".")[0] in allowed | {"__version__"}, f"{layer} imports {name}"
        if str(path.relative_to(ROOT)) == ALONE:
            assert first != "compatstore", f"{ALONE} imports {name}"
        elif first in ONLY_IN:
            here = layer == ONLY_IN[first] or first in BESIDES.get(path, set())
            assert here, f"only {ONLY_IN[first]} imports {first}"
        assert first not in ("trainers", "cli"), "import them as compatstore.trainers, compatstore.cli"


def upgrade_modules():
    """Name -> file of the modules of `upgrade`."""
    folder = ROOT / "compatstore" / "upgrade"
    for path in sorted(folder.rglob("*.py")):
        if path.name != "__init__.py":
            yield ".".join(("compatstore", *path.relative_to(ROOT / "compatstore").with_suffix("").parts)), path


def imported_within(path, names):
    """Modules of `names` that a file imports, `from package import module` included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & names


def test_the_parts_of_an_upgrade_import_the_ones_below_them():
    files = dict(upgrade_modules())
    assert {name.split(".")[2] for name in files} == set(UPGRADE_LAYERS)
    for name, path in files.items():
        below = UPGRADE_LAYERS[: UPGRADE_LAYERS.index(name.split(".")[2]) + 1]
        above = [other for other in imported_within(path, files.keys()) if other.split(".")[2] not in below]
        assert not above, f"{name} imports {', '.join(above)}"


def test_no_modules_of_an_upgrade_import_each_other_in_a_circle():
    files = dict(upgrade_modules())
    left = {name: set(imported_within(path, files.keys())) for name, path in files.items()}
    while left:
        free = [name for name, needs in left.items() if not needs & left.keys()]
        assert free, f"these import each other in a circle: {', '.join(left)}"
        for name in free:
            del left[name]


@pytest.mark.parametrize(("layer", "path"), [pytest.param(*m, id=str(m[1].relative_to(ROOT))) for m in modules()])
def test_heavy_libraries_load_where_they_are_used(layer, path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if layer in ("trainers", "demo") or name in NETWORKS:
        return
    loaded = set(imports(ast.parse(path.read_text()), top_level=True))
    assert not {name.split(".")[0] for name in loaded} & LAZY
    assert not loaded & NETWORKS


def test_only_the_cli_prints_or_exits():
    for layer, path in modules():
        if layer == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("print", "sys.exit", "exit", "quit"), path


@pytest.mark.parametrize("statement", ["import compatstore", "import compatstore; compatstore.Gallery"])
def test_importing_loads_nothing_heavy(statement):
    program = f"{statement}\nimport sys\nprint(sorted({{name.split('.')[0] for name in sys.modules}}))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded = set(ast.literal_eval(found))
    assert not loaded & {"torch", "click", "ray", "lancedb", "rich", "matplotlib", "sklearn", "timm", "faiss"}
    assert not loaded & {"langchain_core", "haystack", "llama_index"}


def test_no_pickle_anywhere():
    for _, path in modules():
        tree = ast.parse(path.read_text())
        assert not any(name.split(".")[0] in ("pickle", "dill", "joblib") for name in imports(tree)), path
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                assert any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords), path
