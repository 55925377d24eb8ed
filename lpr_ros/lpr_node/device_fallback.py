"""A describer that goes on with the CPU when its device is not there, lost or out of memory."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import BackendError
from lpr_ros.core.model.describer import Describer


class SafeDescriber:
    """Describes on a device; on the first failure of one that is not the CPU, on the CPU."""

    def __init__(
        self,
        load: Callable[[str], Describer],
        device: str,
        *,
        fallback: bool,
        warn: Callable[[str], None],
    ):
        self._load, self._fallback, self._warn = load, fallback, warn
        try:
            self._describer = load(device)
        except (BackendError, RuntimeError) as error:  # torch raises RuntimeError of all kinds
            if not fallback or device == 'cpu':
                raise BackendError(f'device {device!r}: {error}') from error
            self._move_to_cpu(error)
        self.dim = self._describer.dim
        self.fingerprint = self._describer.fingerprint
        self.calibration = self._describer.calibration

    @property
    def device(self) -> str:
        """Where the network runs now."""
        return str(self._describer.device)

    def describe(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the (D,) descriptor of (N, 3) points."""
        try:
            return self._describer.describe(points)
        except RuntimeError as error:
            if not self._fallback or self.device == 'cpu':
                raise
            self._move_to_cpu(error)
            return self._describer.describe(points)

    def _move_to_cpu(self, error: Exception) -> None:
        """Load anew: the weights on a lost device cannot be read back."""
        self._warn(f'the network goes on with the CPU, as its device failed: {error}')
        self._describer = self._load('cpu')
