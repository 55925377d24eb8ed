"""Scans in, loop closures out: the whole way of the data, the same online and offline."""

from dataclasses import dataclass, field
from typing import Protocol

from lpr_ros.core.config import Config, option, refuse_fixed
from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.database_config import DatabaseConfig
from lpr_ros.core.keyframes import KeyframeConfig
from lpr_ros.core.loop_closer import LoopCloser, Verdict
from lpr_ros.core.pairwise import PairwiseConfig
from lpr_ros.core.recogniser import Describes, PlaceRecogniser, Sighting
from lpr_ros.core.records import Scan
from lpr_ros.core.support import SupportConfig
from lpr_ros.core.verification import VerificationConfig


@dataclass(frozen=True)
class PipelineConfig(Config):
    """Every setting between a scan and a loop closure."""

    candidates: int = option(2, 'most candidates of a keyframe that are verified', low=1, high=100)
    keyframes: KeyframeConfig = field(default_factory=KeyframeConfig)
    database: DatabaseConfig = field(default_factory=DatabaseConfig)
    support: SupportConfig = field(default_factory=SupportConfig)
    verification: VerificationConfig = field(default_factory=VerificationConfig)
    pairwise: PairwiseConfig = field(default_factory=PairwiseConfig)


@dataclass(frozen=True, eq=False)
class Step:
    """What one keyframe brought."""

    sighting: Sighting
    verdict: Verdict

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage."""
        return self.sighting.seconds | self.verdict.seconds


class Closes(Protocol):
    """What the pipeline needs of a loop closer: in this process or in another."""

    def close(self, sighting: Sighting) -> Verdict:
        """Verify the candidates."""

    def configure(
        self, verification: VerificationConfig, pairwise: PairwiseConfig, verified: int
    ) -> None:
        """Take new settings."""


class Pipeline:
    """Recogniser and closer on one database.

    `add` runs both in the caller's thread. The node runs them in two, its closer in a process of
    its own, so that verification does not hold back description: each half is for one thread, and
    a sighting carries all that the closer needs.
    """

    def __init__(
        self,
        config: PipelineConfig,
        describer: Describes,
        *,
        database: PlaceDatabase | None = None,
        closer: Closes | None = None,
        session: str = 'robot',
    ):
        self.config = config
        self.database = new_database(config, describer) if database is None else database
        self.recogniser = PlaceRecogniser(
            config.keyframes,
            config.support,
            describer,
            self.database,
            session,
            config.pairwise.odometry.jump_m,
        )
        if closer is None:
            closer = LoopCloser(config.verification, config.pairwise, config.candidates)
        self.closer = closer

    def add(self, scan: Scan) -> Step | None:
        """Return what the scan brought if it completes a keyframe; ScanError leaves it out."""
        sighting = self.recogniser.add(scan)
        return None if sighting is None else Step(sighting, self.closer.close(sighting))

    def reconfigure(self, config: PipelineConfig) -> None:
        """Take new settings from the next scan on; ConfigError names one that cannot change."""
        refuse_fixed(self.config, config)
        self.recogniser.keyframer.config = config.keyframes
        self.recogniser.support.config = config.support
        self.recogniser.jump_m = config.pairwise.odometry.jump_m
        self.database.config = config.database
        self.closer.configure(config.verification, config.pairwise, config.candidates)
        self.config = config

    def close(self) -> None:
        """Release threads and files."""
        self.database.close()


def new_database(config: PipelineConfig, describer: Describes) -> PlaceDatabase:
    """Return an empty database for the descriptors of this describer."""
    return PlaceDatabase(
        config.database,
        describer.dim,
        fingerprint=describer.fingerprint,
        calibration=describer.calibration,
    )
