"""Encoders around another encoder: vectors derived of its vectors, and items embedded from the file of their id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from compatstore.arrays import BoolArray, FloatArray
from compatstore.boundary import checked
from compatstore.derivation import Derivation
from compatstore.encoders.metering import Bill, Metered
from compatstore.encoders.protocol import Encoder, query_method
from compatstore.encoders.specs import from_spec, join_spec
from compatstore.errors import InvalidInput, NotFound, SourceError
from compatstore.paths import is_file, is_folder


@checked
class Derived:
    """Embeds as another encoder does, and derives its vectors; no other model is called.

    Args:
        encoder: The model. One that is derived itself is taken apart.
        derivations: Steps, one or more, each applied to the result of the one before.

    Raises:
        InvalidInput: There is no step. A step keeps more values than it is given.

    Examples:
        >>> whole = cs.encoders.Precomputed({"a": [3.0, 4.0, 12.0]})
        >>> shorter = cs.encoders.Derived(whole, cs.Derivation(dim=2, normalise=True))
        >>> shorter.encode(["a"]).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """

    spec = ""  # a gallery keeps that of the model, and the steps beside it
    request_rows: int  # both only if the model is `Metered`
    expected_bill: Callable[[Sequence[Any]], Bill]

    def __init__(self, encoder: Encoder, *derivations: Derivation) -> None:
        if not derivations:
            raise InvalidInput("derive an encoder", expected="a derivation, or several", found="none")
        known: tuple[Derivation, ...] = encoder.derivations if isinstance(encoder, Derived) else ()
        self.encoder: Encoder = encoder.encoder if isinstance(encoder, Derived) else encoder
        self.derivations: tuple[Derivation, ...] = (*known, *derivations)
        dim = self.encoder.dim
        for derivation in self.derivations:
            if derivation.dim > dim:
                expected = f"{dim} values at most, as the encoder gives"
                raise InvalidInput("derive an encoder", expected=expected, found=f"{derivation.dim}")
            dim = derivation.dim
        if isinstance(self.encoder, Metered):
            self.request_rows, self.expected_bill = self.encoder.request_rows, self.encoder.expected_bill

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.derivations[-1].dim

    @property
    def reads(self) -> Literal["source", "id"]:
        """Input of the model: an item's "source" or "id"."""
        return self.encoder.reads

    @property
    def knows(self) -> Callable[[Sequence[Any]], BoolArray]:
        """The model's `knows`, if it has one: ids -> (n,) bool."""
        knows: Callable[[Sequence[Any]], BoolArray] = self.encoder.knows  # type: ignore[attr-defined]
        return knows

    @cached_property
    def fingerprint(self) -> str:
        """Digest (32 hex digits) of the model's fingerprint and the steps."""
        return identity_of(self.encoder.fingerprint, self.derivations)

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed a batch: (n, dim) float32; NaN for vectors without direction that are to be scaled.

        Raises:
            SourceError: The model cannot read some sources.
        """
        return self._derived(self.encoder.encode(sources))

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed a batch of queries as the model does, (n, dim) float32; the same otherwise.

        Raises:
            SourceError: The model cannot read some queries.
        """
        return self._derived(query_method(self.encoder)(queries))

    def _derived(self, vectors: FloatArray) -> FloatArray:
        for derivation in self.derivations:
            vectors = derivation.apply(vectors)
        return vectors


def identity_of(model: str, derivations: Sequence[Derivation]) -> str:
    """Identity of a model with derivation steps; the model's own without steps."""
    for derivation in derivations:
        model = derivation.identity(model)
    return model


# Kinds that read files, and neither run code that a spec names nor send anything away.
READS_FILES = ("network:", "timm:", "torchvision:", "open_clip:")


@checked
class FilesById:
    """Embeds an item by the file `folder/ID`, with an encoder that reads paths; queries are read as that encoder does.

    A gallery has one column of sources. If it holds texts, and the next model reads images, the ids name their files.

    Args:
        folder: Folder of the files; ids may name folders below it, and none beside it.
        encoder: Embeds a path; or its spec, of a kind that reads files (`READS_FILES`).
        suffix: Put behind each id, such as ".jpg".

    Raises:
        NotFound: There is no such folder, or the spec's encoder does not exist.
        InvalidInput: The encoder does not read sources, or the spec is of another kind.

    Examples:
        >>> from pathlib import Path
        >>> Path("notes").mkdir()
        >>> Path("notes/a.txt").write_text("four")
        4
        >>> def lengths(paths):
        ...     return [[len(Path(path).read_text())] for path in paths]
        >>> files = cs.encoders.Function(lengths, dim=1, fingerprint="length")
        >>> cs.encoders.FilesById("notes", encoder=files, suffix=".txt").encode(["a"]).tolist()
        [[4.0]]
    """

    reads: Literal["source", "id"] = "id"

    def __init__(self, folder: str | Path, *, encoder: Encoder | str, suffix: str = "") -> None:
        operation = f"embed the files of {folder} by id"
        if not is_folder(folder):
            raise NotFound(operation, expected="a folder", found="none", fix="Check the path.")
        if isinstance(encoder, str) and not encoder.startswith(READS_FILES):
            expected, fix = f"an encoder of {', '.join(READS_FILES)}", "Hand any other over as an object."
            raise InvalidInput(operation, expected=expected, found=repr(encoder), fix=fix)
        self.encoder = from_spec(encoder) if isinstance(encoder, str) else encoder
        if self.encoder.reads != "source":
            expected, found = "an encoder that reads paths", f"{type(self.encoder).__name__}, which reads ids"
            raise InvalidInput(operation, expected=expected, found=found)
        self.folder, self.suffix = Path(folder).absolute(), suffix

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.encoder.dim

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the encoder: the folder of the files does not change their vectors."""
        return self.encoder.fingerprint

    @property
    def spec(self) -> str:
        """Spec by which `encoders.from_spec` builds this encoder again; "" if there is none of a fitting kind."""
        inner = self.encoder.spec
        if not inner.startswith(READS_FILES):
            return ""
        return join_spec("files", [str(self.folder)], type(self), {"encoder": inner, "suffix": self.suffix})

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed the files of some ids: (n, dim) float32.

        Raises:
            SourceError: Some ids have no file in the folder, or the encoder cannot read it.
        """
        paths = [self._path(item) for item in sources]
        missing = {row: f"no file {item}{self.suffix}" for row, item in enumerate(sources) if paths[row] is None}
        if missing:
            raise SourceError(f"embed {len(sources)} files by id", missing, fix=f"Put them below {self.folder}.")
        return self.encoder.encode([str(path) for path in paths])

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed queries, which are paths or other inputs of the encoder: (n, dim) float32.

        Raises:
            SourceError: Some cannot be read.
        """
        return query_method(self.encoder)(queries)

    def _path(self, item: Any) -> Path | None:
        """The file of an id; None if there is none, or it lies elsewhere, by ".." or by a link."""
        try:
            path = (self.folder / f"{item}{self.suffix}").resolve()
            return path if is_file(path) and path.is_relative_to(self.folder.resolve()) else None
        except (OSError, ValueError):  # a name that no file can have
            return None
