"""Verification of a match: whether it is the same place, and where in it the query is.

A verifier takes two keyframes and gives a loop closure or None. Accepted is what physical
quantities support: enough of what stands upright in either cloud is explained by the other, and
neither saw through what the other shows (agreement.py). The number of inliers alone says little: a
registration 20 m wrong can have thousands.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.agreement import Agreement, measure_agreement
from lpr_ros.core.config import Config, option
from lpr_ros.core.geometry import invert
from lpr_ros.core.records import Keyframe, LoopClosure, Match
from lpr_ros.core.registration import (
    Prepared,
    Refinement,
    RegistrationConfig,
    prepare,
    refine,
    register_globally,
)
from lpr_ros.core.tangent import propagate

STRATEGIES = ('none', 'gicp', 'full')
HALF_TURN = np.diag([-1.0, -1.0, 1.0, 1.0])
ROUGH = 3.0  # a pose not yet refined may be off by this many times more than a refined one
UNKNOWN_YAW_RAD = np.pi / np.sqrt(3.0)  # standard deviation of a heading that may be any


@dataclass(frozen=True)
class VerificationConfig(Config):
    """How a match is verified and what is accepted; thresholds are measured (README)."""

    strategy: str = option(
        'full', 'none takes every match; gicp needs a guess; full finds any pose',
        choices=STRATEGIES,
    )  # fmt: skip
    overlap: float = option(
        0.45, 'share of each cloud that the other must explain', low=0.0, high=1.0
    )
    seen_through: float = option(
        0.06, 'share of one cloud that the other may see through', low=0.0, high=1.0
    )
    clear: float = option(
        0.02, 'share seen through up to which no better pose is looked for', low=0.0, high=1.0
    )
    near_m: float = option(1.0, 'a point explains another within', unit='m', low=0.05, high=5.0)
    fewest_inliers: int = option(100, 'points that the refinement must join', low=1)
    farthest_m: float = option(30.0, 'keyframes farther apart are no loop', unit='m', low=0.0)
    thickness_scale: float = option(
        140.0, 'of the covariance of the refinement, for surfaces one metre thick', unit='1/m^2',
        low=0.0,
    )  # fmt: skip
    tilt_scale: float = option(
        4.0, 'by which it is too small for roll and pitch besides: few beams bind them', low=0.0
    )
    least_sigma_m: float = option(0.002, 'no position is better', unit='m', low=1e-6)
    least_sigma_deg: float = option(0.005, 'no angle is better', unit='deg', low=1e-6)
    place_radius_m: float = option(
        5.0, 'sigma of the position of an unverified match', unit='m', low=0.1
    )
    registration: RegistrationConfig = field(default_factory=RegistrationConfig)


class Verifier(Protocol):
    """Turns a match into a loop closure, or refuses it."""

    def verify(
        self,
        query: Keyframe,
        candidate: Keyframe,
        match: Match,
        T_guess: NDArray[np.float64] | None = None,
    ) -> LoopClosure | None:
        """Return the loop closure, or None; T_guess is T_match_query where something knows it."""


class NoVerifier:
    """Takes every match: the same place within a radius, the heading unknown."""

    def __init__(self, config: VerificationConfig):
        sigma = [config.place_radius_m] * 3 + [0.1, 0.1, UNKNOWN_YAW_RAD]
        self._covariance = np.diag(np.square(sigma))

    def verify(
        self,
        query: Keyframe,
        candidate: Keyframe,
        match: Match,
        T_guess: NDArray[np.float64] | None = None,
    ) -> LoopClosure | None:
        """Return a loop closure that claims nothing but the place."""
        return LoopClosure(
            query.id, candidate.id, np.eye(4), self._covariance.copy(), 0.0, 0, match
        )


class GeometricVerifier:
    """Registers the two clouds and accepts what agrees; with a search or from guesses only."""

    def __init__(self, config: VerificationConfig):
        self._config = config

    def verify(
        self,
        query: Keyframe,
        candidate: Keyframe,
        match: Match,
        T_guess: NDArray[np.float64] | None = None,
    ) -> LoopClosure | None:
        """Return the loop closure of the hypothesis that least speaks against, or None.

        In a row of equal houses the pose one house on is acceptable too: only a pose with next to
        nothing against it ends the search.
        """
        source = prepare(query.points, self._config.registration)
        target = prepare(candidate.points, self._config.registration)
        if source is None or target is None:
            return None
        thickness_m = 0.5 * (source.thickness_m + target.thickness_m)
        best: tuple[Refinement, Agreement] | None = None
        for T_start in self._hypotheses(target, source, query, candidate, T_guess):
            if not self._is_worth_refining(target, source, T_start):
                continue
            found = refine(target, source, T_start, self._config.registration)
            if found is None or found.inliers < self._config.fewest_inliers:
                continue
            agreement = measure_agreement(
                target, source, found.T_target_source, self._config.near_m
            )
            if not self._accepts(found, agreement):
                continue
            if best is None or agreement.seen_through < best[1].seen_through:
                best = (found, agreement)
            if best[1].seen_through <= self._config.clear:
                break
        if best is None:
            return None
        found, agreement = best
        return LoopClosure(
            query.id,
            candidate.id,
            found.T_target_source,
            honest_covariance(found.information, thickness_m, self._config),
            agreement.overlap_source,
            found.inliers,
            match,
        )

    def _hypotheses(
        self,
        target: Prepared,
        source: Prepared,
        query: Keyframe,
        candidate: Keyframe,
        T_guess: NDArray[np.float64] | None,
    ) -> Iterator[NDArray[np.float64]]:
        """Yield poses to refine, the likeliest and cheapest first."""
        T_known = T_guess if T_guess is not None else odometry_between(candidate, query)
        if T_known is not None and np.isfinite(T_known).all():
            yield T_known
        if self._config.strategy == 'full':
            voxel_m = self._config.registration.search_voxel_m
            found = register_globally(target.sketch, source.sketch, voxel_m)
            if found is not None:
                yield found.T_target_source
        if self._config.strategy == 'gicp':
            yield from (np.eye(4), HALF_TURN)  # the same lane, and the opposite one

    def _is_worth_refining(
        self, target: Prepared, source: Prepared, T_start: NDArray[np.float64]
    ) -> bool:
        """Leave out what is hopeless: refining it takes ten times as long as seeing this."""
        rough = measure_agreement(target, source, T_start, ROUGH * self._config.near_m)
        return rough.overlap >= 0.5 * self._config.overlap

    def _accepts(self, found: Refinement, agreement: Agreement) -> bool:
        return (
            agreement.overlap >= self._config.overlap
            and agreement.seen_through <= self._config.seen_through
            and float(np.linalg.norm(found.T_target_source[:3, 3])) <= self._config.farthest_m
        )


def honest_covariance(
    information: NDArray[np.float64], thickness_m: float, config: VerificationConfig
) -> NDArray[np.float64]:
    """Scale the refinement's covariance to errors really made, and never below a floor.

    The Hessian takes every surface for a thin plane and every point for a measurement of its own.
    Neighbouring points are wrong together, and on leaves, where no plane is, by as much as these
    lie deep: errors grow with the thickness of what is seen. In 28 simulated drives, streets and
    forests, 16 and 64 beams, this one number leaves the squared error 0.6 to 1.7 times what is
    claimed; how well the points fit left 0.3 to 4.8. Small motions on the right, x y z roll pitch
    yaw.
    """
    floor_rad = np.radians(config.least_sigma_deg)
    floor = np.diag(np.square([config.least_sigma_m] * 3 + [floor_rad] * 3))
    scale = config.thickness_scale * thickness_m**2
    # Finite, whatever the Hessian. It gives every point a little say along its surface too: a
    # direction which nothing binds, such as along a bare corridor, still comes out too sure.
    values, vectors = np.linalg.eigh(information)
    variance = scale / np.maximum(values, 1e-6)
    stretch = np.diag([1.0, 1.0, 1.0, *[np.sqrt(config.tilt_scale)] * 2, 1.0])
    covariance: NDArray[np.float64] = propagate(stretch, (vectors * variance) @ vectors.T) + floor
    return covariance


def odometry_between(match: Keyframe, query: Keyframe) -> NDArray[np.float64] | None:
    """Return T_match_query as odometry has it; None without it or between sessions."""
    poses = (match.T_odom_sensor, query.T_odom_sensor)
    if match.session != query.session or poses[0] is None or poses[1] is None:
        return None
    T_match_query = invert(poses[0]) @ poses[1]
    return T_match_query if np.isfinite(T_match_query).all() else None


def make_verifier(config: VerificationConfig) -> Verifier:
    """Build the verifier that the configuration names."""
    return NoVerifier(config) if config.strategy == 'none' else GeometricVerifier(config)
