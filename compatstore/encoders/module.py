"""Encoders of your own: a callable, or a torch module with its preprocessing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.boundary import checked, foreign, shown
from compatstore.digests import fingerprint as digest
from compatstore.errors import InvalidInput, MissingExtra, SourceError

if TYPE_CHECKING:
    import torch
    from torch import nn

Preprocess = Callable[[Any], "torch.Tensor"]


@checked
class Module:
    """Embeds with a torch module, in evaluation mode and without gradients.

    Args:
        module: (b, ...) -> (b, dim). Moved to `device`.
        dim: Length of an embedding.
        preprocess: One source -> (...) tensor; an OSError or ValueError of it marks that source as unreadable.
        normalise: Scale embeddings to unit length.
        device: A torch device; None takes CUDA where there is one.
        batch_size: Sources that go through the module at once.
        identity: Text that identifies what `preprocess` does; a changed function needs another text. Needed where its
            `repr` does not say so: for lambdas, closures and objects that print their address.
        spec: How `encoders.from_spec` builds this encoder again, if it can.

    Raises:
        InvalidInput: A setting is out of its range, or `preprocess` cannot be told apart from another.
        MissingExtra: torch is not installed.

    Examples:
        >>> import torch
        >>> def preprocess(sources):
        ...     return torch.tensor(np.array(sources), dtype=torch.float32)
        >>> encoder = cs.encoders.Module(torch.nn.Identity(), 2, preprocess, identity="identity@1", device="cpu")
        >>> encoder.encode([[0.0, 1.0]]).tolist()
        [[0.0, 1.0]]
    """

    reads: Literal["source", "id"] = "source"
    # Whether threads read files, the next batch while the module works. A user's callable may not bear threads.
    _reads_ahead: bool = False

    def __init__(
        self,
        module: nn.Module,
        dim: int,
        preprocess: Preprocess,
        *,
        normalise: bool = False,
        device: str | None = None,
        batch_size: int = 64,
        identity: str = "",
        spec: str = "",
    ) -> None:
        if dim < 1 or batch_size < 1:
            raise InvalidInput("make an encoder", expected="dim and batch_size >= 1", found=f"{dim} and {batch_size}")
        self.dim, self.preprocess, self.normalise, self.batch_size, self.spec = (
            dim, preprocess, normalise, batch_size, spec
        )  # fmt: skip
        self.identity = identity or describe(preprocess)
        torch = require_torch()
        if not isinstance(module, torch.nn.Module):
            raise InvalidInput("embed with a module", expected="a torch module", found=shown(module))
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        with foreign("embed with a module", "a device of torch's that is there"):
            self.module = module.to(self.device).eval()

    @cached_property
    def fingerprint(self) -> str:
        """Digest (32 hex digits) of weights, preprocessing, normalisation and dimension, taken when first asked."""
        weights = hash_weights(self.module.state_dict())
        return digest(weights=weights, preprocess=self.identity, normalise=self.normalise, dim=self.dim)

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed a batch: (n, dim) float32.

        Raises:
            SourceError: Some sources cannot be read; all of them are listed.
            InvalidInput: The module gave another length than `dim`.
        """
        vectors = [np.empty((0, self.dim), np.float32)]
        failures: dict[int, str] = {}
        batches = [sources[start : start + self.batch_size] for start in range(0, len(sources), self.batch_size)]
        for number, read in enumerate(self._inputs(batches)):
            failed = {number * self.batch_size + row: one for row, one in enumerate(read) if isinstance(one, str)}
            failures |= failed
            if not failures:  # after the first failure only the reading goes on, to list them all
                vectors.append(self._embed([one for one in read if not isinstance(one, str)]))
        if failures:
            raise SourceError(f"encode {len(sources)} sources", failures, fix="Leave these sources out of the batch.")
        return np.concatenate(vectors)

    def _inputs(self, batches: Sequence[Sequence[Any]]) -> Iterator[list[torch.Tensor | str]]:
        """Read batch after batch."""
        if not self._reads_ahead or not all(isinstance(one, str | Path | bytes) for batch in batches for one in batch):
            yield from ([self._read(source) for source in batch] for batch in batches)
            return
        with ThreadPoolExecutor(thread_name_prefix="compatstore-reader") as pool:
            following: Iterator[torch.Tensor | str] = iter(())
            for batch in (*batches, ()):
                read, following = list(following), pool.map(self._read, batch)
                if read:
                    yield read

    def _read(self, source: Any) -> torch.Tensor | str:
        """The module's input, or why there is none."""
        try:
            return self.preprocess(source)
        except SourceError as error:
            return "; ".join(error.failures.values())
        except (OSError, ValueError) as error:
            return str(error) or type(error).__name__

    def _embed(self, inputs: list[torch.Tensor]) -> FloatArray:
        torch = require_torch()
        self.module.eval()
        with torch.inference_mode():
            output = self.module(torch.stack(inputs).to(self.device)).float()
            if output.shape != (len(inputs), self.dim):
                expected = f"({len(inputs)}, {self.dim}) from the module"
                raise InvalidInput("encode sources", expected=expected, found=f"{tuple(output.shape)}")
            if self.normalise:
                output = torch.nn.functional.normalize(output, dim=1)
            vectors: FloatArray = output.cpu().numpy()
        return vectors


