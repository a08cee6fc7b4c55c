"""What the papers report, for the rows that have a counterpart: CMC-1 / mAP in points."""

from __future__ import annotations

FCT = "FCT, ImageNet-500 to 1k, ResNet50"
BT2 = "BT^2, CIFAR-50 to 100, ResNet50"
DMU = "DMU, GLDv2, 30 % to 100 % of the data, ResNet50; mAP@100 alone"

# Row -> paper -> (t/s or t/h, t/t). DMU's new-to-old figure is of the gallery that its adaptation head refreshed: its
# ablation (table 4) has 21.60 without that head and 22.56 with it, for one target.
REPORTED: dict[str, dict[str, tuple[str, str]]] = {
    "independent": {FCT: ("0.1 / 0.003", "68.1 / 45.0"), BT2: ("", "62.7 / 49.9"), DMU: ("", "25.58")},
    "BCT": {
        FCT: ("46.9 / 30.1", "62.4 / 41.1"),
        BT2: ("23.5 / 23.9", "56.1 / 43.6"),
        DMU: ("21.12", "24.55"),
    },
    "BCT(+d)": {BT2: ("22.1 / 23.8", "56.1 / 44.1")},
    "RACT": {BT2: ("26.1 / 25.1", "57.9 / 36.7")},
    "BT2": {BT2: ("38.7 / 28.0", "64.4 / 53.2")},
    "DMU": {DMU: ("22.56", "25.00")},
    "FD": {DMU: ("20.02", "25.24")},
    "UniBCT": {DMU: ("21.77", "24.60")},
    "FCT": {FCT: ("61.8", "68.1 / 45.0")},
    "FCT + autoencoder": {FCT: ("62.0", "68.1 / 45.0")},
    "FCT + another seed": {FCT: ("63.5", "68.1 / 45.0")},
    "FCT + SimCLR": {FCT: ("65.0 / 43.6", "68.1 / 45.0")},
}
SOURCE = {FCT: "46.5 / 29.9", BT2: "33.6 / 24.4", DMU: "18.93"}
