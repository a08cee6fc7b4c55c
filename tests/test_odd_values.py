"""Whatever is handed to the public API gives a result or one error of our tree, and what fails changes nothing."""

from __future__ import annotations

import contextlib
import inspect
import shutil
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from odd_values import odd_values
from PIL import Image

import compatstore as cs
from compatstore import encoders, evaluation, trainers
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.boundary import shown
from compatstore.errors import CompatStoreError
from lazily import Lazy
from tiers import few

torch = Lazy("torch")

SEED = 0
VALUES_A_PARAMETER = 2
V1 = cs.EmbeddingVersion("v1", dim=4, metric="l2")
V2 = cs.EmbeddingVersion("v2", dim=6, metric="l2")
IDS = [f"i{number}" for number in range(40)]
RNG = np.random.default_rng(0)
OLD, NEW = RNG.normal(size=(40, 4)).astype(np.float32), RNG.normal(size=(40, 6)).astype(np.float32)
LABELS = np.arange(40) % 4
SETTINGS = {"epochs": 1, "batch_size": 8, "holdout": 0.0}
IMAGE_TRAINERS = (
    "BCT",
    "BT2",
    "DMU",
    "FocalDistillation",
    "Independent",
    "LCEAlignment",
    "RACT",
    "Regression",
    "UniBCT",
)
SIDE_TRAINERS = ("Alternate", "Autoencoder", "SimCLR")
RESULTS = {
    *(
        "Advice",
        "BackfillCurve",
        "Converted",
        "DecisionRow",
        "DecisionTable",
        "Estimate",
        "Flips",
        "Cache",
        "CacheSize",
        "ExactNeighbours",
        "Nearest",
    ),
    *("Comparison", "CompatibleModel", "ImagesOfItems", "SideModel", "TrainedModel"),
    *("Ranking", "RetrievalMetrics", "Transformed", "Encoded", "Encoder", "CompatStoreError"),
    *("Metered", "QueryEncoder", "Synced"),
}


def precomputed():
    return encoders.Precomputed(dict(zip(IDS, NEW, strict=True)))


def linear():
    architecture = Architecture(source_dim=4, output_dim=6)
    tensors = {f"h.{name}": np.ones(shape, np.float32) for name, shape in architecture.shapes().items()}
    return Artifact.create(
        "ForwardTransform",
        source=Space.of(V1),
        target=Space.of(V2),
        networks={"h": architecture},
        tensors=tensors,
    )


def pairs():
    return trainers.Pairs(OLD, NEW, labels=LABELS, source_version=V1, target_version=V2)


def picture():
    return np.zeros((8, 8), np.uint8)


def sample():
    return evaluation.EvaluationSample(
        source_queries=OLD,
        target_queries=NEW,
        source=OLD,
        transformed=NEW,
        native=NEW,
        order=np.arange(40),
        query_labels=LABELS,
        gallery_labels=LABELS,
    )


def answers():
    return {"target_wins": 3, "source_wins": 1, "same": 1}


def ranking():
    return evaluation.rank_queries(OLD, OLD, LABELS, LABELS)


@dataclass(frozen=True)
class Target:
    """A callable of the public API.

    Attributes:
        name: As users call it.
        call: Makes it, of a gallery of its own.
        good: Arguments that work, by name; new for each call.
    """

    name: str
    call: object
    good: object = dict


def columns_of(gallery):
    def add(id=None, vector=None, source=None, n=None, new=None):
        given = {"id": id, "vector": vector, "source": source, "n": n, "new": new}
        return gallery.add({name: values for name, values in given.items() if values is not None})

    return add


def items_of(gallery):
    def add(id=None, vector=None, source=None, n=None, new=None, name=None):
        item = {"id": id, "vector": vector, "source": source, "n": n, "new": new}
        with contextlib.suppress(TypeError):  # what cannot be a key is no name
            item |= {name: 1}
        return gallery.add([item, item | {"id": "other"}])

    return add


