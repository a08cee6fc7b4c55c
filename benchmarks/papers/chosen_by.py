"""What one chooses a method by, across the papers: what each must show on every set, and the rows that settle it."""

from __future__ import annotations

from benchmarks.papers.said import (
    SOURCE,
    SWAP,
    TARGET,
    area,
    classes_and_data,
    images,
    ordered,
    pretrained,
    unscaled,
)
from benchmarks.papers.verdicts import Said

# What a user gets who changes no setting; searched by expected distances, which the same transform has measured.
DEFAULT, EXPECTED = "FastFill, level chosen", "t/h, expected"
THRICE = "DMU, refreshed three times"
# Trained in seconds, on a CPU.
CLOSED, CLOSED_AS_ONE, OURS = "kernel ridge", "kernel ridge, as one", "ours: kernel ridge"

CHOSEN_BY = (
    Said(
        "A swap of models without either finds less than the source.",
        "source alone", "s/s and t/s",
        classes_and_data(SOURCE, SWAP),
    ),
    Said("BCT's queries find no less in the source's gallery.", "BCT", "t/s and s/s",
         classes_and_data(("BCT", "t/s"), SOURCE)),
    Said("BCT pays for that in its own gallery.", "BCT", "t/t of the independent target and its own",
         classes_and_data(TARGET, ("BCT", "t/t"))),
    Said("BT^2 is above BCT in the source's gallery.", "BT^2", "t/s",
         classes_and_data(("BT2", "t/s"), ("BCT", "t/s"))),
    Said("BT^2 is above BCT in its own gallery.", "BT^2", "t/t",
         classes_and_data(("BT2", "t/t"), ("BCT", "t/t"))),
    Said("BT^2 is above BCT of as many values in the source's gallery.", "BT^2, BCT(+d)", "t/s",
         classes_and_data(("BT2", "t/s"), ("BCT(+d)", "t/s"))),
    Said("BT^2 is above BCT of as many values in its own gallery.", "BT^2, BCT(+d)", "t/t",
         classes_and_data(("BT2", "t/t"), ("BCT(+d)", "t/t"))),
    Said("By the loss of BT^2's authors it is above BCT in the source's gallery.", "BT^2, BCT", "t/s",
         classes_and_data(unscaled("BT2", "t/s"), unscaled("BCT", "t/s"))),
    Said("By the loss of BT^2's authors it is above BCT in its own gallery.", "BT^2, BCT", "t/t",
         classes_and_data(unscaled("BT2", "t/t"), unscaled("BCT", "t/t"))),
    Said("FCT's hop is above BCT's t/s.", "FCT", "t/h",
         classes_and_data(("FCT", "t/h"), ("BCT", "t/s"))),
    Said("The hop of FCT whose length says sigma^2 is above BCT's t/s, by expected distances.", "FCT, by length",
         EXPECTED, (images("classes", ("FCT, by length", EXPECTED), ("BCT", "t/s")),)),
    Said("FastFill's hop by its default settings is above BCT's t/s, by expected distances.", "FastFill", EXPECTED,
         (images("classes", (DEFAULT, EXPECTED), ("BCT", "t/s")),)),
    Said("SimCLR's side-information helps the hop.", "FCT + SimCLR", "t/h",
         classes_and_data(("FCT + SimCLR", "t/h"), ("FCT", "t/h"))),
    Said("Side-information of a second source model helps the hop.", "FCT + another seed", "t/h",
         classes_and_data(("FCT + another seed", "t/h"), ("FCT", "t/h"))),
    Said("Over a backfill in random order FCT leaves something to gain, up to the target's own gallery.", "FCT",
         "t/t and area", (images("classes", TARGET, area("FCT", "random")),)),
    Said("FastFill's area in sigma's order, by its default settings, is above FCT's in random order.", "FastFill",
         "area", (images("classes", area(DEFAULT, "sigma"), area("FCT", "random")),
                  pretrained("seen", ordered("FastFill default", "sigma"), ordered("FCT", "random")))),
    Said("FastFill's area is above FCT's so, by expected distances.", "FastFill", "area",
         (images("classes", area(DEFAULT, "sigma, expected"), area("FCT", "random")),)),
    Said("A closed form's hop, whose length says sigma^2, is above BCT's t/s, by expected distances.", OURS, EXPECTED,
         (images("classes", (CLOSED, EXPECTED), ("BCT", "t/s")),)),
    Said("A closed form's hop is above FCT's, by expected distances.", OURS, EXPECTED,
         (images("classes", (CLOSED, EXPECTED), ("FCT", "t/h")),)),
    Said("A closed form's area in sigma's order is above FCT's in random order, by expected distances.", OURS, "area",
         (images("classes", area(CLOSED, "sigma, expected"), area("FCT", "random")),)),
    Said("A closed form's area is above FastFill's by its default settings, both by expected distances.", OURS, "area",
         (images("classes", area(CLOSED, "sigma, expected"), area(DEFAULT, "sigma, expected")),)),
    Said("Searched with the source as one, FastFill in sigma's order is above FCT in random order, by expected "
         "distances.", "FastFill", "area",
         (images("classes", area(f"{DEFAULT}, as one", "as one, sigma"), area("FCT", "random")),)),
    Said("Searched with the source as one, a closed form in sigma's order is above FCT in random order.", OURS, "area",
         (images("classes", area(CLOSED_AS_ONE, "as one, sigma"), area("FCT", "random")),)),
    Said("Searched with the source as one, a closed form finds more by expected distances.", OURS, "area",
         (images("classes", area(CLOSED_AS_ONE, "as one, sigma"), area(CLOSED_AS_ONE, "as one, plain, sigma")),)),
    Said("DMU's refreshed gallery is above BCT's t/s with more data.", "DMU", "t/h",
         (images("data", ("DMU", "t/h"), ("BCT", "t/s")),)),
    Said("Refreshed three times, the first of four galleries is above what its own queries found.", "DMU",
         "4/h(h(h(1))) and 1/1", (images("series", (THRICE, "of four: 4/h(h(h(1)))"), (THRICE, "of four: 1/1")),)),
)  # fmt: skip
