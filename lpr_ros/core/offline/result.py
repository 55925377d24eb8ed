"""The result of a drive, from which files and report are written.

It comes from an offline run, or is assembled from the map and loops of an online one, with the
other fields left empty.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.pipeline import PipelineConfig, Step
from lpr_ros.core.pose_graph.graph import Edge
from lpr_ros.core.types import LoopClosure, Match, Place, VerificationResult


@dataclass(frozen=True, eq=False)
class Correction:
    """The optimized pose graph."""

    poses: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # T_map_sensor by ID
    edges: tuple[Edge, ...] = ()  # odometry and loop closures
    rejected: tuple[tuple[int, int], ...] = ()  # (query, match) of loops that are outliers
    error: str = ''  # why there is none


@dataclass(frozen=True, eq=False)
class Outcome:
    """What happened to one keyframe."""

    query_id: int
    matches: tuple[Match, ...]  # nearest first
    candidates: int  # number of matches that passed the sequence filter
    rejected: tuple[int, ...] = ()  # candidates that failed geometric verification
    verified: LoopClosure | None = None  # passed geometric verification, consistent or not
    seconds: Mapping[str, float] = field(default_factory=dict)  # by stage
    excluded: tuple[int, ...] = ()  # candidates that are too far away by odometry

    @classmethod
    def of(cls, step: Step) -> 'Outcome':
        """Extract the outcome of a step, without descriptors and clouds."""
        return cls(
            step.keyframe_query.keyframe.id,
            step.keyframe_query.matches,
            len(step.keyframe_query.candidates),
            tuple(c.match.keyframe_id for c in step.result.rejected),
            step.result.verified,
            step.seconds,
            tuple(c.match.keyframe_id for c in step.result.excluded),
        )


class PublishedLoops:
    """The loop closures that stand after a sequence of results, and those that were taken back."""

    def __init__(self, results: Iterable[VerificationResult] = ()):
        self._standing: dict[object, LoopClosure] = {}
        self._retracted: dict[object, LoopClosure] = {}
        for result in results:
            self.add(result)

    def __len__(self) -> int:
        return len(self._standing)

    def add(self, result: VerificationResult) -> None:
        """Apply the next result."""
        for loop in result.retracted:
            self._standing.pop(loop.key, None)
            self._retracted[loop.key] = loop
        for loop in result.trusted:
            self._retracted.pop(loop.key, None)
            self._standing[loop.key] = loop

    @property
    def standing(self) -> tuple[LoopClosure, ...]:
        """Published and not taken back, in order of publication."""
        return tuple(self._standing.values())

    @property
    def retracted(self) -> tuple[LoopClosure, ...]:
        """Taken back and not published again, in order of retraction."""
        return tuple(self._retracted.values())


@dataclass(frozen=True)
class CheckpointNote:
    """The weights that were used, and their license."""

    path: str = ''
    fingerprint: str = ''
    license: str = ''
    provenance: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DriveResult:
    """A drive with its keyframes, loops, corrected poses and, if known, ground truth."""

    name: str
    database: PlaceDatabase  # existing map and this drive
    loops: tuple[LoopClosure, ...]  # that stand at the end, in order of publication
    correction: Correction = field(default_factory=Correction)
    config: PipelineConfig = field(default_factory=PipelineConfig)
    first_id: int = 0  # keyframes before this one belong to the existing map
    outcomes: tuple[Outcome, ...] = ()  # of the keyframes of this drive
    T_world_sensor: Mapping[int, NDArray[np.float64]] = field(
        default_factory=dict
    )  # ground truth by ID
    scans: int = 0  # including dropped ones
    drops: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # kind -> error messages
    duration_s: float = 0.0  # of the recording
    wall_s: float = 0.0  # processing time
    about: Mapping[str, str] = field(default_factory=dict)  # topics or files of the data
    checkpoint: CheckpointNote = field(default_factory=CheckpointNote)
    interrupted: bool = False
    retracted: tuple[LoopClosure, ...] = ()  # published and taken back
    sessions: Mapping[str, str] = field(default_factory=dict)  # of this drive: why each started

    @property
    def places(self) -> list[Place]:
        """The keyframes of this drive, in order."""
        return [self.database.place(i) for i in range(self.first_id, len(self.database))]

    @property
    def has_odometry(self) -> bool:
        """Whether any keyframe of this drive has odometry."""
        return any(place.T_odom_sensor is not None for place in self.places)

    @property
    def traveled_m(self) -> float:
        """Distance traveled in all sessions of this drive, from odometry."""
        ends = {place.session: place.traveled_m for place in self.places}
        return sum(ends.values())

    def dropped(self) -> int:
        """Return the number of dropped scans; a scan whose verification failed is in the map."""
        return sum(len(texts) for kind, texts in self.drops.items() if kind != 'verification')