def gallery_targets():
    good = {
        "abort": lambda: {"target": "v2"},
        "add": lambda: {"data": {"id": ["new"], "vector": OLD[:1], "n": [1]}},
        "adopt": lambda: {"gallery": "plain.lance", "version": V1, "vector": "vector", "id": "id"},
        "check_cutover": lambda: {"target": "v2"},
        "create": lambda: {"gallery": "made.lance", "version": V1},
        "cutover": lambda: {"target": "v2"},
        "delete": lambda: {"ids": ["i1"]},
        "drop_columns": lambda: {"names": ["n"]},
        "evaluate": lambda: {"target": "v2", "labels": "n"},
        "fuse": lambda: {"target": "v2", "labels": "n"},
        "get": lambda: {"ids": ["i1"]},
        "judge": lambda: {"target": "v2", "queries": {"id": ["q"], "v1": OLD[:1], "v2": NEW[:1]}},
        "link": lambda: {"artifact": linear()},
        "mirror": lambda: {"store": "faiss:app.faiss", "gallery": "made.lance"},
        "open": lambda: {"gallery": "gallery.lance"},
        "pause": lambda: {"target": "v2", "wait": 0.01},
        "plan": lambda: {"target": "v2"},
        "register": lambda: {"version": cs.EmbeddingVersion("v3", dim=3)},
        "derive": lambda: {"name": "v3", "dim": 2},
        "retire": lambda: {"version": "v2"},
        "search": lambda: {"query": OLD[0]},
        "explain": lambda: {"query": OLD[0]},
        "side_information": lambda: {"ids": ["i1"]},
        "unbackfillable": lambda: {"target": "v2"},
        "upgrade": lambda: {"target": "v2"},
        "vectors": lambda: {"ids": ["i1"]},
    }
    yield Target("Gallery.add of columns", columns_of, lambda: {"id": ["p", "q"], "vector": OLD[:2]})
    yield Target("Gallery.add of items", items_of, lambda: {"id": "p", "vector": OLD[0]})
    for name, member in inspect.getmembers(cs.Gallery):
        if not name.startswith("_") and callable(member) and not inspect.iscoroutinefunction(member):
            yield Target(f"Gallery.{name}", lambda gallery, name=name: getattr(gallery, name), good.get(name, dict))


def module():
    return torch.nn.Linear(4, 6)


def network_arguments():
    from compatstore.encoders.backbones import SmallConvNet
    from compatstore.encoders.network import Preprocessing

    return {"backbone": SmallConvNet(size=8, dim=4, channels=3), "preprocessing": Preprocessing(size=8)}


