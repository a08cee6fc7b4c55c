"""How large a run of the benchmark on methods is: one size for all rows of a run.

"tiny" shows that a command works; "quick" is minutes a row on two cores; "standard" trains for 60 epochs, and
`benchmarks.methods.rise` measures how far source and target still rise then; "gpu" has the papers' network and
schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compatstore.artifacts.network import PrecisionRequest
from compatstore.errors import InvalidInput

# Earlier name of a size, as journals may have it -> its name.
EARLIER = {"cpu": "quick"}


@dataclass(frozen=True, kw_only=True)
class Size:
    """What every row of a run gets.

    Args:
        name: What the journal calls it.
        pixels: Side of the images that networks read.
        images: Images to train on at most, drawn at random.
        gallery: Items in the gallery at most.
        queries: Queries at most.
        dim: Values of a source's embedding, and of a target's where the method adds none.
        extra: Values that BCT(+d) and BT^2 add.
        side: Values of side-information.
        width: Channels of the small convolutional network's first stage.
        architecture: A model of timm instead, or "".
        epochs: Passes over the images, for every network trained on images.
        batch_size: Images a step.
        learning_rate: Its peak, for every classifier on images; side-information and transformers keep their own.
        weight_decay: The same.
        augment: Train classifiers on random views of the images, mirrored ones where the set allows it.
        one_start: Source and target start from the same weights where the target knows further classes. Models of one
            start stay near each other without any method, so only "quick" has it, whose rows were taken with it.
        transform_epochs: Passes over the pairs, for the networks of FCT and FastFill.
        residual_epochs: The same, for the residual transform.
        transform_width: Of the mixer of FCT's network.
        branch_width: Of its branches.
        adapter_width: Of DMU's adaptation head.
        transformer: The target's network in the setting "architecture", as `ImageTraining.architecture` names it.
        transformer_width: Its `ImageTraining.width`.
        transformer_epochs: Its passes over the images, the same for all rows: transformers learn slowly.
        precision: Of the convolutional networks; transformers have that of the machine.
        alphas: Shares of native vectors that curves are measured at.
        group: Images that share one draw of a view: torchvision draws once a call, and most of a step of a small
            network on a GPU is calls.
        equal_steps: Side-information of all kinds is trained for as many steps as the source; else for as many epochs,
            of other batches.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    name: str
    pixels: int
    images: int
    gallery: int
    queries: int
    dim: int
    extra: int
    side: int
    width: int
    epochs: int
    batch_size: int
    transform_epochs: int
    residual_epochs: int
    transform_width: int
    branch_width: int
    adapter_width: int
    transformer_width: int
    transformer_epochs: int
    transformer: str = "small-vit"
    architecture: str = ""
    precision: PrecisionRequest = "auto"
    learning_rate: float = 2e-3
    weight_decay: float = 5e-2
    augment: bool = True
    one_start: bool = False
    alphas: int = 11
    group: int = 8
    equal_steps: bool = True

    def __post_init__(self) -> None:
        if min(self.images, self.gallery, self.queries, self.alphas, self.epochs) < 2:
            raise InvalidInput("size the benchmark", expected="2 or more of each", found=repr(self))

    def tried(self) -> Size:
        """The same networks and rows on little data for two epochs, in minutes: whether a command works."""
        few = {"images": 512, "gallery": 200, "queries": 100, "alphas": 3, "epochs": 2}
        few |= dict.fromkeys(("transform_epochs", "residual_epochs", "transformer_epochs"), 2)
        return replace(
            self, name=f"{self.name}, tried", **{name: min(n, getattr(self, name)) for name, n in few.items()}
        )


SIZES = {
    size.name: size
    for size in (
        Size(
            name="tiny", pixels=8, images=400, gallery=120, queries=60, dim=12, extra=4, side=8, width=8, epochs=3,
            batch_size=64, transform_epochs=3, residual_epochs=3, transform_width=16, branch_width=8, adapter_width=16,
            alphas=3, transformer_width=8, transformer_epochs=3,
        ),
        Size(
            name="quick", pixels=32, images=4500, gallery=2000, queries=800, dim=64, extra=16, side=64, width=16,
            epochs=7, batch_size=64, precision="bfloat16", augment=False, one_start=True, equal_steps=False,
            transform_epochs=30, residual_epochs=30, transform_width=256, branch_width=128, adapter_width=256,
            transformer_width=32, transformer_epochs=28,
        ),
        # Two hours for a seed of the nine main rows of a setting on one core.
        Size(
            name="standard", pixels=32, images=12_000, gallery=4000, queries=1000, dim=64, extra=16, side=64, width=16,
            epochs=60, batch_size=128, group=64, precision="bfloat16", transform_epochs=80, residual_epochs=30,
            transform_width=1024, branch_width=256, adapter_width=1024, transformer_width=32, transformer_epochs=80,
        ),
        # BT^2 on CIFAR (section 4.2): ResNet50, 128 values and 32 more, Adam 0.001, batches of 256, 100 epochs; its
        # table has 128 values for the source too. FCT's transform (appendix C). One GPU.
        Size(
            name="gpu", pixels=32, images=50_000, gallery=9000, queries=1000, dim=128, extra=32, side=64, width=64,
            architecture="timm:resnet50", epochs=100, batch_size=256, learning_rate=1e-3, weight_decay=0.0,
            group=128, transform_epochs=80, residual_epochs=30, transform_width=2048, branch_width=256,
            adapter_width=1024, transformer_width=64, transformer_epochs=100,
        ),
    )
}  # fmt: skip