def require_torch() -> Any:
    """Import torch.

    Raises:
        MissingExtra: torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("torch", "train") from error
    return torch


def hash_weights(state: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 (hex) over the names, types, shapes and bytes of tensors, independent of their order and device."""
    torch = require_torch()
    hasher = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        hasher.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        hasher.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def describe(preprocess: Preprocess) -> str:
    """Describe a preprocessing callable by its name or its `repr`.

    Raises:
        InvalidInput: Neither of them says what it does.
    """
    name = getattr(preprocess, "__qualname__", "")
    if name and "<" not in name:
        return f"{preprocess.__module__}.{name}"
    text = repr(preprocess)
    if name or " at 0x" in text:
        raise InvalidInput(
            "fingerprint an encoder",
            expected="a preprocessing that can be told apart from another",
            found=text,
            fix='Name it: identity="resize 224, ImageNet mean and deviation".',
        )
    return text


@checked
class Function:
    """Embeds with a callable.

    Args:
        fn: (n sources) -> (n, dim) array-like. It may raise `SourceError` with the positions that failed.
        dim: Length of an embedding.
        fingerprint: Identity of the model behind the callable, changed whenever its vectors change
            ("text-embedding-3-small@2024-01"). A callable cannot be hashed, so it must be declared.
        reads: Whether `fn` takes the items' sources or their ids.
        queries: Embeds queries, where the model embeds them by another way than items; None takes `fn` for both.
        spec: How `encoders.from_spec` finds this object again ("python:package.module:attribute"), if it can.

    Raises:
        InvalidInput: `fn` is not callable, `dim` is below 1 or `fingerprint` is empty.

    Examples:
        >>> lengths = cs.encoders.Function(lambda texts: [[len(text)] for text in texts], dim=1, fingerprint="length")
        >>> lengths.encode(["a", "abc"]).tolist()
        [[1.0], [3.0]]
    """

    def __init__(
        self,
        fn: Callable[[Sequence[Any]], npt.ArrayLike],
        dim: int,
        *,
        fingerprint: str,
        reads: Literal["source", "id"] = "source",
        queries: Callable[[Sequence[Any]], npt.ArrayLike] | None = None,
        spec: str = "",
    ) -> None:
        if not callable(fn) or dim < 1 or not fingerprint.strip():
            raise InvalidInput(
                "make an encoder of a function",
                expected="a callable, dim >= 1 and a fingerprint that names the model",
                found=f"{type(fn).__name__}, {dim} and {fingerprint!r}",
            )
        self.fn, self.queries, self.dim, self.reads, self.spec = fn, queries or fn, dim, reads, spec
        self.fingerprint = digest(function=fingerprint, dim=dim, reads=reads)

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed a batch: (n, dim) float32.

        Raises:
            InvalidInput: The callable gave another shape.
            SourceError: The callable could not read some sources.
        """
        return self._call(self.fn, sources)

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed a batch of queries: (n, dim) float32; errors as those of `encode`."""
        return self._call(self.queries, queries)

    def _call(self, fn: Callable[[Sequence[Any]], npt.ArrayLike], sources: Sequence[Any]) -> FloatArray:
        if not len(sources):
            return np.empty((0, self.dim), np.float32)
        given = fn(sources)
        with foreign("encode with a function", "vectors of numbers from it"):
            vectors = np.asarray(given, dtype=np.float32)
        if vectors.shape != (len(sources), self.dim):
            raise InvalidInput(
                "encode with a function", expected=f"shape {(len(sources), self.dim)}", found=f"{vectors.shape}"
            )
        return vectors
