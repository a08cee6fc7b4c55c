"""The verb that trains: `train METHOD`, on pairs of embeddings or on images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import click

from compatstore.cli.output import Output, pass_output
from compatstore.cli.settings import listed_settings, read_settings
from compatstore.cli.verb import Verb, settings_options, trust_code_option, verb
from compatstore.errors import AlreadyExists
from compatstore.paths import exists

_METHOD = "compatstore.method"  # key of a context: the method of the command line
Inputs = Literal["pairs", "sets", "images", "compatible", "side"]
ON_VECTORS: tuple[Inputs, ...] = ("pairs", "sets")


@dataclass(frozen=True)
class Method:
    """A method of `train`.

    Args:
        trainer: Its class in `compatstore.trainers`. Torch loads when a method is chosen and not before.
        inputs: Its training data: pairs of embeddings; two sets of embeddings of different items; images; images and a
            model to stay comparable with; images, for side-information.
        summary: Its description.
    """

    trainer: str
    inputs: Inputs
    summary: str

    def load(self) -> type:
        """The class of its settings."""
        from compatstore import trainers

        found: type = getattr(trainers, self.trainer)
        return found


METHODS = {
    "auto": Method("Auto", "pairs", "Fit several and keep the one that retrieves best on held-out pairs."),
    "fct": Method("FCT", "pairs", "Forward-compatible training: a network, with side-information if there is some."),
    "fastfill": Method("FastFill", "pairs", "FCT's network, a loss through the target's head, and an uncertainty."),
    "residual": Method("Residual", "pairs", "A ridge solution and a network for its residuals."),
    "rbt": Method("RBT", "pairs", "A residual bottleneck transform."),
    "lce": Method("LCE", "pairs", "The transform of learning compatible embeddings."),
    "dmu-head": Method("DMUHead", "pairs", "The adaptation head of darwinian model upgrades."),
    "drift-adapter": Method("DriftAdapter", "pairs", "A small residual network, trained in a minute."),
    "ridge": Method("Ridge", "pairs", "An affine map by ridge regression, in closed form."),
    "low-rank-ridge": Method("LowRankRidge", "pairs", "A ridge regression of reduced rank, in closed form."),
    "low-rank-affine": Method("LowRankAffine", "pairs", "A low-rank affine map, in closed form."),
    "kernel-ridge": Method("KernelRidge", "pairs", "Ridge regression with a Gaussian kernel, in closed form."),
    "procrustes": Method("Procrustes", "pairs", "A rotation, in closed form."),
    "diagonal-scale": Method("DiagonalScale", "pairs", "A rotation and a scale a dimension, in closed form."),
    "mean-shift": Method("MeanShift", "pairs", "A shift of the mean, in closed form."),
    "unpaired": Method("Unpaired", "sets", "A rotation, from vectors of different items: no pairs at all."),
    "independent": Method("Independent", "images", "A classifier trained without any other model."),
    "bct": Method("BCT", "compatible", "Backward-compatible training, through the source's classifier head."),
    "ract": Method("RACT", "compatible", "Contrast with the source's embeddings."),
    "regression": Method("Regression", "compatible", "Regression to the source's embeddings."),
    "focal-distillation": Method(
        "FocalDistillation", "compatible", "Regression, weighted towards images that the source classifies correctly."
    ),
    "unibct": Method("UniBCT", "compatible", "BCT through prototypes refined over their neighbours."),
    "lce-alignment": Method("LCEAlignment", "compatible", "Classes keep their places of the source (LCE, joint)."),
    "bt2": Method("BT2", "compatible", "Basis transformations: the first values are compared with the source."),
    "dmu": Method("DMU", "compatible", "Darwinian model upgrade: selective inheritance, and a head for the gallery."),
    "simclr": Method("SimCLR", "side", "Side-information from images alone: two views of one image are close."),
    "autoencoder": Method("Autoencoder", "side", "Side-information that an image can be drawn again from."),
    "alternate": Method("Alternate", "side", "Side-information from a second source model, of another seed."),
}
_PAIRS = (
    *("pairs", "labels", "side", "target_side", "target_head", "drop_missing"),
    *("gallery", "source_version", "target_version", "trust_code"),
)
_SETS = ("pairs", "gallery", "source_version", "target_version", "trust_code")
_IMAGES = ("images", "augment", "drop_unreadable", "checkpoint")
_COMPATIBLE = (*_IMAGES, "source", "held_out")
_ACROSS = ("gallery", "source_version", "target", "class_names", "drop_missing", "trust_code")
# The options that a method takes besides those of all methods; some are one method's own.
TAKEN: dict[Inputs, tuple[str, ...]] = {
    "pairs": _PAIRS,
    "sets": _SETS,
    "images": (*_IMAGES, "held_out"),
    "compatible": _COMPATIBLE,
    "side": (*_IMAGES, "source"),
}
_OWN = {"dmu": ("refreshed",), "bt2": _ACROSS}
_EXPLAINED = {
    "pairs": "Files of --pairs hold `vector`, and perhaps `id`, `label` and `side`; rows are joined by id, or else by "
    "their order. With --gallery each is a version of it (its native vectors), a column of it, or a file with ids, and "
    "all are joined by id. --from and --to bind the artifact to versions, and are the pairs without --pairs.",
    "sets": "--pairs names two sets of vectors here, of any items in any order: files of `vector`, or with --gallery "
    "versions or columns of it. Rows are not joined. --from and --to bind the artifact to versions. Sets are refused "
    "if independent starts do not agree.",
    "images": "The model starts from random weights, or those of the setting `pretrained`. Its encoder goes into "
    "`init` or `register`.",
    "compatible": "The model stays comparable with --source, a folder that `train` wrote: `register` its encoder, "
    "`link` its artifact, and its queries search the source's gallery.",
    "side": "Train it when the source model is trained, on its images: it is stored with each item, and `train fct` "
    "and others read it once there is a target.",
    "bt2": "With --gallery in place of --source the model is trained against a gallery of texts: an image against the "
    "vector of its item, whose id is the image's path below the folder, with its suffix or without. Its queries then "
    "search the gallery before any image is embedded.",
}
_EXAMPLES: dict[Inputs, str] = {
    "pairs": "--gallery photos.lance --pairs v1 v2.npz --to v2 --out h.compat",
    "sets": "--gallery photos.lance --pairs v1 v2.npz --to v2 --out h.compat",
    "images": "--images photos --out v1.model --set dim=64 --set size=32",
    "compatible": "--images photos --source v1.model --out v2.model --set dim=64 --set size=32",
    "side": "--images photos --out side.safetensors --set dim=128",
}


class Train(Verb):
    """`train METHOD --help` shows what METHOD takes."""

    def settings_kinds(self, ctx: click.Context) -> dict[str, type]:
        """The settings of the method that the line names."""
        name = ctx.meta[_METHOD]
        return {} if name is None else {"": METHODS[name].load()}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the method, which the help needs before the line is read."""
        ctx.meta[_METHOD] = next((word for word in args if word in METHODS), None)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of the method that the line names, or of the verb."""
        name = ctx.meta.get(_METHOD)
        if name is None:
            super().format_help(ctx, formatter)
            return
        method, taken = METHODS[name], taken_by(name)
        formatter.write_usage(ctx.command_path, f"{name} [OPTIONS]")
        for text in (method.summary, _EXPLAINED[method.inputs], *filter(None, [_EXPLAINED.get(name)])):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(text)
        own = _PAIRS + _COMPATIBLE + _ACROSS + ("refreshed",)
        every = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        options = [each for each in every if each.name in taken or each.name not in own]
        with formatter.section("Options"):
            formatter.write_dl([record for option in options if (record := option.get_help_record(ctx)) is not None])
        with formatter.section("Settings, by --set NAME=VALUE or as lines of --config FILE"):
            formatter.write_dl(listed_settings(f"train {name}"))
        with formatter.section("Examples"):
            formatter.write_text(f"compatstore train {name} {_EXAMPLES[method.inputs]}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the methods, and the options of all."""
        with formatter.section("Methods on pairs of embeddings"):
            formatter.write_dl([(name, one.summary) for name, one in METHODS.items() if one.inputs in ON_VECTORS])
        with formatter.section("Methods on images"):
            formatter.write_dl([(name, one.summary) for name, one in METHODS.items() if one.inputs not in ON_VECTORS])
        super().format_options(ctx, formatter)


