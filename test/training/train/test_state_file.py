"""The state of a training run: round trip, and damage of any byte is detected."""

import numpy as np
import pytest
import torch

from lpr_ros.core.errors import CheckpointError
from lpr_training.train.state_file import MAGIC, read_state, write_state


@pytest.fixture
def path(tmp_path):
    generator = torch.Generator().manual_seed(0)
    state = {'epoch': 3, 'model': {'weight': torch.randn(64, 8, generator=generator)}}
    write_state(tmp_path / 'state.pt', state)
    return tmp_path / 'state.pt'


def test_state_survives_the_round_trip(path):
    state = read_state(path)
    assert state['epoch'] == 3
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(state['model']['weight'], torch.randn(64, 8, generator=generator))


def test_a_single_flipped_byte_is_detected(path):
    """Without the digest, most of these states load with other tensors."""
    data = path.read_bytes()
    for position in np.linspace(0, len(data) - 1, 200).astype(int):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r'damaged: SHA-256|expected a training state'):
            read_state(path)


@pytest.mark.parametrize('length', [0, 10, len(MAGIC) + 8, -1])
def test_a_truncated_state_is_detected(path, length):
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r'damaged: SHA-256|expected a training state'):
        read_state(path)


def test_a_missing_state_is_reported(tmp_path):
    with pytest.raises(CheckpointError, match='no training state to resume from'):
        read_state(tmp_path / 'state.pt')
