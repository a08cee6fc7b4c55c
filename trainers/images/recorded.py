"""CUDA graphs: what a network launches in a step is recorded once, and replayed by one call in later steps.

Launching is most of a step of a small network on a GPU. Augmentation and losses draw and choose on the host, so they
are launched as before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from compatstore.encoders.backbone_networks import BasisNetwork
from compatstore.errors import CompatStoreWarning

Forward = Callable[[torch.Tensor], torch.Tensor]
# Calls before a recording: libraries choose their algorithms and take their memory in the first ones.
_WARM_UP = 3


@contextmanager
def recorded(objective: nn.Module) -> Iterator[None]:
    """Record the networks of an objective on a CUDA device, trained and frozen ones, while this lasts.

    A network is a part `network` of any module of the objective. What is computed is the same. A call is launched as
    without where nothing fits it: another shape, or a second call of a trained network before the gradients of the
    first are there, which need what the first has left in the recording's memory.
    """
    networks = {id(part): part for part in _networks(objective)}
    with ExitStack() as stack:
        stack.enter_context(_without_word_of_streams())
        for network in networks.values():
            stack.enter_context(_Recorder(network).in_place())
        yield


@contextmanager
def _without_word_of_streams() -> Iterator[None]:
    """Torch warns that gradients come from the stream of a recording, and waits for that stream, as it should."""
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)  # from torch 2.11
    if warn is None or not torch.cuda.is_available():
        yield
        return
    warn(False)
    try:
        yield
    finally:
        warn(True)


def _networks(objective: nn.Module) -> Iterator[nn.Module]:
    for module in objective.modules():
        network = getattr(module, "network", None)
        if isinstance(network, nn.Module):
            yield network.inner if isinstance(network, BasisNetwork) else network


class _Recorder:
    """Stands in for the forward method of a network.

    Args:
        network: (b, c, s, s) float32 -> (b, dim).
    """

    def __init__(self, network: nn.Module) -> None:
        self.network, self.launch = network, network.forward
        self.replay: Forward | None = None
        self.fits: tuple[object, ...] | None = None
        self.awaited = False

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Take the calls of the network."""
        self.network.forward = self
        try:
            yield
        finally:
            del self.network.forward
            self.replay = None  # a recording that is freed while another is made would end that one

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """(b, c, s, s) float32 -> (b, dim), as the network's own forward."""
        trained = torch.is_grad_enabled()
        asked = (pixels.shape, pixels.stride(), pixels.dtype, trained, self.network.training, _autocast())
        if self.fits is None and pixels.is_cuda and not pixels.requires_grad:
            self.fits = asked
            self._record(pixels, trained)
        if self.replay is None or self.fits != asked or self.awaited:
            launched: torch.Tensor = self.launch(pixels)
            return launched
        embeddings: torch.Tensor = self.replay(pixels).clone()  # the next replay writes to the same memory
        if embeddings.requires_grad:
            self.awaited = True
            embeddings.register_hook(self._answer)  # type: ignore[no-untyped-call]
        return embeddings

    def _answer(self, gradient: torch.Tensor) -> None:
        self.awaited = False

    def _record(self, pixels: torch.Tensor, trained: bool) -> None:
        before = [(buffer, buffer.clone()) for buffer in self.network.buffers()]
        enabled, dtype = _autocast()
        try:
            # Casts of weights that are kept from call to call would be missing from the recording.
            with torch.autocast("cuda", dtype, enabled=enabled, cache_enabled=False):
                self.replay = self._with_gradients(pixels) if trained else self._without(pixels)
        except RuntimeError as error:
            message = f"A network cannot be recorded on this GPU, so each step launches it: {error}"
            warnings.warn(message, CompatStoreWarning, stacklevel=2)
        finally:
            # The calls before a recording count into running statistics; no step has happened.
            with torch.no_grad():
                for buffer, value in before:
                    buffer.copy_(value)

    def _with_gradients(self, pixels: torch.Tensor) -> Forward:
        self.network.forward = self.launch
        try:
            torch.cuda.make_graphed_callables(
                self.network, (pixels.clone(),), num_warmup_iters=_WARM_UP, allow_unused_input=True
            )
            return self.network.forward
        finally:
            self.network.forward = self

    def _without(self, pixels: torch.Tensor) -> Forward:
        given, graph = pixels.clone(), torch.cuda.CUDAGraph()
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                self.launch(given)
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(graph):
            made: torch.Tensor = self.launch(given)

        def replay(pixels: torch.Tensor) -> torch.Tensor:
            given.copy_(pixels)
            graph.replay()
            return made

        return replay


def _autocast() -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