def other_targets():
    """Everything public but the gallery; what only carries results is left out."""
    good = {
        "export": lambda: {"artifact": "h.compat", "out": "h.onnx", "overwrite": True},
        "EmbeddingVersion": lambda: {"name": "v1", "dim": 4},
        "HeadLoss": lambda: {"kind": "arcface"},
        "Derivation": lambda: {"dim": 4},
        "Artifact": lambda: {"manifest": linear().manifest, "weights": linear().to_bytes()[1]},
        "Function": lambda: {"fn": lambda sources: np.ones((len(sources), 4)), "dim": 4, "fingerprint": "f"},
        "Module": lambda: {"module": module(), "dim": 6, "preprocess": torch.tensor},
        "Precomputed": lambda: {"vectors": {"a": [1.0, 2.0]}},
        "FilesById": lambda: {"folder": ".", "encoder": function()},
        "TimmModel": lambda: {"name": "no such model"},
        "TorchvisionModel": lambda: {"name": "no such model"},
        "NetworkEncoder": network_arguments,
        "LanceDBFunction": lambda: {"function": 3},
        "FastembedModel": lambda: {"folder": "nowhere"},
        "Model2VecModel": lambda: {"folder": "nowhere"},
        "SentenceTransformersModel": lambda: {"folder": "nowhere"},
        "TransformersModel": lambda: {"folder": "nowhere"},
        "OpenClipModel": lambda: {"model": "nowhere"},
        "OpenAICompatible": lambda: {"base_url": "http://host/v1", "model": "m", "dim": 4},
        "encode_queries": lambda: {"encoder": precomputed(), "queries": ["i1"]},
        "encode_readable": lambda: {"encoder": precomputed(), "sources": ["i1"]},
        "from_spec": lambda: {"spec": "precomputed:nowhere.npz"},
        "EvaluationSample": lambda: {
            name: getattr(sample(), name) for name in inspect.signature(evaluation.EvaluationSample).parameters
        },
        "Judgements": lambda: {"queries": [0, 1], "items": [2, 3], "gains": [1.0, 2.0]},
        "Preference": lambda: {"source": "v1", "target": "v2", "queries": 9, "differing": 5, **answers()},
        "Queries": lambda: {"queries": {"id": ["q1"], "text": ["red"]}, "qrels": {"q1": {"i1": 1}}},
        "backfill_curve": lambda: {
            "queries": NEW,
            "transformed": NEW,
            "native": NEW,
            "query_labels": LABELS,
            "gallery_labels": LABELS,
            "order": np.arange(40),
        },
        "convert": lambda: {
            "path": "old.parquet",
            "out": "new.parquet",
            "source": cs.EmbeddingVersion("v1", dim=8),
            "target": cs.EmbeddingVersion("v2", dim=8),
        },
        "decide": lambda: {"sample": sample(), "settings": evaluation.DecisionSettings(resamples=20)},
        "flips": lambda: {"before": ranking(), "after": ranking()},
        "kendall_tau": lambda: {"first": OLD[0], "second": OLD[1]},
        "linear_cka": lambda: {"first": OLD, "second": NEW},
        "rank_queries": lambda: {"queries": OLD, "gallery": OLD, "query_labels": LABELS, "gallery_labels": LABELS},
        "retrieval_metrics": lambda: {"queries": OLD, "gallery": OLD, "query_labels": LABELS, "gallery_labels": LABELS},
        "recall_at_k": lambda: {"found": [[1, 2]], "truth": [[1, 3]]},
        "summarise": lambda: {"ranking": ranking()},
        "Fusion": lambda: {"weight": 0.5},
        "Shards": lambda: {"addresses": ["gallery.lance"]},
        "Merge": lambda: {
            "bridge": "",
            "calibration": evaluation.Calibration(),
            "gain": evaluation.Estimate(value=0.0, low=0.0, high=0.0),
            "criterion": "map",
            "truth": "labels",
            "num_queries": 9,
            "native_share": 0.5,
        },
        "nearest_neighbours": lambda: {"queries": OLD[:3], "vectors": OLD},
        "Pairs": lambda: {"source": OLD, "target": NEW, "labels": LABELS},
        "Images": lambda: {"images": [picture()] * 4, "labels": [0, 0, 1, 1]},
        "Refreshed": lambda: {"model": model(), "adaptations": [linear()]},
        **{name: lambda: {"dim": 4} for name in IMAGE_TRAINERS},
    }
    for home in (cs, encoders, evaluation):
        for name in home.__all__:
            member = getattr(home, name)
            if (
                name not in RESULTS
                and name not in ("Gallery", "images_of_items")
                and (inspect.isclass(member) or inspect.isfunction(member))
            ):
                yield Target(name, lambda gallery, member=member: member, good.get(name, dict))
    for name in trainers.__all__:  # a class each; to look at one would load torch
        if name not in RESULTS and name != "images_of_items":
            yield Target(name, lambda gallery, name=name: getattr(trainers, name), good.get(name, dict))


