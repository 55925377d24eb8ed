"""Several training processes as one: chunks are dealt out, embeddings and gradients put together.

Started by torchrun. Every process computes the loss of the whole batch, so the sum of their
gradients is the gradient of the batch in a single process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import os
from typing import TypeVar

import torch
from torch import Tensor
import torch.distributed as dist

from lpr_ros.core.model.place_model import PlaceModel

T = TypeVar('T')


@dataclass(frozen=True)
class Processes:
    """The place of this process among all."""

    rank: int
    size: int

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def owns(self, number: int) -> bool:
        """Whether a chunk is this process's to compute."""
        return number % self.size == self.rank

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process's items."""
        return items[self.rank :: self.size]

    def gather(
        self, embeddings: Sequence[Tensor], counts: Sequence[int], empty: Tensor
    ) -> Tensor:
        """Return the embeddings of all chunks, in order.

        `counts` are the clouds per chunk; `empty` (0, D) gives width, type and device to a
        process that has no chunk.
        """
        if self.size == 1:
            return torch.cat(list(embeddings))
        whole = empty.new_zeros(sum(counts), empty.shape[1])
        for part, own in zip(self.share(whole.split(list(counts))), embeddings, strict=True):
            part.copy_(own)
        dist.all_reduce(whole)
        return whole

    def sum_gradients(self, model: PlaceModel) -> None:
        """Add up the gradients of all processes, and average their batch statistics."""
        if self.size == 1:
            return
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
        for buffer in model.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer /= self.size


    def leave(self) -> None:
        """Part from the other processes, at the end of a run."""
        if self.size > 1:
            dist.destroy_process_group()


ALONE = Processes(rank=0, size=1)


def join_processes() -> Processes:
    """Join the processes torchrun started, or be alone."""
    if 'WORLD_SIZE' not in os.environ:
        return ALONE
    has_cuda = torch.cuda.is_available()
    if has_cuda:
        torch.cuda.set_device(int(os.environ.get('LOCAL_RANK', '0')))
    if not dist.is_initialized():
        dist.init_process_group('nccl' if has_cuda else 'gloo')
    return Processes(dist.get_rank(), dist.get_world_size())
