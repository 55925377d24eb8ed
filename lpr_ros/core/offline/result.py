"""Everything that is known after a drive: what files and report are made of.

It is put together by an offline run, or from what was recorded of an online one: the map, the
published loops, and as much of the rest as there is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.correction import Correction
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.pipeline import PipelineConfig, Step
from lpr_ros.core.records import LoopClosure, Match, Place


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one keyframe."""

    query_id: int
    matches: tuple[Match, ...]  # nearest first
    candidates: int  # of them, worth verifying
    rejected: tuple[int, ...] = ()  # of them, keyframes that geometry spoke against
    verified: LoopClosure | None = None  # accepted by geometry, whether trusted or not
    seconds: Mapping[str, float] = field(default_factory=dict)  # by stage

    @classmethod
    def of(cls, step: Step) -> 'Outcome':
        """Keep of a step what is small."""
        return cls(
            step.sighting.keyframe.id,
            step.sighting.matches,
            len(step.sighting.candidates),
            tuple(c.match.keyframe_id for c in step.verdict.rejected),
            step.verdict.verified,
            step.seconds,
        )


@dataclass(frozen=True)
class CheckpointNote:
    """Which weights were used, and on what terms."""

    path: str = ''
    fingerprint: str = ''
    licence: str = ''
    provenance: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DriveResult:
    """A drive with its keyframes, loops, corrected poses and, where known, the truth."""

    name: str
    database: PlaceDatabase  # old map and this drive
    loops: tuple[LoopClosure, ...]  # trusted, in order of arrival
    correction: Correction = field(default_factory=Correction)
    config: PipelineConfig = field(default_factory=PipelineConfig)
    first_id: int = 0  # keyframes before this one are an old map's
    outcomes: tuple[Outcome, ...] = ()  # of the keyframes of this drive
    T_world_sensor: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # truth, by id
    scans: int = 0  # read, the bad ones too
    drops: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # kind -> what was wrong
    duration_s: float = 0.0  # of the recording
    wall_s: float = 0.0  # that it took
    about: Mapping[str, str] = field(default_factory=dict)  # where the data is from
    checkpoint: CheckpointNote = field(default_factory=CheckpointNote)
    interrupted: bool = False

    @property
    def places(self) -> list[Place]:
        """The keyframes of this drive, in order."""
        return [self.database.place(i) for i in range(self.first_id, len(self.database))]

    @property
    def has_odometry(self) -> bool:
        """Whether this drive has any poses."""
        return any(place.T_odom_sensor is not None for place in self.places)

    @property
    def travelled_m(self) -> float:
        """Way of all sessions of this drive, by odometry."""
        ends = {place.session: place.travelled_m for place in self.places}
        return sum(ends.values())

    def dropped(self) -> int:
        """Count the scans left out; one whose verification failed is in the map."""
        return sum(len(texts) for kind, texts in self.drops.items() if kind != 'verification')