def method_targets():
    """Methods of what the constructors make."""
    weights = linear().to_bytes()
    methods = {
        "Artifact.create": (
            lambda: Artifact,
            lambda: {"kind": "Identity", "source": Space.of(V1), "target": Space.of(V1)},
        ),
        "Shards.open": (lambda: cs.Shards, lambda: {"pattern": "db#photos_*"}),
        "Shards.status": (lambda: cs.Shards(["gallery.lance"]), dict),
        "Shards.upgrade": (lambda: cs.Shards(["gallery.lance"]), lambda: {"target": "v2"}),
        "Shards.cutover": (lambda: cs.Shards(["gallery.lance"]), lambda: {"target": "v2"}),
        "Shards.rollback": (lambda: cs.Shards(["gallery.lance"]), lambda: {"target": "v2"}),
        "Artifact.from_bytes": (lambda: Artifact, lambda: {"manifest": weights[0], "weights": weights[1]}),
        "Artifact.load": (lambda: Artifact, lambda: {"path": "h.compat"}),
        "Artifact.save": (linear, lambda: {"path": "h.compat"}),
        "Artifact.apply": (linear, lambda: {"vectors": OLD}),
        "Artifact.check": (linear, lambda: {"source": V1, "target": V2}),
        "Pairs.load": (lambda: trainers.Pairs, lambda: {"source": "old.npy", "target": "new.npy"}),
        "Unpaired.fit": (
            lambda: trainers.Unpaired(clusters=3, rounds=2, agreement=-1.0),
            lambda: {"source": np.tile(OLD, (2, 1)), "target": np.tile(NEW, (2, 1)), "source_version": V1},
        ),
        "Pairs.split": (pairs, lambda: {"fraction": 0.5, "seed": 0}),
        "Pairs.subset": (pairs, lambda: {"rows": [0, 1]}),
        "Function.encode": (function, lambda: {"sources": ["a"]}),
        "Precomputed.encode": (precomputed, lambda: {"sources": ["i1"]}),
        "Module.encode": (lambda: encoders.Module(module(), 6, torch.tensor), lambda: {"sources": [[1.0] * 4]}),
    }
    yield Target(
        "images_of_items",
        lambda gallery: partial(trainers.images_of_items, gallery),
        lambda: {"images": images(), "folder": "."},
    )
    for name, (owner, good) in methods.items():
        yield Target(name, lambda gallery, owner=owner, name=name: getattr(owner(), name.split(".")[1]), good)
    for name in trainers.__all__:
        on_pairs = trainers._HOMES[name].startswith("compatstore.trainers.pairs.")
        if on_pairs and name not in ("Comparison", "Pairs", "Unpaired"):
            yield Target(f"{name}.fit", lambda gallery, name=name: quick(name).fit, lambda: {"pairs": pairs()})
    for name in (*IMAGE_TRAINERS, *SIDE_TRAINERS):
        yield Target(
            f"{name}.fit", lambda gallery, name=name: quick_on_images(name).fit, lambda name=name: seen_by(name)
        )
    yield Target(
        "BT2.fit_across",
        lambda gallery: quick_on_images("BT2").fit_across,
        lambda: {"images": images(), "vectors": OLD, "source": V1},
    )
    on_images = {
        "take": {"positions": [0, 1]},
        "of_classes": {"classes": ["0", "1"]},
        "split": {"fraction": 0.5},
        "readable": {"mode": "RGB"},
        "require_readable": {"mode": "RGB"},
    }
    for name, good in on_images.items():
        yield Target(f"Images.{name}", lambda gallery, name=name: getattr(images(), name), lambda good=good: dict(good))
    yield Target("Images.from_folder", lambda gallery: trainers.Images.from_folder, lambda: {"folder": "."})
    on_model = {"save": {"path": "m.model"}, "version": {"name": "v1"}, "space": {"metric": "l2"}}
    for name, good in on_model.items():
        yield Target(
            f"TrainedModel.{name}", lambda gallery, name=name: getattr(model(), name), lambda good=good: dict(good)
        )
    yield Target("TrainedModel.load", lambda gallery: trainers.TrainedModel.load, lambda: {"path": "m.model"})


def function():
    return encoders.Function(lambda sources: np.ones((len(sources), 4)), 4, fingerprint="f")


def quick(name):
    kind = getattr(trainers, name)
    known = inspect.signature(kind).parameters
    if name == "Auto":
        return kind(candidates=(trainers.Ridge(),))
    if name == "Correction":
        return kind(current=linear())
    return kind(**{key: value for key, value in SETTINGS.items() if key in known})


def images():
    pixels = np.random.default_rng(1).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    return trainers.Images(pixels, LABELS)


def model():
    from compatstore.encoders.backbones import SmallConvNet
    from compatstore.encoders.network import Preprocessing

    encoder = encoders.NetworkEncoder(SmallConvNet(size=8, dim=4, width=2), Preprocessing(size=8, mode="L"))
    return trainers.TrainedModel(encoder=encoder, head=np.eye(4, dtype=np.float32), class_names=tuple("0123"))


def quick_on_images(name):
    sizes = {"BT2": {"dim": 6, "extra": 2}, "DMU": {"dim": 4, "adapter_width": 4}}.get(name, {"dim": 4})
    return getattr(trainers, name)(**sizes, width=2, epochs=1, batch_size=20, warmup_epochs=0.0)


def seen_by(name):
    return {"images": images()} | ({} if name in (*SIDE_TRAINERS, "Independent") else {"source": model()})