def taken_by(name: str) -> tuple[str, ...]:
    """The options that a method takes besides those of all methods."""
    return TAKEN[METHODS[name].inputs] + _OWN.get(name, ())


@verb(
    "train",
    kind=Train,
    examples=(
        "train auto --gallery photos.lance --pairs v1 v2.npz --to v2 --out h.compat",
        "train fct --pairs v1.npz v2.npz --out h.compat --set epochs=40",
        "train bct --images photos --source v1.model --out v2.model --config bct.toml",
    ),
)
@click.argument("method", type=click.Choice(list(METHODS)), metavar="METHOD")
@click.option("--out", required=True, metavar="PATH", help="Artifact (NAME.compat) or model (NAME.model) to write.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@settings_options
@click.option(
    "--pairs",
    nargs=2,
    metavar="SOURCE TARGET",
    help="Vectors of the same items (unpaired: of any items): files (Parquet, Arrow, Feather, npz, npy), or with "
    "--gallery versions or columns.",
)
@click.option("--labels", metavar="LABELS", help="Classes: a column of --gallery, or a file in the source's order.")
@click.option("--side", metavar="FILE", help="Side-information of the source, by id or in the source's order.")
@click.option("--target-side", metavar="FILE", help="Side-information of the target.")
@click.option("--target-head", metavar="FILE", help="Classifier head of the target model (npy, npz).")
@click.option("--drop-missing", is_flag=True, help="Leave out ids that one side lacks; else they are refused.")
@click.option("--gallery", metavar="GALLERY", help="Gallery whose versions the artifact or model is for.")
@click.option("--from", "source_version", metavar="VERSION", help="Version in --gallery of the source vectors.")
@click.option("--to", "target_version", metavar="VERSION", help="Version in --gallery of the target vectors.")
@click.option("--images", metavar="FOLDER", help="Folder of class folders.")
@click.option("--source", metavar="MODEL", help="The model to stay comparable with; of side-information to compare.")
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of every class that is not trained on, and measured.",
)
@click.option("--augment", is_flag=True, help="Train on random views: crops, small rotations, blur and noise.")
@click.option("--drop-unreadable", is_flag=True, help="Leave out images that cannot be read; else they are refused.")
@click.option("--checkpoint", metavar="FILE", help="Save to this file while training; go on from it after a stop.")
@click.option(
    "--refreshed",
    nargs=2,
    multiple=True,
    metavar="MODEL ARTIFACT,...",
    help="The adaptation learns from a gallery that was refreshed before too: the model of its natives, and the "
    "adaptations that led from there to --source.",
)
@click.option(
    "--target", metavar="MODEL", help="An independent model of dim - extra values; else one is trained first."
)
@click.option("--class-names", is_flag=True, help="Train against the names of the class folders, not items' vectors.")
@trust_code_option
@pass_output
@click.pass_context
def train(
    ctx: click.Context,
    output: Output,
    /,
    method: str,
    out: str,
    overwrite: bool,
    words: tuple[str, ...],
    config: str | None,
    **inputs: Any,
) -> None:
    """Train on pairs of embeddings, or on images.

    `train METHOD --help` shows what METHOD takes. A method writes an artifact, which `link` attaches to two versions,
    or a model that `register` takes as network:PATH.
    """
    given = {name: value for name, value in inputs.items() if value not in (None, (), False)}
    taken = taken_by(method)
    if wrong := [name for name in given if name not in taken]:
        flags = {name: option.opts[0] for option in ctx.command.params if (name := option.name)}
        raise click.UsageError(f"train {method} does not take {flags[wrong[0]]}.")
    kinds = {"": METHODS[method].load()}
    trainer = read_settings(kinds, config=config, words=words, given={}, where=f"compatstore train {method}")[""]
    if METHODS[method].inputs in (*ON_VECTORS, "side") and exists(out) and not overwrite:
        fix = "Choose another name, or pass --overwrite."
        raise AlreadyExists(f"write {out}", expected="nothing there", found="something", fix=fix)
    from compatstore.cli import train_runs

    if METHODS[method].inputs == "pairs":
        train_runs.train_on_pairs(output, trainer, out, overwrite, given)
        return
    if METHODS[method].inputs == "sets":
        train_runs.train_unpaired(output, trainer, out, overwrite, **given)
        return
    if "images" not in given:
        raise click.UsageError(f"train {method} needs --images FOLDER.")
    request = train_runs.Request(out=out, overwrite=overwrite, **given)
    if METHODS[method].inputs == "side":
        train_runs.train_side(output, trainer, request)
    elif "gallery" in given:
        train_runs.train_across(output, trainer, request)
    else:
        if METHODS[method].inputs == "compatible" and "source" not in given:
            raise click.UsageError(f"train {method} needs --source MODEL.")
        train_runs.train_on_images(output, trainer, request)
