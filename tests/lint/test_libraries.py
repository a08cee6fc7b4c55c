"""Libraries: heavy ones load where they are used, pickle nowhere, and only the command line prints or exits."""

from __future__ import annotations

import ast
import subprocess
import sys

from lint.tree import assert_none, imports, layer_of, planted, read_packages

LAZY = {
    *("torch", "torchvision", "timm", "matplotlib", "sklearn", "ray", "faiss", "accelerate", "urllib3"),
    *("pandas", "polars", "IPython"),
    *("transformers", "sentence_transformers", "fastembed", "model2vec", "open_clip"),
    *("onnx", "onnxruntime"),
}
# Torch modules, in files that are themselves loaded where they are used.
NETWORKS = {
    "compatstore.encoders.backbone_networks",
}
HEAVY = {"torch", "click", "ray", "lancedb", "rich", "matplotlib", "sklearn", "timm", "faiss"}
HELP = "from compatstore.cli.app import app; [app([*w, '--help'], standalone_mode=False) for w in ([], ['train'])]"
# Program -> libraries that it loads none of.
LIGHT = {
    "import compatstore; compatstore.Gallery": HEAVY | {"langchain_core", "haystack", "llama_index"},
    "import compatstore.trainers": {"torch", "numpy", "accelerate", "lance"},
    "import compatstore.evaluation": {"torch", "matplotlib", "sklearn", "timm", "click"},
    HELP: {"torch", "lance", "lancedb", "pyarrow", "numpy", "PIL"},
}


def loaded_early(sources):
    """Heavy libraries that a module loads as soon as it is imported."""
    for source in sources:
        if layer_of(source) in ("trainers", "demo") or source.name in NETWORKS:
            continue
        for line, name in imports(source, top_level=True):
            if name.split(".")[0] in LAZY or name in NETWORKS:
                yield f"{source.place}:{line}: loads {name}"


def prints_or_exits(sources):
    """Calls outside `cli` that print or end the process."""
    for source in sources:
        if layer_of(source) != "cli":
            for node, called in source.calls:
                if called in ("print", "sys.exit", "exit", "quit"):
                    yield f"{source.place}:{node.lineno}: {called}"


def pickles(sources):
    """Imports of pickle, and weights that `torch.load` may unpickle."""
    for source in sources:
        for line, name in imports(source):
            if name.split(".")[0] in ("pickle", "dill", "joblib"):
                yield f"{source.place}:{line}: imports {name}"
        for node, called in source.calls:
            weights = [ast.unparse(each.value) for each in node.keywords if each.arg == "weights_only"]
            if called == "torch.load" and weights != ["True"]:
                yield f"{source.place}:{node.lineno}: torch.load without weights_only=True"


def loads(light):
    """Libraries that programs load and should not, of `light`: program -> libraries."""
    ending = "\nimport sys\nprint(sorted({name.split('.')[0] for name in sys.modules}))"
    programs = [[sys.executable, "-c", program + ending] for program in light]
    running = [subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for each in programs]
    for process, (program, forbidden) in zip(running, light.items(), strict=True):
        printed, errors = process.communicate()
        if process.returncode:
            yield f"{program}: {errors}"
        else:
            heavy = forbidden & {*ast.literal_eval(printed.splitlines()[-1])}
            yield from (f"{program}: loads {name}" for name in sorted(heavy))


def test_heavy_libraries_load_where_they_are_used():
    assert_none(loaded_early(read_packages()))


def test_only_the_cli_prints_or_exits():
    assert_none(prints_or_exits(read_packages()))


def test_no_pickle_anywhere():
    assert_none(pickles(read_packages()))


def test_importing_loads_nothing_heavy():
    assert_none(loads(LIGHT))


def test_each_rule_finds_a_planted_offender():
    early = planted("import torch.nn\nif TYPE_CHECKING:\n    import torch\ndef f():\n    import torch\n")
    assert list(loaded_early([early])) == ["compatstore/storage/planted.py:1: loads torch.nn"]
    ends = planted("def f():\n    print(3)\n    sys.exit(3)\n")
    assert [each[-8:] for each in prints_or_exits([ends])] == ["2: print", "sys.exit"]
    assert len(list(pickles([planted("def f():\n    import pickle\n    torch.load(path, weights_only=False)\n")]))) == 2
    assert list(loads({"import json": {"json"}})) == ["import json: loads json"]
