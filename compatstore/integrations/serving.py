"""The gallery of a running app: its current versions, each with the app's own model.

The registry is read again for every call. An upgrade, a cutover or a rollback by another process is noticed there: the
app goes on with the models that it was given, and the log `compatstore.integrations` has one line about it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from compatstore import next_step
from compatstore.arrays import FloatArray
from compatstore.encoders import Encoder
from compatstore.encoders.protocol import query_method
from compatstore.errors import AlreadyExists, Incompatible, InvalidInput, NotFound
from compatstore.gallery import Gallery
from compatstore.integrations.documents import JSON_COLUMN, Documents
from compatstore.integrations.models import FrameworkModel
from compatstore.search.plan import SearchPlan
from compatstore.versions import EmbeddingVersion, Metric

log = logging.getLogger("compatstore.integrations")


class ServedGallery:
    """A gallery, opened with the models of an app.

    Args:
        gallery: A path, a URI or `DATABASE#TABLE`.
        models: The app's embedding models. Vectors that the app makes by itself are the first one's.
        storage_options: Settings of the object store.

    Raises:
        NotFound: There is none.
        Incompatible: No version of the gallery is the first model's.
    """

    def __init__(
        self, gallery: str, models: Sequence[FrameworkModel], storage_options: dict[str, str] | None = None
    ) -> None:
        self.path, self.models, self._storage_options = gallery, tuple(models), storage_options
        self._lock = threading.Lock()
        self._gallery = self._open()
        self._known = self._gallery.versions()
        self._logged: tuple[str, str | None] | None = None
        self._active = self._gallery.active
        self.first()

    def now(self) -> Gallery:
        """The gallery with the models of the versions that it has now."""
        with self._lock:
            if self._gallery.versions() != self._known:
                self._gallery = self._open()
                self._known = self._gallery.versions()
            return self._gallery

    def version(self) -> str | None:
        """Version to embed by: None for the serving ones, or the one that this app has a model of.

        Raises:
            Incompatible: The app has the model of no version that can be searched.
        """
        gallery = self.now()
        active = gallery.active
        embeds = _encoder(gallery, active) is not None
        usable = None if embeds else self._latest_with_model(gallery)
        self._log_switch(active, usable)
        if usable is None and not embeds:
            identities = ", ".join(model.identity for model in self.models)
            raise Incompatible(
                f"embed a text for {self.path}",
                expected=f"the model of {active}, which is active now",
                found=f"models of other versions alone: {identities}",
                fix=f"Pass the model of {active} too: models=[...].",
            )
        return usable

    def first(self) -> str:
        """The version whose vectors the app makes by itself: that of the first model.

        Raises:
            Incompatible: The gallery has no such version.
        """
        gallery = self.now()
        found = [name for name in gallery.versions() if _is_of(gallery, name, self.models[0])]
        if not found:
            new = next_step.made("EmbeddingVersion", "NEW_VERSION", dim=next_step.DIM_FOUND, encoder=next_step.ENCODER)
            upgrade = next_step.both(next_step.call("register", new), next_step.call("upgrade", "NEW_VERSION"))
            active = gallery.version(encoders=False)
            known = next_step.made("EmbeddingVersion", active.name, dim=active.dim, encoder=next_step.ENCODER)
            raise Incompatible(
                f"use {self.path} with {self.models[0].identity}",
                expected=f"the model of a version that the gallery has ({', '.join(gallery.versions())})",
                found="another model, whose vectors must not be mixed with theirs",
                fix=f"Register it, and upgrade to it: {upgrade}, with encoder=as_encoder(...) of this package; or pass "
                f"the former model first, and this one in models=[...]. Is it the same model? Declare its identity, or "
                f"give it to a version without a model: {next_step.call('register', known)}.",
            )
        return gallery.active if gallery.active in found else found[-1]

    def metric_of(self, query: str | FloatArray, version: str | None) -> str:
        """Metric of the distances in a result; "fused" for a mean of standardised distances to both versions."""
        gallery = self.now()
        plan = gallery.explain(query, version=version)
        fused = isinstance(plan, SearchPlan) and plan.fusion is not None
        return "fused" if fused else gallery.version(version, encoders=False).metric

    def query_vector(self, query: str | npt.ArrayLike, version: str) -> list[float]:
        """A query as a vector of a version, whose model embeds a text."""
        if isinstance(query, str):
            encoder = self.now().version(version).encoder
            assert encoder is not None  # the search has embedded by it
            query = query_method(encoder)([query])[0]
        vector: list[float] = one_vector(query).tolist()
        return vector

    def stored_vectors(self, ids: Sequence[str], version: str) -> tuple[list[int], list[list[float]]]:
        """Positions of the ids that have a vector of a version, and these vectors."""
        vectors = self.now().vectors(ids, version)
        positions = np.flatnonzero(~np.isnan(vectors).any(axis=1)).tolist()
        return positions, vectors[positions].tolist()

    def write(self, rows: Mapping[str, object], version: str | None, ids: Sequence[str]) -> list[str]:
        """Write the rows of documents, in one commit, and log those that cannot be embedded.

        Returns:
            The ids of the documents that were written.
        """
        failures = dict(self.now().add(rows, version, upsert=True, repeated="last").failures)
        for name, reason in failures.items():
            log.warning("document %s could not be embedded, and is not written: %s", name, reason)
        return [name for name in ids if name not in failures]

    def _open(self) -> Gallery:
        plain = Gallery.open(self.path, storage_options=self._storage_options)
        encoders = {
            name: encoder
            for name in plain.versions()
            for model in self.models
            if _is_of(plain, name, model)
            and (encoder := model.encoder(plain.version(name, encoders=False).dim)) is not None
        }
        return Gallery.open(self.path, encoders=encoders, storage_options=self._storage_options) if encoders else plain

    def _latest_with_model(self, gallery: Gallery) -> str | None:
        """Return the latest version that the app has a model of and that can still be searched."""
        for name in reversed(gallery.versions()):
            if _encoder(gallery, name) is not None:
                with suppress(NotFound):
                    gallery.explain(version=name)
                    return name
        return None

    def _log_switch(self, active: str, usable: str | None) -> None:
        with self._lock:
            switched, self._active = active != self._active, active
            if (active, usable) == self._logged or not (switched or usable):
                return
            self._logged = active, usable
        if usable is None:
            log.warning("%s serves version %s now: another process switched to it", self.path, active)
            return
        log.warning(
            "%s serves version %s now, whose model this process does not have. It goes on by %s until that is retired, "
            "and finds items that have a vector of %s alone. Pass the model of %s too: models=[...]",
            *(self.path, active, usable, usable, active),
        )


def serve(
    gallery: str,
    models: Sequence[FrameworkModel],
    *,
    dim: int | None = None,
    metric: Metric = "cosine",
    metadata: Mapping[str, str] | None = None,
    storage_options: dict[str, str] | None = None,
) -> ServedGallery:
    """Open a gallery for an app, or make it if there is none, with the first model as its version `v1`.

    Args:
        gallery: A path, a URI or `DATABASE#TABLE`.
        models: The app's embedding models, the one that it embeds with first.
        dim: Length of the first model's vectors, for a gallery that is made here; None for that of the model.
        metric: Distance of a gallery that is made here.
        metadata: Metadata columns of a gallery that is made here, beside one of JSON for all other keys.
        storage_options: Settings of the object store.

    Raises:
        Incompatible: No version of the gallery is the first model's. The table is one whose rows this package cannot
            write.
        InvalidInput: A gallery is to be made of a model that is used outside, and `dim` is None.
    """
    try:
        served = ServedGallery(gallery, models, storage_options)
    except NotFound as error:
        if error.kind != "gallery":
            raise
        encoder = models[0].encoder(dim) if dim is not None else models[0].measured()
        length = dim if encoder is None else encoder.dim
        named = models[0].identity if encoder is None else ""
        version = EmbeddingVersion("v1", dim=int(length or 0), metric=metric, encoder=encoder, model=named)
        columns = {**(metadata or {}), JSON_COLUMN: "json"}
        with suppress(AlreadyExists):  # another process was faster
            Gallery.create(gallery, version, metadata=columns, storage_options=storage_options)
        served = ServedGallery(gallery, models, storage_options)
    Documents.of(served.now())
    return served


def one_vector(values: npt.ArrayLike) -> FloatArray:
    """A vector of a query: (dim,) float32.

    Raises:
        InvalidInput: It has another shape.
    """
    vector: FloatArray = np.asarray(values, np.float32)
    if vector.ndim != 1:
        raise InvalidInput("search by a vector", expected="one vector", found=f"shape {vector.shape}")
    return vector


def _is_of(gallery: Gallery, name: str, model: FrameworkModel) -> bool:
    """True if a version is a model's: the one that it was registered with, or was given later."""
    given = gallery._catalog.recorded().record(name).encoder_model
    return model.is_of(gallery.version(name, encoders=False), given)


def _encoder(gallery: Gallery, version: str) -> Encoder | None:
    with suppress(Incompatible):
        return gallery.version(version).encoder
    return None
