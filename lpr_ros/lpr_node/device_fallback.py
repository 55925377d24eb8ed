"""A descriptor extractor that falls back to the CPU if its device is missing or fails."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import BackendError
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor


class FallbackDescriptorExtractor:
    """Runs the network on a device, and on the CPU after the first failure of that device."""

    def __init__(
        self,
        load: Callable[[str], NetworkDescriptorExtractor],
        device: str,
        *,
        fallback: bool,
        warn: Callable[[str], None],
    ):
        self._load, self._fallback, self._warn = load, fallback, warn
        try:
            self._extractor = load(device)
        except (BackendError, RuntimeError) as error:  # torch raises RuntimeError for any failure
            if not fallback or device == 'cpu':
                raise BackendError(f'device {device!r}: {error}') from error
            self._move_to_cpu(error)
        self.dim = self._extractor.dim
        self.fingerprint = self._extractor.fingerprint

    @property
    def device(self) -> str:
        """The device in use."""
        return str(self._extractor.device)

    def describe(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the (D,) descriptor of (N, 3) points."""
        try:
            return self._extractor.describe(points)
        except RuntimeError as error:
            if not self._fallback or self.device == 'cpu':
                raise
            self._move_to_cpu(error)
            return self._extractor.describe(points)

    def _move_to_cpu(self, error: Exception) -> None:
        """Load again from the file: weights on a lost device cannot be read back."""
        self._warn(f'device failed, running the network on the CPU: {error}')
        self._extractor = self._load('cpu')
