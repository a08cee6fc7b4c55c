"""How large a run of the benchmark on images is: one size for all its rows.

"smoke" shows that a command works, "quick" takes minutes a row on two cores, "standard" trains for 60 epochs, and "gpu"
has the papers' network and schedule. "paper" has small networks and the papers' losses, features, optimisers, distances
and schedules in proportion; each paper's methods have models of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.artifacts.network import PrecisionRequest


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of every row of a run.

    Args:
        pixels: Side of the images.
        images: Images to train on at most.
        gallery: Items in the gallery at most.
        queries: Queries at most.
        dim: Values of an embedding.
        extra: Values that BCT(+d) and BT^2 add.
        side: Values of side-information.
        width: Channels of the convolutional network's first stage.
        epochs: Passes over the images.
        batch_size: Images a step.
        transform_epochs: Passes over the pairs.
        transform_width: Of the mixer of FCT's network.
        branch_width: Of its branches.
        adapter_width: Of DMU's adaptation head.
        architecture: A model of timm instead of the convolutional network, or "".
        transformer_width: Width of the target in the setting "architecture".
        learning_rate: Its peak, for classifiers on images.
        weight_decay: The same.
        augment: Train on random views of the images.
        one_start: Source and target start from the same weights if the target knows further classes. Models of one
            start stay near each other without any method.
        group: Images that share one draw of a view.
        transform_batch: Pairs a step; 0 leaves it to the methods.
        better: If the architecture changes, the target is the better model: the source has half of its width. Else the
            target is a small transformer.
        precision: Of the convolutional networks.
    """

    pixels: int = 32
    images: int = 12_000
    gallery: int = 4000
    queries: int = 1000
    dim: int = 64
    extra: int = 16
    side: int = 64
    width: int = 16
    epochs: int = 60
    batch_size: int = 128
    transform_epochs: int = 80
    transform_width: int = 1024
    branch_width: int = 256
    adapter_width: int = 1024
    architecture: str = ""
    transformer_width: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 5e-2
    augment: bool = True
    one_start: bool = False
    group: int = 64
    transform_batch: int = 0
    better: bool = False
    precision: PrecisionRequest = "bfloat16"


SIZES = {
    "smoke": Size(
        pixels=8, images=300, gallery=120, queries=60, dim=12, extra=4, side=8, width=8, epochs=2, batch_size=64,
        transform_epochs=3, transform_width=16, branch_width=8, adapter_width=16, transformer_width=8, group=8,
        precision="auto",
    ),
    "quick": Size(
        images=4500, gallery=2000, queries=800, epochs=7, batch_size=64, transform_epochs=30, transform_width=256,
        branch_width=128, adapter_width=256, augment=False, one_start=True,
    ),
    "standard": Size(),
    "paper": Size(
        images=3000, gallery=1500, width=8, epochs=10, batch_size=64, transform_width=256, branch_width=128,
        adapter_width=256, group=32, transform_batch=256, better=True,
    ),
    # BT^2 on CIFAR (section 4.2): ResNet50, 128 values and 32 more, Adam 0.001, batches of 256, 100 epochs. FCT's
    # transform (appendix C).
    "gpu": Size(
        images=50_000, gallery=9000, dim=128, extra=32, width=64, architecture="timm:resnet50", epochs=100,
        batch_size=256, learning_rate=1e-3, weight_decay=0.0, group=128, transform_width=2048, transformer_width=64,
        precision="auto",
    ),
}  # fmt: skip
