"""The adapter interface, and changes of frame that adapters share."""

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import AdapterError
from lpr_ros.core.geometry.se3 import adjoint, invert, propagate
from lpr_ros.core.types import LoopClosure, Place


class Adapter(Protocol):
    """Forwards loop closures to one back-end; created when the node is configured."""

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Send one verified loop closure; AdapterError if the back-end cannot receive it."""

    def retract(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Take back a loop closure, with the arguments it was published with.

        AdapterError if the back-end may keep it.
        """

    def close(self) -> None:
        """Destroy the topics and services created on the node."""


def loop_between_base_poses(loop: LoopClosure, T_base_sensor: NDArray[np.float64]) -> LoopClosure:
    """Return the loop closure between base poses: back-ends do not know the sensor frame."""
    X = T_base_sensor
    return replace(
        loop,
        T_match_query=X @ loop.T_match_query @ invert(X),
        covariance=propagate(adjoint(X), loop.covariance),
    )


def require_same_session(query: Place, match: Place) -> None:
    """Raise AdapterError for a loop closure to another session, unknown to the back-end."""
    if query.session != match.session:
        raise AdapterError(
            f'keyframe {match.id} belongs to session {match.session!r}, expected '
            f'{query.session!r}: the back-end only knows the current session'
        )
