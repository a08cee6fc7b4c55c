"""What the four papers say, with the figures that they report, and the rows that settle it."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.methods.rows import UNSCALED, WIDER
from benchmarks.papers.verdicts import Above, Measure, Said

Path = tuple[str, ...]
BOTH: tuple[Measure, ...] = ("cmc", "map")
SWAP = ("independent", "t/s")
SOURCE = ("independent", "s/s")
TARGET = ("independent", "t/t")


def images(setting: str, above: Path, below: Path, measures: tuple[Measure, ...] = BOTH) -> Above:
    return Above("methods", setting, above, below, measures)


def classes_and_data(above: Path, below: Path) -> tuple[Above, ...]:
    return tuple(images(setting, above, below) for setting in ("classes", "data"))


def _chained(above: Path, below: Path) -> Above:
    return Above("chains", "seen", above, below)


def pretrained(setting: str, above: Path, below: Path) -> Above:
    return Above("pretrained", setting, above, below)


def ordered(row: str, order: str) -> Path:
    return (row, "orders", order, "area")


def area(row: str, curve: str) -> Path:
    return (row, "curves", curve, "area")


def unscaled(row: str, figure: str) -> Path:
    return (f"{row}{UNSCALED}", figure)


def _gap(row: str, curve: str) -> Path:
    return (row, "curves", curve, "gap", "25%")


FCT = (
    Said(
        "Target queries on the source's gallery find next to nothing.",
        "table 1", "0.1 / 0.003 where the source alone has 46.5 / 29.9",
        classes_and_data(SOURCE, SWAP),
    ),
    Said(
        "BCT's queries find no less in the source's gallery than the source's own.",
        "table 1", "46.9 / 30.1 and 46.5 / 29.9",
        classes_and_data(("BCT", "t/s"), SOURCE),
    ),
    Said(
        "BCT pays for it in the target's own gallery.",
        "table 1", "t/t 62.4 / 41.1 where the independent target has 68.1 / 45.0",
        classes_and_data(TARGET, ("BCT", "t/t")),
    ),
    Said(
        "FCT's hop, with SimCLR's side-information, is above BCT's t/s.",
        "table 1", "65.0 / 43.6 and 46.9 / 30.1",
        classes_and_data(("FCT + SimCLR", "t/h"), ("BCT", "t/s")),
    ),
    Said(
        "So it is without side-information.",
        "table 6", "61.8 and 46.9",
        classes_and_data(("FCT", "t/h"), ("BCT", "t/s")),
    ),
    Said(
        "The hop is above BCT's own upper bound, its t/t.",
        "table 1", "65.0 / 43.6 and 62.4 / 41.1",
        classes_and_data(("FCT + SimCLR", "t/h"), ("BCT", "t/t")),
    ),
    Said(
        "Transformed embeddings search themselves better than the source's do (h/h and s/s).",
        "table 1", "59.3 / 41.3 and 46.5 / 29.9",
        classes_and_data(("FCT + SimCLR", "h/h"), SOURCE),
    ),
    Said(
        "SimCLR's side-information helps the hop.",
        "table 6", "65.0 and 61.8",
        classes_and_data(("FCT + SimCLR", "t/h"), ("FCT", "t/h")),
    ),
    Said(
        "An autoencoder's helps it a little.",
        "table 6", "62.0 and 61.8",
        classes_and_data(("FCT + autoencoder", "t/h"), ("FCT", "t/h")),
    ),
    Said(
        "A second source model of another seed helps it.",
        "table 6", "63.5 and 61.8",
        classes_and_data(("FCT + another seed", "t/h"), ("FCT", "t/h")),
    ),
    Said(
        "SimCLR's is better than that of another seed.",
        "table 6", "65.0 and 63.5",
        classes_and_data(("FCT + SimCLR", "t/h"), ("FCT + another seed", "t/h")),
    ),
    Said(
        "The hop stays above BCT's t/s where the architecture changes too.",
        "table 4", "64.2 / 42.6 of a ResNet18 source",
        (images("architecture", ("FCT + SimCLR", "t/h"), ("BCT", "t/s")),),
    ),
    Said(
        "A direct hop over two versions is a little better than two hops.",
        "table 5", "59.9 / 37.0 and 57.4 / 33.5",
        (_chained(("direct, side", "found", "t/h"), ("chained, side", "found", "t/h")),),
    ),
    Said(
        "With side-information two hops are far better than without.",
        "table 5", "57.4 / 33.5 and 44.9 / 26.4",
        (_chained(("chained, side", "found", "t/h"), ("chained", "found", "t/h")),),
    ),
    Said(
        "On faces, by ArcFace, the hop is above BCT's t/s.",
        "table 3", "92.5 / 62.6 and 84.2 / 45.0",
        missing="needs VGGFace2",
    ),
    Said(
        "On another domain than the models were trained on, the hop is above the source alone.",
        "table 9", "16.9 / 5.6 and 14.5 / 3.7, ImageNet's models on Places-365",
        (images("elsewhere", ("FCT", "t/h"), SOURCE),),
    ),
    Said(
        "SimCLR's side-information helps it there too.",
        "table 9", "20.3 / 7.1 and 16.9 / 5.6",
        (images("elsewhere", ("FCT + SimCLR", "t/h"), ("FCT", "t/h")),),
    ),
    Said(
        "Where the two models share no training data, the hop is above the source alone.",
        "table 14", "33.3 / 16.9 and 21.9 / 7.1, models of ImageNet and of Places-365",
        (images("disjoint", ("FCT", "t/h"), SOURCE),),
    ),
    Said(
        "A small transform is below one of the paper's size.",
        "table 11", "62.9 and 65.0, of 0.8 and 5.7 million weights",
        (images("classes", ("FCT", "t/h"), ("FCT, mixer 256 wide", "t/h")),),
    ),
    Said(
        "A larger one is no better.",
        "table 11", "65.0 and 65.0, of 5.7 and 19.6 million weights",
        (images("classes", ("FCT", "t/h"), ("FCT, mixer 4096 wide", "t/h")),),
    ),
    Said(
        "The squared distance is above a divergence through the head.",
        "table 12", "65.0, 60.7 and, reversed, 55.7",
        tuple(images("classes", ("FCT", "t/h"), (f"FCT, {one}", "t/h")) for one in ("KL", "reversed KL")),
    ),
    Said(
        "It is above a residual bottleneck (RBT) and above LCE's transform.",
        "appendix J", "61.8, 34.0 and 56.5",
        tuple(images("classes", ("FCT", "t/h"), (one, "t/h")) for one in ("RBT", "LCE, transform")),
    ),
    Said(
        "Twice the values gain it less than side-information does.",
        "table 7", "62.0 and, of SimCLR, 65.0",
        (images("classes", ("FCT + SimCLR", "t/h"), (f"FCT{WIDER}", "t/h")),),
    ),
    Said(
        "Hopped five times, the first of six versions' galleries is above what its own queries find.",
        "figure 7", "CIFAR-100, of 50 to 100 classes",
        (images("steps", ("FCT + SimCLR", "6/h(1)"), ("independent", "1/1")),),
    ),
    Said(
        "There side-information helps.",
        "figure 7", "CIFAR-100, of 50 to 100 classes",
        (images("steps", ("FCT + SimCLR", "6/h(1)"), ("FCT", "6/h(1)")),),
    ),
)  # fmt: skip

FASTFILL = (
    Said(
        "FastFill in sigma's order is above FCT in random order, by the area under the backfilling curve.",
        "table 1", "66.49 / 44.84 and 62.80 / 40.47",
        (
            pretrained("seen", ordered("FastFill default", "sigma"), ordered("FCT", "random")),
            *classes_and_data(area("FastFill, sigma", "sigma"), area("FCT", "random")),
        ),
    ),
    Said(
        "It is above BCT.",
        "table 1", "66.49 / 44.84 and 58.92 / 37.02",
        classes_and_data(area("FastFill, sigma", "sigma"), area("BCT", "compared")),
    ),
    Said(
        "FCT in random order is above RACT.",
        "table 1", "62.80 / 40.47 and 60.91 / 39.47",
        classes_and_data(area("FCT", "random"), area("RACT", "compared")),
    ),
    Said(
        "RACT is above BCT.",
        "table 1", "60.91 / 39.47 and 58.92 / 37.02",
        classes_and_data(area("RACT", "compared"), area("BCT", "compared")),
    ),
    Said(
        "Nothing backfilled, its hop is far above BCT's t/s.",
        "section 5.2", "10 points of CMC-1",
        classes_and_data(("FastFill, sigma", "t/h"), ("BCT", "t/s")),
    ),
    Said(
        "Sigma's order is above a random one of the same transform.",
        "table 5", "66.49 / 44.84 and 64.51 / 42.05",
        (
            pretrained("seen", ordered("FastFill default", "sigma"), ordered("FastFill default", "random")),
            images("classes", area("FastFill", "sigma"), area("FastFill", "random")),
        ),
    ),
    Said(
        "In random order, the target's own loss beside the distance is above the distance alone.",
        "table 5", "65.06 / 41.95 and 62.80 / 40.47",
        (images("classes", area("FastFill, no sigma", "random"), area("FCT", "random")),),
    ),
    Said(
        "Without the target's loss, sigma's order is above FCT in random order too.",
        "table 5", "65.76 / 43.61 and 62.80 / 40.47",
        (images("classes", area("FastFill by distance", "sigma"), area("FCT", "random")),),
    ),
    Said(
        "All three parts of the loss are above two of them.",
        "table 5", "66.49 / 44.84, without the target's loss 65.76 / 43.61",
        (images("classes", area("FastFill", "sigma"), area("FastFill by distance", "sigma")),),
    ),
    Said(
        "Without the distance sigma's order is far below FCT in random order.",
        "table 5", "55.21 / 27.59 and 62.80 / 40.47",
        (images("classes", area("FCT", "random"), area("FastFill, no distance", "sigma")),),
    ),
    Said(
        "On classes that the transform has not seen it is above FCT in random order too.",
        "table 7", "CMC-1 17.9 and 14.94, mAP 4.68 and 3.7",
        (pretrained("unseen", ordered("FastFill default", "sigma"), ordered("FCT", "random")),),
    ),
    Said(
        "On classes that the transform has not seen, sigma's order is above one by the entropy of the head.",
        "table 7", "CMC-1 17.9 and 15.2, mAP 4.68 and 4.13",
        (pretrained("unseen", ordered("FastFill default", "sigma"), ordered("FastFill default", "entropy")),),
    ),
    Said(
        "With side-information it stays above FCT.",
        "appendix B.2", "67.81 / 46.23 and 64.72 / 42.55",
        classes_and_data(area("FastFill by default + SimCLR, sigma", "sigma"), area("FCT + SimCLR", "random")),
    ),
    Said(
        "It stays above FCT where the architecture changes.",
        "appendix B.1", "67.77 / 45.94 and 64.91 / 43.43",
        (images("architecture", area("FastFill, sigma", "sigma"), area("FCT", "random")),),
    ),
    Said(
        "A quarter of the backfill closes the gap that a biased source leaves between subgroups.",
        "section 5.3", "gap 9.4 by the hop; that of the target, 1.2, at 25 %, which FCT in random order has at 100 %",
        (
            images("subgroups", _gap("FCT", "random"), _gap("FastFill by default, sigma", "sigma"), ("cmc",)),
            images("subgroups", ("independent", "s/s", "gap"), _gap("FastFill by default, sigma", "sigma"), ("cmc",)),
        ),
    ),
)  # fmt: skip

BT2 = (
    Said(
        "BT^2 is above BCT on the source's gallery (t/s).",
        "tables 1 and 2", "38.7 / 28.0 and 23.5 / 23.9 on CIFAR",
        classes_and_data(("BT2", "t/s"), ("BCT", "t/s")),
    ),
    Said(
        "It is above BCT with as many values more, BCT(+d), there.",
        "tables 1 and 2", "38.7 / 28.0 and 22.1 / 23.8 on CIFAR",
        classes_and_data(("BT2", "t/s"), ("BCT(+d)", "t/s")),
    ),
    Said(
        "It is above Contrast there.",
        "tables 1 and 2", "38.7 / 28.0 and 26.1 / 25.1 on CIFAR, 47.8 / 33.8 and 39.0 / 29.4 on ImageNet",
        classes_and_data(("BT2", "t/s"), ("RACT", "t/s")),
    ),
    Said(
        "Its own gallery (t/t) is above BCT's.",
        "tables 1 and 2", "64.4 / 53.2 and 56.1 / 43.6 on CIFAR",
        classes_and_data(("BT2", "t/t"), ("BCT", "t/t")),
    ),
    Said(
        "It is above BCT(+d)'s.",
        "tables 1 and 2", "64.4 / 53.2 and 56.1 / 44.1 on CIFAR, 66.5 / 54.4 and 65.7 / 52.0 on ImageNet",
        classes_and_data(("BT2", "t/t"), ("BCT(+d)", "t/t")),
    ),
    Said(
        "By the loss of its code, cross-entropy on unit features without a scale, it is above BCT in t/s.",
        "tables 1 and 2", "38.7 / 28.0 and 23.5 / 23.9 on CIFAR",
        classes_and_data(unscaled("BT2", "t/s"), unscaled("BCT", "t/s")),
    ),
    Said(
        "By that loss it is above BCT(+d) there.",
        "tables 1 and 2", "38.7 / 28.0 and 22.1 / 23.8 on CIFAR",
        classes_and_data(unscaled("BT2", "t/s"), unscaled("BCT(+d)", "t/s")),
    ),
    Said(
        "By that loss its own gallery (t/t) is above BCT's.",
        "tables 1 and 2", "64.4 / 53.2 and 56.1 / 43.6 on CIFAR",
        classes_and_data(unscaled("BT2", "t/t"), unscaled("BCT", "t/t")),
    ),
    Said(
        "It is above the independent target's on CIFAR.",
        "table 1", "64.4 / 53.2 and 62.7 / 49.9",
        classes_and_data(("BT2", "t/t"), TARGET),
    ),
    Said(
        "Its queries find more in the source's gallery than the source's own.",
        "table 1", "38.7 / 28.0 and 33.6 / 24.4",
        classes_and_data(("BT2", "t/s"), SOURCE),
    ),
    Said(
        "A transformer in place of a convolutional network: above BCT in t/s.",
        "tables 3 and 4", "51.2 / 34.0 and 45.7 / 32.9 on CIFAR",
        (images("architecture", ("BT2", "t/s"), ("BCT", "t/s")),),
    ),
    Said(
        "The same in t/t.",
        "tables 3 and 4", "90.0 / 88.4 and 88.7 / 85.7 on CIFAR",
        (images("architecture", ("BT2", "t/t"), ("BCT", "t/t")),),
    ),
    Said(
        "In a series, the last target's queries find more in the first gallery than BCT's.",
        "table 6", "57.9 / 37.6 and 54.9 / 36.3",
        (images("series", ("BT2", "3/1"), ("BCT", "3/1")),),
    ),
    Said(
        "And more than the first version's own queries.",
        "table 6", "57.9 / 37.6 and 46.6 / 29.1",
        (images("series", ("BT2", "3/1"), ("independent", "1/1")),),
    ),
    Said(
        "The last version's own gallery is above BCT's.",
        "table 6", "75.6 / 68.0 and 73.9 / 65.8",
        (images("series", ("BT2", "3/3"), ("BCT", "3/3")),),
    ),
    Said(
        "A sixteenth more values are enough to be above BCT, a quarter are better.",
        "table 7", "t/s 50.7, 51.6, 53.6, 53.4 for 8, 16, 32, 128 beside 128",
        (
            *classes_and_data(("BT2, a sixteenth more", "t/s"), ("BCT", "t/s")),
            *classes_and_data(("BT2", "t/s"), ("BT2, a sixteenth more", "t/s")),
        ),
    ),
    Said(
        "A text encoder's gallery is searched by an image model, which keeps its own quality.",
        "table 5", "t/t 77.6 where it has 78.0 alone",
        (images("texts", ("BT2", "t/t"), TARGET),),
    ),
)  # fmt: skip

DMU = (
    Said(
        "Target queries are better than the source's on the source's gallery, and better still on the refreshed one.",
        "equation 12", "30 % to 100 % of the data: mAP 18.93, then 22.56",
        (
            images("data", ("DMU", "t/s"), SOURCE, ("map",)),
            images("data", ("DMU", "t/h"), ("DMU", "t/s"), ("map",)),
        ),
    ),
    Said(
        "The refreshed gallery is above BCT's t/s.",
        "table 1", "more data: mAP 22.56 and 21.12",
        (images("data", ("DMU", "t/h"), ("BCT", "t/s"), ("map",)),),
    ),
    Said(
        "So it is where classes are new.",
        "table 1", "new classes",
        (images("classes", ("DMU", "t/h"), ("BCT", "t/s"), ("map",)),),
    ),
    Said(
        "Its own gallery (t/t) is above BCT's.",
        "table 1", "more data: mAP 25.00 and 24.55",
        tuple(images(setting, ("DMU", "t/t"), ("BCT", "t/t"), ("map",)) for setting in ("data", "classes")),
    ),
    Said(
        "Its gallery loses little to the independent target's, or gains.",
        "tables 1 and 2", "more data: mAP 25.00 and 25.58 (landmarks), TAR 94.17 and 93.89 (faces)",
        (images("data", ("DMU", "t/t"), TARGET, ("map",)),),
    ),
    Said(
        "Weights by entropy are above even ones, on the refreshed gallery.",
        "table 3", "mAP 22.56 and 21.12 (BCT)",
        (images("data", ("DMU", "t/h"), ("DMU, even weights", "t/h"), ("map",)),),
    ),
    Said(
        "Weights by least confidence are above even ones.",
        "table 3", "mAP 22.25 and 21.12 (BCT)",
        (images("data", ("DMU, least confidence", "t/h"), ("DMU, even weights", "t/h"), ("map",)),),
    ),
    Said(
        "It is above UniBCT: refreshed gallery and t/s.",
        "table 8", "mAP 22.56 and 21.77",
        (images("data", ("DMU", "t/h"), ("UniBCT", "t/s"), ("map",)),),
    ),
    Said(
        "It is above focal distillation by as much as 2.5 points.",
        "table 8", "mAP 22.56 and 20.02",
        (images("data", ("DMU", "t/h"), ("FD", "t/s"), ("map",)),),
    ),
    Said(
        "With regression in place of ArcFace the refreshed gallery is above BCT's t/s too.",
        "table 7", "mAP 21.23 and 21.12",
        (images("data", ("DMU, regression", "t/h"), ("BCT", "t/s"), ("map",)),),
    ),
    Said(
        "Where the architecture changes, the refreshed gallery is above BCT's t/s.",
        "tables 1 and 11", "ResNet50 to ResNet101: mAP 22.38 and 21.68",
        (images("architecture", ("DMU", "t/h"), ("BCT", "t/s"), ("map",)),),
    ),
    Said(
        "A gallery refreshed twice is above BCT's t/s.",
        "table 6", "second generation: mAP 21.16 and 19.82",
        (images("series", ("DMU, refreshed", "3/h(h(1))"), ("BCT", "3/1"), ("map",)),),
    ),
    Said(
        "On faces, by TAR at a FAR of 1e-4, it is above BCT in t/s and in t/t.",
        "table 2", "92.96 and 92.82, 94.17 and 93.96",
        missing="needs MS1M-v3 and IJB-C",
    ),
    Said(
        "With the head and without selective weights the refreshed gallery is above BCT's t/s.",
        "tables 1 and 4", "mAP 22.42 and 21.12",
        (images("data", ("DMU, even weights", "t/h"), ("BCT", "t/s"), ("map",)),),
    ),
    Said(
        "A wider head is a little better.",
        "table 5", "mAP 22.12 and 22.77 for 512 and 2,048",
        (images("data", ("DMU, head 2048 wide", "t/h"), ("DMU, head 512 wide", "t/h"), ("map",)),),
    ),
)  # fmt: skip

PAPERS: Mapping[str, tuple[Said, ...]] = {"fct": FCT, "fastfill": FASTFILL, "bt2": BT2, "dmu": DMU}