TARGETS = [*gallery_targets(), *other_targets(), *method_targets()]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A gallery with an upgrade that can begin, an app's table, vectors in files, and an artifact."""
    import faiss
    import lance
    import pyarrow as pa

    folder = tmp_path_factory.mktemp("template")
    gallery = cs.Gallery.create(str(folder / "gallery.lance"), V1)
    gallery.add({"id": IDS, "vector": OLD, "source": IDS, "n": LABELS, "number": range(40)})
    gallery.register(cs.EmbeddingVersion("v2", dim=6, metric="l2", model=V2.identity))
    gallery.artifacts.link(linear())
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(OLD.reshape(-1)), 4)
    lance.write_dataset(pa.table({"id": IDS, "vector": vectors}), folder / "plain.lance")
    index = faiss.IndexFlatL2(4)
    index.add(OLD)
    faiss.write_index(index, str(folder / "app.faiss"))
    np.save(folder / "old.npy", OLD)
    np.save(folder / "new.npy", NEW)
    Image.fromarray(picture()).save(folder / "a.png")
    linear().save(folder / "h.compat")
    return folder


def state(gallery):
    """What users have in a gallery."""
    table = gallery.get(IDS + [i for i in gallery_ids(gallery) if i not in IDS]) if len(gallery) else None
    rows = None if table is None else table.select([n for n in table.column_names if not n.startswith("v2")])
    return gallery.active, gallery.versions(), rows


def gallery_ids(gallery):
    return gallery._catalog.store.snapshot().to_table(["id"])["id"].to_pylist()


def storm(target, folder, template, values_of):
    """Call a target with odd values for one parameter at a time; what went wrong, one line for each call."""
    wrong = []
    parameters = inspect.signature(
        target.call(cs.Gallery) if "Gallery" in target.name else target.call(None)
    ).parameters
    for number, parameter in enumerate(parameters.values()):
        if parameter.name == "self":
            continue
        for index in values_of(f"{target.name}.{parameter.name}"):
            place = folder / f"{number}"
            if not place.exists():
                shutil.copytree(template, place)
            gallery = cs.Gallery.open(str(place / "gallery.lance"))
            with contextlib.chdir(place):
                problem = attempt(target, gallery, parameter, odd_values()[index])
            if problem:
                wrong.append(problem)
        if "Gallery" in target.name and place.exists():
            checked = cs.Gallery.open(str(place / "gallery.lance")).maintenance.verify()
            wrong += [
                f"{target.name}({parameter.name}=...) left {f.what}" for f in checked.findings if f.severity == "error"
            ]
    return wrong


def attempt(target, gallery, parameter, value):
    said = f"{target.name}({parameter.name}={shown(value)})"
    arguments = target.good()
    rest = []
    if parameter.kind is parameter.VAR_POSITIONAL:
        rest = [value]
    else:
        arguments[parameter.name] = value
    version = gallery._catalog.store.snapshot().version
    before = state(gallery) if "Gallery" in target.name else None
    try:
        target.call(gallery)(*rest, **arguments)
    except CompatStoreError as error:
        str(error).encode()
        if before is not None and gallery._catalog.store.snapshot().version != version and state(gallery) != before:
            return f"{said} failed and changed the gallery"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if target.name == "Module.encode" or (callable(value) and parameter.name == "progress"):
            return ""  # what a user's own model or callback raises is its owner's to see
        frame = error.__traceback__
        while frame.tb_next:
            frame = frame.tb_next
        at = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"
        return f"{said} -> {type(error).__name__} at {at}"
    return ""


@pytest.fixture
def quiet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("target", few(11, TARGETS), ids=lambda target: target.name)
def test_odd_values_give_one_error_of_ours(quiet, tmp_path, template, target):
    def values_of(name):
        rng = np.random.default_rng([SEED, *name.encode()])
        return rng.choice(len(odd_values()), VALUES_A_PARAMETER, replace=False)

    wrong = storm(target, tmp_path, template, values_of)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_all_odd_values_give_one_error_of_ours(quiet, tmp_path, template, target):
    wrong = storm(target, tmp_path, template, lambda name: range(len(odd_values())))
    assert not wrong, "\n".join(wrong)
