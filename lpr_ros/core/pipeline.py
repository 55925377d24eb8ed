"""Scans in, loop closures out: the whole pipeline, the same online and offline.

scan -> keyframe -> descriptor -> matches -> candidates    retrieval.PlaceRecognizer
candidates -> verified loops -> believed loops             loop_closure.LoopCloser

Both halves share one PlaceDatabase. This is the only file that knows both.
"""

from dataclasses import dataclass, field
from pathlib import Path

from lpr_ros.core.config import Config, check_immutable, option
from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.loop_closure.belief import BeliefConfig
from lpr_ros.core.loop_closure.loop_closer import LoopCloser, LoopClosureConfig
from lpr_ros.core.loop_closure.verification import VerificationConfig, Verifier
from lpr_ros.core.odometry.config import LidarOdometryConfig
from lpr_ros.core.retrieval.keyframing import KeyframeConfig
from lpr_ros.core.retrieval.place_recognizer import (
    FIRST_SESSION,
    PlaceRecognizer,
    SessionConfig,
)
from lpr_ros.core.retrieval.sequence_filter import SequenceFilterConfig
from lpr_ros.core.types import DescriptorExtractor, KeyframeQuery, Scan, VerificationResult


@dataclass(frozen=True)
class PipelineConfig(Config):
    """Every setting between a scan and a loop closure."""

    max_candidates: int = option(
        2, 'Maximum number of candidates verified per keyframe', low=1, high=100
    )
    session: SessionConfig = field(default_factory=SessionConfig)
    keyframes: KeyframeConfig = field(default_factory=KeyframeConfig)
    database: DatabaseConfig = field(default_factory=DatabaseConfig)
    sequence: SequenceFilterConfig = field(default_factory=SequenceFilterConfig)
    verification: VerificationConfig = field(default_factory=VerificationConfig)
    belief: BeliefConfig = field(default_factory=BeliefConfig)
    odometry_noise: OdometryNoiseConfig = field(default_factory=OdometryNoiseConfig)
    lidar_odometry: LidarOdometryConfig = field(default_factory=LidarOdometryConfig)

    @property
    def loop_closure(self) -> LoopClosureConfig:
        """The settings of the second half."""
        return LoopClosureConfig(
            self.verification, self.belief, self.odometry_noise, self.max_candidates
        )


@dataclass(frozen=True, eq=False)
class Step:
    """The outcome of one keyframe: what was retrieved, and what was verified."""

    keyframe_query: KeyframeQuery
    result: VerificationResult

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage."""
        return self.keyframe_query.seconds | self.result.seconds


class Pipeline:
    """A place recognizer and a loop closer on one database.

    `add` runs both halves in the caller's thread. The node gives each half a thread of its own and
    verifies in another process, so that verification never delays description. A KeyframeQuery
    carries everything the second half needs.
    """

    def __init__(
        self,
        config: PipelineConfig,
        extractor: DescriptorExtractor,
        *,
        database: PlaceDatabase | None = None,
        verifier: Verifier | None = None,
        session_reason: str = FIRST_SESSION,
    ):
        self.config = config
        self.database = new_database(config, extractor) if database is None else database
        self.recognizer = PlaceRecognizer(
            config.session,
            config.keyframes,
            config.sequence,
            config.odometry_noise,
            extractor,
            self.database,
            session_reason,
        )
        self.loop_closer = LoopCloser(config.loop_closure, verifier)

    def add(self, scan: Scan) -> Step | None:
        """Run both halves on one scan; return a Step if it completed a keyframe."""
        keyframe_query = self.recognize(scan)
        if keyframe_query is None:
            return None
        return Step(keyframe_query, self.verify(keyframe_query))

    def recognize(self, scan: Scan) -> KeyframeQuery | None:
        """Run the first half: if the scan completes a keyframe, return it with its candidates.

        ScanError: the scan was skipped, and the pipeline is ready for the next one.
        """
        return self.recognizer.add(scan)

    def verify(self, keyframe_query: KeyframeQuery) -> VerificationResult:
        """Run the second half: verify the candidates; return the loops to publish.

        VerificationError: the verifier failed, and the pipeline is ready for the next keyframe.
        """
        return self.loop_closer.verify_candidates(keyframe_query)

    def reconfigure(self, config: PipelineConfig) -> None:
        """Use new settings from the next scan on; ConfigError names one that cannot change."""
        check_immutable(self.config, config)
        self.recognizer.configure(
            config.session, config.keyframes, config.sequence, config.odometry_noise
        )
        self.database.config = config.database
        self.loop_closer.configure(config.loop_closure)
        self.config = config

    def close(self) -> None:
        """Release threads and files."""
        self.database.close()


def new_database(config: PipelineConfig, extractor: DescriptorExtractor) -> PlaceDatabase:
    """Return an empty database for the descriptors of this extractor."""
    return PlaceDatabase(config.database, extractor.dim, fingerprint=extractor.fingerprint)


def load_database(
    path: Path, config: PipelineConfig, extractor: DescriptorExtractor
) -> PlaceDatabase:
    """Load a map made with the weights of this extractor; MapError otherwise."""
    return PlaceDatabase.load(
        path,
        config.database,
        fingerprint=extractor.fingerprint,
        dim=extractor.dim,
    )
