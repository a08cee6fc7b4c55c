"""Vectors that images are trained against: of another modality, or of a source's space that was refreshed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from compatstore.arrays import FloatArray, Id
from compatstore.artifacts import Artifact
from compatstore.boundary import checked, checked_fields
from compatstore.digests import fingerprint
from compatstore.errors import Incompatible, InvalidInput, first_offenders
from compatstore.trainers.images.compatible import FrozenSource, cmc_of
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.trainers.pairs.sources import GalleryOfPairs, native_ids
from compatstore.versions import EmbeddingVersion, Metric


@dataclass(frozen=True, kw_only=True, eq=False)
class ImagesOfItems:
    """Images whose items have a native vector in a gallery, as `BT2.fit_across` takes them.

    Args:
        images: n images.
        vectors: (n, dim) float32, of the version, in the images' order.
        version: The version of the vectors.
        suffix: Ending of the images' paths after the items' ids, as `encoders.FilesById` takes it: "" or ".jpg".
        left_out: Ids that images were looked for by, and that no item with a vector has.
    """

    images: Images
    vectors: FloatArray
    version: EmbeddingVersion
    suffix: str
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        apart = f"; {len(self.left_out)} images without one: {first_offenders(self.left_out)}" if self.left_out else ""
        return f"{len(self.images)} images whose items have a vector in {self.version.name}{apart}"


@checked
def images_of_items(
    gallery: GalleryOfPairs, images: Images, folder: str | Path, version: str | None = None
) -> ImagesOfItems:
    """Find each image's item by its path below a folder, with its suffix or without it; read-only.

    `photos/shoes/17.jpg` is of the item `shoes/17.jpg` or `shoes/17`, below `photos`, whichever form finds more items;
    the suffix that is left out is the most frequent one. `encoders.FilesById` finds the image of an item the same way.

    Args:
        gallery: The gallery; a `Gallery` is one.
        images: Paths, as `Images.from_folder` lists them.
        folder: Root folder of the paths.
        version: Version of the native vectors; the active one by default.

    Raises:
        InvalidInput: The images are no paths below the folder, two of them are of one item, or none is of any.
        NotFound: The gallery has no vectors of that version.
    """
    operation, known = f"find the items of images in {folder}", gallery.version(version)
    items: dict[str, Id] = {str(item): item for item in native_ids(gallery, known.name)}
    if isinstance(images.images, np.ndarray):
        fix = "Pass the vectors of arrays to fit_across yourself."
        raise InvalidInput(operation, expected="images that are paths", found="an array", fix=fix)
    try:
        root = Path(folder).absolute()
        names = [Path(path).absolute().relative_to(root).as_posix() for path in images.images]
    except ValueError as error:
        raise InvalidInput(operation, expected=f"paths below {folder}", found=str(error)) from error
    [(usual, _)] = Counter(Path(name).suffix for name in names).most_common(1)
    forms = {suffix: [name.removesuffix(suffix) for name in names] for suffix in ("", usual)}
    suffix, found = max(forms.items(), key=lambda form: sum(item in items for item in form[1]))
    rows = [row for row, item in enumerate(found) if item in items]
    if not rows:
        expected, some = "ids that are paths below it", first_offenders(list(items), 2) or "none"
        raise InvalidInput(operation, expected=expected, found=f"ids of {known.name}: {some}; files: {names[0]}, ...")
    twice = [item for item, count in Counter(found[row] for row in rows).items() if count > 1]
    if twice:
        raise InvalidInput(operation, expected="one image an item", found=f"several of {first_offenders(twice)}")
    return ImagesOfItems(
        images=images.take(rows),
        vectors=gallery.vectors([items[found[row]] for row in rows], known.name),
        version=known,
        suffix=suffix,
        left_out=tuple(item for item in found if item not in items),
    )


def across_figures(
    artifact: Artifact, embeddings: FloatArray, vectors: FloatArray, labels: np.ndarray, metric: Metric
) -> dict[str, float]:
    """CMC-1 among images that were not trained on, each and its given vector a query among the others.

    Args:
        artifact: Prefix from the given vectors' version to the model's.
        embeddings: (n, m + d) float32, of the images.
        vectors: (n, dim) float32, given, of the same items.
        labels: (n,) their classes.
        metric: Of both spaces.

    Returns:
        Of given vectors among each other (`s/s`), of images among given vectors (`t/s`), of given vectors among images
        (`s/t`: a text that searches images, by the first values of these), and of images among each other (`t/t`).
    """
    cut = artifact.apply(embeddings).vectors
    ways = {"s/s": (vectors, vectors), "t/s": (cut, vectors), "s/t": (vectors, cut), "t/t": (embeddings, embeddings)}
    return cmc_of(ways, labels, metric)


@checked_fields
@checked
@dataclass(frozen=True, eq=False)
class Refreshed:
    """Description of a refreshed gallery: `a_k(...a_1(model(x)))`, transformed vectors in another model's space.

    Args:
        model: The model of the gallery's natives.
        adaptations: The transforms that were applied to them, in this order, one or more; none reads side-information.

    Raises:
        InvalidInput: There is none, or one that does not transform a gallery by vectors alone.
    """

    model: TrainedModel
    adaptations: Sequence[Artifact]

    def __post_init__(self) -> None:
        given = list(self.adaptations)
        fitting = [
            isinstance(one, Artifact) and one.behaviour.acts_on == "gallery" and one.manifest.side_source is None
            for one in given
        ]
        if not given or not all(fitting):
            found = ", ".join(getattr(one, "kind", type(one).__name__) for one in given) or "none"
            expected = "adaptations of the kind ForwardTransform that read no side-information"
            raise InvalidInput("describe a refreshed gallery", expected=expected, found=found)

    def require_into(self, source: TrainedModel, metric: Metric) -> None:
        """Refuse adaptations that do not lead, one after the other, from the model to a source's space.

        Raises:
            Incompatible: They do not.
        """
        spaces = [artifact.manifest for artifact in self.adaptations]
        begin = [self.model.space(metric), *(manifest.target for manifest in spaces)]
        end = [*(manifest.source for manifest in spaces), source.space(metric)]
        for number, (given, wanted) in enumerate(zip(begin, end, strict=True)):
            if (given.fingerprint, given.dim) != (wanted.fingerprint, wanted.dim):
                into = f"adaptation {number + 1}" if number < len(spaces) else "the source"
                expected = f"{wanted.dim} values of {wanted.fingerprint} for {into}"
                found = f"{given.dim} of {given.fingerprint}"
                fix = "Name the model of the gallery's natives, and the adaptations as they were applied."
                raise Incompatible("train from refreshed vectors", expected=expected, found=found, fix=fix)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model and the adaptations' weights; artifact ids would include their creation time."""
        by = [artifact.manifest.weights_sha256 for artifact in self.adaptations]
        return fingerprint(model=self.model.encoder.fingerprint, by=by)

    def vectors(self, images: Images) -> FloatArray:
        """Vectors of these images in the refreshed gallery, (n, d) float32."""
        return self.adapted(self.model.encoder.encode(list(images.images)))

    def adapted(self, vectors: FloatArray) -> FloatArray:
        """The model's vectors (n, d_1) -> (n, d) float32."""
        for artifact in self.adaptations:
            vectors = artifact.apply(vectors).vectors
        return vectors


class FrozenRefreshed(FrozenSource):
    """Embeds views as a refreshed gallery holds them: (b, c, s, s) -> (b, d) float32, without gradients.

    The adaptations run as they ran over the gallery, in NumPy.

    Args:
        refreshed: The model and the adaptations.
    """

    def __init__(self, refreshed: Refreshed) -> None:
        super().__init__(refreshed.model.encoder, refreshed.model.encoder.dim)
        self._adapted = refreshed.adapted

    @torch.no_grad()
    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Embed views."""
        vectors = super().forward(views).cpu().numpy()
        return torch.from_numpy(np.ascontiguousarray(self._adapted(vectors))).to(views.device)
