"""How large the models of the demo are."""

from __future__ import annotations

from dataclasses import dataclass, fields

from compatstore.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """The defaults are small enough for one core.

    Args:
        source_dim: Values of an embedding of the source model, >= 1.
        source_width: Channels of its first stage, >= 1.
        source_epochs: Passes over its training images, >= 2.
        target_dim: The same for the target model.
        target_width: The same for the target model.
        target_epochs: The same for the target model.
        side_dim: The same for the side-information model.
        side_width: The same for the side-information model.
        side_epochs: The same for the side-information model.
        transform_width: Width of the transform's mixer, >= 4; its branches have a quarter of it.
        transform_epochs: Passes over the pairs that the transform learns from, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    source_dim: int = 8
    source_width: int = 8
    source_epochs: int = 15
    target_dim: int = 32
    target_width: int = 24
    target_epochs: int = 25
    side_dim: int = 32
    side_width: int = 16
    side_epochs: int = 40
    transform_width: int = 512
    transform_epochs: int = 150

    def __post_init__(self) -> None:
        least = {"source_epochs": 2, "target_epochs": 2, "side_epochs": 2, "transform_width": 4}
        broken = [f.name for f in fields(self) if getattr(self, f.name) < least.get(f.name, 1)]
        if broken:
            expected = ", ".join(f"{name} >= {least.get(name, 1)}" for name in broken)
            raise InvalidInput("set up the demo", expected=expected, found=repr(self))
