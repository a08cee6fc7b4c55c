"""An encoder of your own: a torch module with its preprocessing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.boundary import checked, foreign, shown
from compatstore.digests import fingerprint as digest
from compatstore.errors import InvalidInput, SourceError, load_extra

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
        device: A torch device; None takes CUDA if there is one.
        batch_size: Sources that go through the module at once.
        identity: Text that identifies `preprocess`; a changed function needs another text. Needed if its
            `repr` is ambiguous: for lambdas, closures and objects that print their address.
        spec: Spec by which `encoders.from_spec` builds this encoder again, if any.

    Raises:
        InvalidInput: A setting is out of its range, or `preprocess` has no unambiguous name.
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
    # True if threads read the files of the next batch while the module works. A user's callable may not be thread-safe.
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
        self.device: str | None = device or ("cuda" if torch.cuda.is_available() else "cpu")
        with foreign("embed with a module", "a device of torch's that is there"):
            self.module = module.to(self.device).eval()

    @cached_property
    def fingerprint(self) -> str:
        """Digest (32 hex digits) of weights, preprocessing, normalisation and dimension, computed on first use."""
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
        """The module's input, or the reason why there is none."""
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
    return load_extra("torch", "train")


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
        InvalidInput: Neither of them is unambiguous.
    """
    name = getattr(preprocess, "__qualname__", "")
    if name and "<" not in name:
        return f"{preprocess.__module__}.{name}"
    text = repr(preprocess)
    if name or " at 0x" in text:
        raise InvalidInput(
            "fingerprint an encoder",
            expected="a preprocessing with an unambiguous name or repr",
            found=text,
            fix='Name it: identity="resize 224, ImageNet mean and deviation".',
        )
    return text
