"""Training in several processes started by torchrun.

Chunks are distributed, embeddings gathered and gradients summed. Every process computes the loss
of the whole batch, so the sum of the gradients equals the gradient of a single process.
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
    """Rank of this process and number of processes."""

    rank: int
    size: int

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def owns(self, number: int) -> bool:
        """Return whether this process computes a chunk."""
        return number % self.size == self.rank

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items of this process."""
        return items[self.rank :: self.size]

    def gather(self, embeddings: Sequence[Tensor], counts: Sequence[int], empty: Tensor) -> Tensor:
        """Return the embeddings of all chunks, in order.

        `counts` are the clouds per chunk; `empty` (0, D) provides width, dtype and device for
        processes without chunks.
        """
        if self.size == 1:
            return torch.cat(list(embeddings))
        gathered = empty.new_zeros(sum(counts), empty.shape[1])
        for part, own in zip(self.share(gathered.split(list(counts))), embeddings, strict=True):
            part.copy_(own)
        dist.all_reduce(gathered)
        return gathered

    def sum_gradients(self, model: PlaceModel) -> None:
        """Sum the gradients and average the batch statistics of all processes."""
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
        """Leave the process group at the end of a run.

        All leave together: gloo can abort a process whose peers still use the connection.
        """
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()


SINGLE_PROCESS = Processes(rank=0, size=1)


def join_processes() -> Processes:
    """Join the process group of torchrun; without torchrun, return a single process."""
    if 'WORLD_SIZE' not in os.environ:
        return SINGLE_PROCESS
    has_cuda = torch.cuda.is_available()
    if has_cuda:
        torch.cuda.set_device(int(os.environ.get('LOCAL_RANK', '0')))
    if not dist.is_initialized():
        dist.init_process_group('nccl' if has_cuda else 'gloo')
    return Processes(dist.get_rank(), dist.get_world_size())
