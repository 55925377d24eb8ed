"""The state of a training run on disk, protected by a SHA-256 digest.

A file is MAGIC, the digest of the payload, and the payload as written by torch.save. torch.save
stores no checksum that torch.load verifies, so damaged tensors would otherwise load silently.
"""

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from lpr_ros.core.errors import CheckpointError, error_text
from lpr_ros.core.files import atomic_file, open_regular

MAGIC = b'lpr training state 1\n'
DIGEST_BYTES = hashlib.sha256().digest_size


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the state file atomically."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    with atomic_file(path) as partial, partial.open('wb') as stream:
        stream.write(MAGIC + hashlib.sha256(payload).digest())
        stream.write(payload)


def read_state(path: Path) -> dict[str, Any]:
    """Read a state; raise CheckpointError if it is missing, damaged or no state file."""
    try:
        with open_regular(path) as stream:
            header = stream.read(len(MAGIC) + DIGEST_BYTES)
            payload = stream.read()
    except FileNotFoundError as error:
        raise CheckpointError(f'{path}: no training state to resume from') from error
    except OSError as error:
        raise CheckpointError(f'{path}: cannot be read: {error.strerror}') from error
    if not header.startswith(MAGIC):
        raise CheckpointError(
            f'{path}: expected a training state starting with {MAGIC!r}, got '
            f'{header[: len(MAGIC)]!r}; start a new run in another folder'
        )
    expected, actual = header[len(MAGIC) :], hashlib.sha256(payload).digest()
    if actual != expected:
        raise CheckpointError(
            f'{path}: damaged: SHA-256 is {actual.hex()}, expected {expected.hex()}; start a new '
            'run, with --init last.safetensors of this one to keep its weights'
        )
    try:
        # weights_only: a state from an untrusted source must not run code.
        state: dict[str, Any] = torch.load(
            io.BytesIO(payload), map_location='cpu', weights_only=True
        )
    except Exception as error:  # the unpickler raises anything
        raise CheckpointError(f'{path}: not a training state: {error_text(error)}') from error
    return state
