"""What an adapter is, and what several of them need."""

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import BackendError
from lpr_ros.core.geometry import invert
from lpr_ros.core.records import LoopClosure, Place
from lpr_ros.core.tangent import adjoint, propagate


class Adapter(Protocol):
    """Hands loops to one back-end; made when the node is configured."""

    def publish(
        self, loop: LoopClosure, query: Place, match: Place, T_base_sensor: NDArray[np.float64]
    ) -> None:
        """Hand over one verified loop; BackendError says why the back-end cannot take it."""

    def close(self) -> None:
        """Take the topics and services off the node."""


def seen_from_base(loop: LoopClosure, T_base_sensor: NDArray[np.float64]) -> LoopClosure:
    """Return the loop between the poses of the robot's base: back-ends know nothing of sensors."""
    X = T_base_sensor
    return replace(
        loop,
        T_match_query=X @ loop.T_match_query @ invert(X),
        covariance=propagate(adjoint(X), loop.covariance),
    )


def seen_by_one_sensor(
    loop: LoopClosure,
    query: Place,
    T_base_query: NDArray[np.float64],
    T_base_match: NDArray[np.float64],
) -> tuple[LoopClosure, Place]:
    """Return loop and query as if the sensor that saw the match had seen the query too.

    A robot may have several LiDARs; `T_base_*` is where those of the two ends sit.
    """
    D = invert(T_base_query) @ T_base_match  # T_query_other
    T = query.T_odom_sensor
    moved = replace(
        loop,
        T_match_query=loop.T_match_query @ D,
        covariance=propagate(adjoint(invert(D)), loop.covariance),
    )
    return moved, replace(query, T_odom_sensor=None if T is None else T @ D)


def refuse_other_session(query: Place, match: Place) -> None:
    """Raise where a back-end that lives for one run would look for a place of another one."""
    if query.session != match.session:
        raise BackendError(
            f'keyframe {match.id} is of the session {match.session!r}, expected '
            f'{query.session!r}: the back-end knows this run only'
        )
