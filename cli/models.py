"""Verbs about models and artifacts: register, link, versions, unregister, unlink, export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

import compatstore as cs
from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import VERSION, gallery_verb, is_given, open_gallery, verb
from compatstore.shown import Table, table, view

if TYPE_CHECKING:
    from compatstore.cli.versions import VersionSettings
    from compatstore.devices.export import Exported


@gallery_verb(
    "register",
    "register photos.lance v2 --encoder timm:resnet50",
    "register texts.lance v2 --dim 3072 --model text-embedding-3-large@2024-01",
    "register photos.lance v1_256 --of v1 --dim 256",
    requests=VERSION,
)
@click.argument("version", metavar="NAME")
@click.option(
    "--of", metavar="VERSION", help="Derive it from the vectors of this version, by --dim, --dtype or the like."
)
def register(output: Output, gallery: str, version: str, of: str | None, settings: VersionSettings) -> None:
    """Make an embedding version known.

    Its vectors come with an upgrade. With --of no model is called and nothing is learned: `upgrade` makes its vectors
    from those in the table, the first --dim values of each, by another --metric or --dtype; vectors derived from native
    ones are native. Omitted options are as in the other version; shortened vectors of a normalised version are scaled.
    """
    opened = open_gallery(gallery, trust_code=False)
    if of is None:
        opened.register(settings.version(version))
    else:
        parts = ("dim", "metric", "normalised", "dtype")
        named = [name for name in parts if is_given(name)]
        opened.register(version, of=of, **{name: getattr(settings, name) for name in named})
    output.show(opened.status(), view)


@gallery_verb("link", "link photos.lance h.compat", "link photos.lance h.compat --from v1 --to v2")
@click.argument("artifact", type=click.Path())
@click.option("--from", "source", metavar="SOURCE", help="Version upgraded from; the artifact's own by default.")
@click.option("--to", "target", metavar="TARGET", help="Version upgraded to; the artifact's own by default.")
def link(output: Output, gallery: str, artifact: str, source: str | None, target: str | None) -> None:
    """Attach an artifact to two versions.

    It is checked first that it is made for them.
    """
    opened = open_gallery(gallery, trust_code=False)
    linked = opened.artifacts.link(artifact, source, target)
    record = next(record for record in opened.artifacts if record.id == linked)
    message = f"{record.id[:12]}  {record.method or record.kind}  {record.source} -> {record.target}"
    output.show(record, lambda _: [message])


@gallery_verb("versions", "versions photos.lance", "versions photos.lance --json")
def versions(output: Output, gallery: str) -> None:
    """List versions with their models, and artifacts."""
    opened = open_gallery(gallery, trust_code=False)
    output.show({"versions": opened.status().versions, "artifacts": list(opened.artifacts)}, _models)


@gallery_verb("unregister", "unregister photos.lance v1")
@click.argument("version")
def unregister(output: Output, gallery: str, version: str) -> None:
    """Forget a version that nothing uses.

    It is refused while the gallery keeps vectors of VERSION, an upgrade is under way from or to it, or an artifact
    leads from or to it.
    """
    opened = open_gallery(gallery, trust_code=False)
    opened.maintenance.unregister(version)
    output.show(opened.status(), view)


@gallery_verb("unlink", "unlink photos.lance 3f2a9c")
@click.argument("artifact")
def unlink(output: Output, gallery: str, artifact: str) -> None:
    """Forget an artifact that nothing uses.

    ARTIFACT is its id, or the first digits of it. It is refused while an upgrade applies it, vectors were made by it,
    or searches use it.
    """
    opened = open_gallery(gallery, trust_code=False)
    opened.artifacts.unlink(artifact)
    output.show(opened.status(), view)


def _models(result: Mapping[str, Sequence[Any]]) -> Iterator[str | Table]:
    """Versions with their models, and artifacts."""
    from compatstore.upgrade.views import encoder_cell

    yield table(
        ("version", "state", "dim", "metric", "fingerprint", "encoder"),
        [(v.name, v.state, v.dim, v.metric, v.fingerprint, encoder_cell(v)) for v in result["versions"]],
    )
    if result["artifacts"]:
        yield ""
        rows = [(a.id[:12], a.kind, a.method, a.source, a.target) for a in result["artifacts"]]
        yield table(("artifact", "kind", "method", "from", "to"), rows)


@verb(
    "export",
    examples=("export h.compat h.onnx", "export h.compat h.onnx --int8 --vectors photos.parquet --runner runner.py"),
)
@click.argument("artifact", type=click.Path())
@click.argument("out", metavar="OUT.onnx", type=click.Path())
@click.option(
    "--then", multiple=True, metavar="ARTIFACT", help="One that goes on from it: a chain of hops. May be repeated."
)
@click.option("--int8", is_flag=True, help="Compute in 8 bits; the loss is measured on --vectors and printed.")
@click.option(
    "--vectors",
    metavar="FILE",
    type=click.Path(),
    help="Vectors of the space that is read, to measure on: .npy, or the column vector (and side, if the artifact "
    "reads it) of an .npz, .parquet, .arrow or .feather. Vectors that the artifact was trained on are left out.",
)
@click.option("--runner", metavar="PROGRAM", type=click.Path(), help="Also write the program that applies OUT.onnx.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@pass_output
def export(output: Output, /, artifact: str, out: str, vectors: str | None, **options: Any) -> None:
    """Write an artifact as an ONNX file, for devices.

    It is applied to files of vectors by one Python program, which needs onnxruntime, numpy and pyarrow, and nothing of
    compatstore; any other program that runs ONNX can use it too.
    """
    from compatstore.devices.export import export as write
    from compatstore.trainers.pairs.sources import read_vectors

    first = cs.Artifact.load(artifact)
    if vectors is not None:
        measured = read_vectors(vectors)
        options["vectors"] = measured["vector"]
        options["side"] = measured.get("side") if first.manifest.side_source is not None else None
    result = write(first, out, **options)
    output.show(result, _exported)


def _exported(result: Exported) -> Iterator[str | Table]:
    """A file for devices."""
    yield f"{result.out}: {result.precision}, {result.bytes / 1e6:,.1f} MB, artifact {result.origin}"
    if result.int8_loss is not None:
        loss = result.int8_loss
        left_out = f"; {loss.left_out} that it has learned from are left out" if loss.left_out else ""
        yield (
            f"int8 against float32: cosine {loss.cosine_mean:.6f} on average, {loss.cosine_min:.6f} at the least, "
            f"on {loss.rows} vectors{left_out}"
        )
    if result.runner is not None:
        yield f"{result.runner}: pip install onnxruntime numpy pyarrow, then python {result.runner} --help"
