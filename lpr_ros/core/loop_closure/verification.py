"""Geometric verification: decide whether a match is the same place, and find its pose.

A candidate is judged by physical evidence: how much upright structure of each cloud overlaps with
the other, and how much of it lies in the free space of the other (overlap.py). The number of
inliers alone is weak evidence: a registration that is off by 20 m can have thousands. Only
hopeless candidates are rejected here; belief.py decides how far the others are believed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.geometry.se3 import invert, rotation_angle_rad
from lpr_ros.core.loop_closure.covariance import estimate_covariance, systematic_covariance
from lpr_ros.core.loop_closure.global_registration import register_globally
from lpr_ros.core.loop_closure.overlap import (
    CloudOverlap,
    geometry_log_odds,
    measure_overlap,
)
from lpr_ros.core.loop_closure.registration import (
    PreparedCloud,
    Refinement,
    RegistrationConfig,
    prepare,
    refine,
)
from lpr_ros.core.types import Keyframe, LoopClosure, Match

STRATEGIES = ('none', 'gicp', 'full')
HALF_TURN = np.diag([-1.0, -1.0, 1.0, 1.0])
INITIAL_INLIER_SCALE = 3.0  # of the inlier distance, before refinement
SAME_POSE_M, SAME_POSE_RAD = 1.0, np.radians(5.0)  # refined poses closer than this are one
UNKNOWN_YAW_RAD = np.pi / np.sqrt(3.0)  # standard deviation of a uniformly distributed heading


@dataclass(frozen=True)
class VerificationConfig(Config):
    """How candidates are verified, and which are accepted."""

    strategy: str = option(
        'full',
        'Verification strategy. none: accept every candidate; gicp: refine initial guesses; '
        'full: also register globally',
        choices=STRATEGIES,
    )
    min_overlap: float = option(
        0.45,
        'Overlap below which a candidate is rejected, as a fraction of the upright points of '
        'either cloud',
        low=0.0,
        high=1.0,
    )
    max_free_space_violation: float = option(
        0.15,
        'Fraction of the upright points of one cloud that lie in the free space of the other, '
        'above which a candidate is rejected',
        low=0.0,
        high=1.0,
    )
    early_accept_violation: float = option(
        0.02,
        'Free-space violation at or below which an accepted pose ends the search for a better '
        'one, if earlier loop closures already say which place it is',
        low=0.0,
        high=1.0,
    )
    inlier_distance_m: float = option(
        1.0, 'Maximum distance between overlapping points', unit='m', low=0.05, high=5.0
    )
    min_inliers: int = option(100, 'Minimum number of GICP inliers of a loop closure', low=1)
    max_loop_distance_m: float = option(
        30.0, 'Maximum distance between the two keyframes of a loop closure', unit='m', low=0.0
    )
    min_sigma_m: float = option(
        0.002,
        'Constant part of the systematic position error of a loop closure, as a standard '
        'deviation; raise it for poor extrinsic calibration',
        unit='m',
        low=1e-6,
    )
    min_sigma_deg: float = option(
        0.005,
        'Constant part of the systematic rotation error of a loop closure, as a standard '
        'deviation; raise it for scans distorted by motion',
        unit='deg',
        low=1e-6,
    )
    unverified_sigma_m: float = option(
        5.0,
        'Position standard deviation of loop closures with strategy none',
        unit='m',
        low=0.1,
    )
    registration: RegistrationConfig = field(default_factory=RegistrationConfig)


class Strategy(Protocol):
    """Turns a match into a loop closure, or rejects it."""

    def verify(
        self,
        query: Keyframe,
        candidate: Keyframe,
        match: Match,
        T_guess: NDArray[np.float64] | None = None,
        *,
        thorough: bool = True,
    ) -> LoopClosure | None:
        """Return the best loop closure with its alternatives, or None.

        T_guess is an initial guess of T_match_query. `thorough` tries all guesses, even after one
        that fits very well: in repeated structure others fit too.
        """


class Verifier(Strategy, Protocol):
    """A strategy that can be reconfigured, in this process or another."""

    def configure(self, config: VerificationConfig) -> None:
        """Use new settings from the next candidate on."""


class InProcessVerifier:
    """Verifies in the calling thread with the configured strategy."""

    def __init__(self, config: VerificationConfig):
        self._config = config
        self._strategy = make_strategy(config)

    def configure(self, config: VerificationConfig) -> None:
        """Use new settings from the next candidate on."""
        if config != self._config:
            self._config, self._strategy = config, make_strategy(config)

    def verify(
        self,
        query: Keyframe,
        candidate: Keyframe,
        match: Match,
        T_guess: NDArray[np.float64] | None = None,
        *,
        thorough: bool = True,
    ) -> LoopClosure | None:
        """Return the best loop closure with its alternatives, or None.

        T_guess is an initial guess of T_match_query. `thorough` tries all guesses, even after one
        that fits very well: in repeated structure others fit too.
        """
        return self._strategy.verify(query, candidate, match, T_guess, thorough=thorough)


def make_strategy(config: VerificationConfig) -> Strategy:
    """Return the configured strategy."""
    return NoVerification(config) if config.strategy == 'none' else GeometricVerification(config)


class NoVerification:
    """Accepts every match: same place within a radius, heading unknown."""

    def __init__(self, config: VerificationConfig):
        sigma = [config.unverified_sigma_m] * 3 + [0.1, 0.1, UNKNOWN_YAW_RAD]
        self._covariance = np.diag(np.square(sigma))

    def verify(
        self,
        query: Keyframe,
        candidate: Keyframe,
        match: Match,
        T_guess: NDArray[np.float64] | None = None,
        *,
        thorough: bool = True,
    ) -> LoopClosure | None:
        """Return a loop closure with identity pose and a wide covariance."""
        return LoopClosure(
            query.id, candidate.id, np.eye(4), self._covariance.copy(), 0.0, 0, match
        )


class GeometricVerification:
    """Registers the two clouds from several initial guesses and returns the poses that agree."""

    def __init__(self, config: VerificationConfig):
        self._config = config
        # The last query: all of its candidates are verified one after another.
        self._query: tuple[NDArray[np.float32], PreparedCloud | None] | None = None

    def verify(
        self,
        query: Keyframe,
        candidate: Keyframe,
        match: Match,
        T_guess: NDArray[np.float64] | None = None,
        *,
        thorough: bool = True,
    ) -> LoopClosure | None:
        """Return the most likely loop closure with its alternatives, or None.

        In a row of identical houses the pose shifted by one house can be acceptable too. It is
        returned as an alternative, so that odometry and the way can tell them apart.
        """
        if self._query is None or not np.array_equal(self._query[0], query.points):
            self._query = query.points, prepare(query.points, self._config.registration)
        source = self._query[1]
        target = prepare(candidate.points, self._config.registration)
        if source is None or target is None:
            return None
        found: list[tuple[float, Refinement, CloudOverlap]] = []
        for T_initial in self._initial_guesses(target, source, query, candidate, T_guess):
            accepted = self._refine(target, source, T_initial)
            if accepted is None or any(
                _is_same_pose(accepted[0].T_target_source, f.T_target_source) for _, f, _ in found
            ):
                continue
            refined, overlap = accepted
            found.append((geometry_log_odds(overlap), refined, overlap))
            if (
                not thorough
                and overlap.free_space_violation <= self._config.early_accept_violation
            ):
                break
        loops = [
            LoopClosure(
                query.id,
                candidate.id,
                refined.T_target_source,
                self._covariance(target, source, refined),
                overlap.overlap_source,
                refined.inliers,
                match,
                log_odds,
            )
            for log_odds, refined, overlap in sorted(found, key=lambda x: -x[0])
        ]
        return replace(loops[0], alternatives=tuple(loops[1:])) if loops else None

    def _refine(
        self, target: PreparedCloud, source: PreparedCloud, T_initial: NDArray[np.float64]
    ) -> tuple[Refinement, CloudOverlap] | None:
        """Refine an initial guess; None if the clouds do not agree at the pose found."""
        if not self._is_worth_refining(target, source, T_initial):
            return None
        refined = refine(target, source, T_initial, self._config.registration)
        if refined is None or refined.inliers < self._config.min_inliers:
            return None
        overlap = measure_overlap(
            target, source, refined.T_target_source, self._config.inlier_distance_m
        )
        return (refined, overlap) if self._accepts(refined, overlap) else None

    def _covariance(
        self, target: PreparedCloud, source: PreparedCloud, refined: Refinement
    ) -> NDArray[np.float64]:
        registration = self._config.registration
        floor_rad = np.radians(self._config.min_sigma_deg)
        floor = np.diag(np.square([self._config.min_sigma_m] * 3 + [floor_rad] * 3))
        shown = estimate_covariance(
            target,
            source,
            refined,
            correspondence_m=registration.final_max_correspondence_m,
            step_m=0.5 * registration.voxel_m,
        )
        return floor + systematic_covariance(target, source, refined.T_target_source) + shown

    def _initial_guesses(
        self,
        target: PreparedCloud,
        source: PreparedCloud,
        query: Keyframe,
        candidate: Keyframe,
        T_guess: NDArray[np.float64] | None,
    ) -> Iterator[NDArray[np.float64]]:
        """Yield initial guesses of T_target_source, most likely and cheapest first."""
        T_known = T_guess if T_guess is not None else _odometry_between(candidate, query)
        if T_known is not None and np.isfinite(T_known).all():
            yield T_known
        if self._config.strategy == 'full':
            voxel_m = self._config.registration.search_voxel_m
            T_global = register_globally(target.sketch, source.sketch, voxel_m)
            if T_global is not None:
                yield T_global
        if self._config.strategy == 'gicp':
            yield from (np.eye(4), HALF_TURN)  # same and opposite direction of travel

    def _is_worth_refining(
        self, target: PreparedCloud, source: PreparedCloud, T_initial: NDArray[np.float64]
    ) -> bool:
        """Reject hopeless guesses early: refining takes ten times as long as this check."""
        distance_m = INITIAL_INLIER_SCALE * self._config.inlier_distance_m
        overlap = measure_overlap(target, source, T_initial, distance_m)
        return overlap.minimum >= 0.5 * self._config.min_overlap

    def _accepts(self, refined: Refinement, overlap: CloudOverlap) -> bool:
        return (
            overlap.minimum >= self._config.min_overlap
            and overlap.free_space_violation <= self._config.max_free_space_violation
            and float(np.linalg.norm(refined.T_target_source[:3, 3]))
            <= self._config.max_loop_distance_m
        )


def _is_same_pose(T_a: NDArray[np.float64], T_b: NDArray[np.float64]) -> bool:
    """Return whether two guesses converged to one pose."""
    change = invert(T_a) @ T_b
    return bool(
        np.linalg.norm(change[:3, 3]) < SAME_POSE_M and rotation_angle_rad(change) < SAME_POSE_RAD
    )


def _odometry_between(match: Keyframe, query: Keyframe) -> NDArray[np.float64] | None:
    """Return T_match_query from odometry; None without odometry or across sessions."""
    poses = (match.T_odom_sensor, query.T_odom_sensor)
    if match.session != query.session or poses[0] is None or poses[1] is None:
        return None
    T_match_query = invert(poses[0]) @ poses[1]
    return T_match_query if np.isfinite(T_match_query).all() else None
