"""The verb about devices: export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import verb
from compatstore.shown import Table

if TYPE_CHECKING:
    from compatstore.devices.export import Exported


@verb(
    "export",
    examples=(
        "export h.compat h.onnx",
        "export h.compat h.onnx --int8 --vectors photos.parquet --runner runner.py",
    ),
)
@click.argument("artifact", type=click.Path())
@click.argument("out", metavar="OUT.onnx", type=click.Path())
@click.option(
    "--then", multiple=True, metavar="ARTIFACT", help="One that goes on from it: a chain of hops. May be repeated."
)
@click.option("--int8", is_flag=True, help="Compute in 8 bits; what that loses is measured on --vectors and printed.")
@click.option(
    "--vectors",
    metavar="FILE",
    type=click.Path(),
    help="Vectors of the space that is read, to measure on: .npy, or the column vector (and side, where the artifact "
    "reads it) of an .npz, .parquet, .arrow or .feather. What the artifact has learned from is left out.",
)
@click.option("--runner", metavar="PROGRAM", type=click.Path(), help="Also write the program that applies OUT.onnx.")
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@pass_output
def export(
    output: Output,
    artifact: str,
    out: str,
    then: tuple[str, ...],
    int8: bool,
    vectors: str | None,
    runner: str | None,
    overwrite: bool,
) -> None:
    """Write an artifact as an ONNX file, for devices.

    It is applied to files of vectors by one Python program, which needs onnxruntime, numpy and pyarrow, and nothing of
    compatstore; any other program that runs ONNX can use it too.
    """
    from compatstore.artifacts import Artifact
    from compatstore.devices.export import export as write
    from compatstore.trainers.pairs.sources import read_vectors

    first = Artifact.load(artifact)
    measured = {} if vectors is None else read_vectors(vectors)
    side = measured.get("side") if first.manifest.side_source is not None else None
    result = write(
        first,
        out,
        then=then,
        int8=int8,
        vectors=measured.get("vector"),
        side=side,
        runner=runner,
        overwrite=overwrite,
    )
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
