"""Items embedded from the file of their id: for galleries whose sources are something else, such as captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from compatstore.arrays import FloatArray
from compatstore.boundary import checked
from compatstore.encoders.protocol import Encoder, QueryEncoder
from compatstore.encoders.specs import join_spec
from compatstore.errors import InvalidInput, NotFound, SourceError
from compatstore.paths import is_file, is_folder

# What reads files, and neither runs code that a spec names nor sends anything away.
READS_FILES = ("network:", "timm:", "torchvision:", "open_clip:")


@checked
class FilesById:
    """Embeds an item by the file `folder/ID`, with an encoder that reads paths; queries are read as that encoder does.

    A gallery has one column of sources. Where it holds texts, and the next model reads images, the ids lead to them.

    Args:
        folder: Where the files are; ids may name folders below it, and none beside it.
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
        asked = f"embed the files of {folder} by id"
        if not is_folder(folder):
            raise NotFound(asked, expected="a folder", found="none", fix="Check the path.")
        self.encoder = _built(asked, encoder) if isinstance(encoder, str) else encoder
        if self.encoder.reads != "source":
            expected, found = "an encoder that reads paths", f"{type(self.encoder).__name__}, which reads ids"
            raise InvalidInput(asked, expected=expected, found=found)
        self.folder, self.suffix = Path(folder).absolute(), suffix

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.encoder.dim

    @property
    def fingerprint(self) -> str:
        """That of the encoder: where the files lie does not change what is made of them."""
        return self.encoder.fingerprint

    @property
    def spec(self) -> str:
        """How `encoders.from_spec` builds this encoder again; "" where the encoder has no spec of a fitting kind."""
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
        """Embed queries, which are paths or whatever the encoder reads: (n, dim) float32.

        Raises:
            SourceError: Some cannot be read.
        """
        return (
            self.encoder.encode_queries(queries)
            if isinstance(self.encoder, QueryEncoder)
            else self.encoder.encode(queries)
        )

    def _path(self, item: Any) -> Path | None:
        """The file of an id; None where there is none, or it lies elsewhere, by ".." or by a link."""
        try:
            path = (self.folder / f"{item}{self.suffix}").resolve()
            return path if is_file(path) and path.is_relative_to(self.folder.resolve()) else None
        except (OSError, ValueError):  # a name that no file can have
            return None


def _built(asked: str, spec: str) -> Encoder:
    from compatstore.encoders.registry import from_spec

    if not spec.startswith(READS_FILES):
        expected = f"an encoder of {', '.join(READS_FILES)}"
        raise InvalidInput(asked, expected=expected, found=repr(spec), fix="Hand any other over as an object.")
    return from_spec(spec)
