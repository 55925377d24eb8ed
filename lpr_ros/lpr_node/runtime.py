"""Everything that a configured lpr_node has and an unconfigured one does not."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from rclpy.node import Node
import torch

from lpr_ros.conversions.loops import KeyframePath
from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.loop_closure.worker_process import VerificationProcess
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.pipeline import Pipeline, load_database, new_database
from lpr_ros.core.resources import weights_path
from lpr_ros.core.retrieval.place_recognizer import FIRST_SESSION
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.connections import Connections
from lpr_ros.lpr_node.device_fallback import FallbackDescriptorExtractor
from lpr_ros.lpr_node.diagnostics import RuntimeStatus, progress
from lpr_ros.lpr_node.extrinsics import Extrinsic
from lpr_ros.lpr_node.heap_trim import HeapTrim
from lpr_ros.lpr_node.inputs import ScanReader
from lpr_ros.lpr_node.map_autosave import MapAutosave, SavedMap
from lpr_ros.lpr_node.odometry.source import OdometrySource
from lpr_ros.lpr_node.publishers import ResultPublisher, extend_path
from lpr_ros.lpr_node.workers import ScanWorkers
from lpr_ros.ros_utils.progress_log import ProgressLog

# Why a session starts.
MAP_LOADED, RESET = 'map loaded', 'reset'


class Drive:
    """One database and the workers that fill it; ~/reset and ~/load_map replace the whole."""

    def __init__(
        self,
        config: NodeConfig,
        extractor: FallbackDescriptorExtractor,
        verifier: VerificationProcess,
        connections: Connections,
        database: PlaceDatabase,
        session_reason: str,
    ):
        self.database = database
        self._verifier = verifier
        extrinsic = Extrinsic(
            config, connections.tf, partial(connections.events.warn, 'extrinsic')
        )
        self.reader = ScanReader(config, extrinsic)
        self.path = KeyframePath('')
        extend_path(self.path, database, strict=True)
        self.pipeline = Pipeline(
            config,
            extractor,
            database=database,
            verifier=verifier,
            session_reason=session_reason,
        )
        self.workers = ScanWorkers(
            self.pipeline,
            self.reader.read,
            ResultPublisher(connections.publishers, connections.adapters, database, extrinsic),
            connections.events,
            config.verification_queue_size,
        )
        self.workers.start()

    def reconfigure(self, config: NodeConfig) -> None:
        """Use changed settings from the next scan on."""
        self.reader.reconfigure(config)
        self.workers.reconfigure(config)

    def stop(self) -> None:
        """Stop the workers, even in the middle of a verification."""
        self.reader.odometry.close()
        self.workers.stop(self._verifier.interrupt)


class LprRuntime:
    """Weights, map and workers of a configured node."""

    def __init__(self, node: Node, config: NodeConfig, connections: Connections):
        self._config, self._connections = config, connections
        self._log = node.get_logger()
        self._heap_trim = HeapTrim()
        self._progress = ProgressLog(self._log)
        torch.set_num_threads(config.threads)
        weights = weights_path(config.weights)
        self._extractor = FallbackDescriptorExtractor(
            partial(_load_extractor, weights),
            config.device,
            fallback=config.device_fallback,
            warn=self._log.warning,
        )
        connections.configure(config)
        with ExitStack() as undo:
            self._map = MapAutosave(
                config,
                partial(connections.events.warn, 'map'),
                partial(connections.events.tell, 'map saved'),
            )
            undo.callback(self._map.release)
            self._verifier = VerificationProcess(
                config.verification, config.verification_timeout_s
            )
            undo.callback(self._verifier.stop)
            self._odometry = OdometrySource(node, config, connections)
            undo.callback(self._odometry.close)
            if config.load_map and self._map.exists:
                database, saved = self._read_map()
                self._drive = self._make_drive(database, MAP_LOADED)
                self._map.adopt(saved)
            else:
                database = new_database(config, self._extractor)
                self._drive = self._make_drive(database, FIRST_SESSION)
            self._connect_drive()
            undo.pop_all()
        self._log.info(
            f'ready: {weights} on {self._extractor.device}, '
            f'{len(self._drive.database)} keyframes in the map'
        )

    def activate(self) -> None:
        """Start processing clouds and odometry."""
        self._log.info(f'subscribed to {self._connections.inputs.activate(self._config)}')

    def deactivate(self) -> None:
        """Ignore further messages, and drop what is queued."""
        self._connections.inputs.deactivate()
        self._drive.workers.pause()

    def reconfigure(self, config: NodeConfig) -> None:
        """Use changed settings from the next scan on."""
        self._map.configure(config)
        self._config = config
        self._drive.reconfigure(config)

    def save_map(self) -> str:
        """Write all keyframes to map_path; return a summary."""
        return self._map.save(self._drive.database)

    def load_map(self) -> str:
        """Replace the database with map_path and start a new session; return a summary."""
        database, saved = self._read_map()
        self._replace_drive(database, MAP_LOADED)
        self._map.adopt(saved)
        return f'{len(database)} keyframes loaded from {self._config.map_path}'

    def reset(self) -> str:
        """Forget all keyframes and start a new session; return a summary."""
        self._map.wait()  # a save in progress reads the database
        count = len(self._drive.database)
        self._replace_drive(new_database(self._config, self._extractor), RESET)
        return f'{count} keyframes forgotten'

    def tick(self, now_ns: int) -> RuntimeStatus:
        """Publish path and markers, save the map if due; return the status."""
        self._odometry.update()
        self._connections.publishers.publish_path()
        self._connections.publishers.publish_markers(now_ns)
        database = self._drive.database
        self._map.save_if_due(database)
        self._heap_trim.trim_if_due()
        self._progress.tick(progress(self._connections.events.statistics.counts()))
        return RuntimeStatus(
            device=self._extractor.device,
            session=self._drive.pipeline.recognizer.session,
            keyframes=len(database),
            sessions=len(database.sessions),
            known_wrong_matches=self._drive.pipeline.recognizer.known_wrong_matches,
            database_bytes=database.memory_bytes(),
            verification_queue=self._drive.workers.queue_length,
            backends=self._connections.adapters.names,
            map=self._map.status(),
            silence=self._connections.inputs.tick(),
            odometry_source=self._odometry.choice,
        )

    def close(self) -> None:
        """Save the map and release everything."""
        self._connections.inputs.disconnect()
        self._odometry.close()
        self._stop_quietly(self._drive)
        self._verifier.stop()
        self._map.close(self._drive.database)
        self._connections.publishers.clear()
        self._drive.pipeline.close()

    def _make_drive(self, database: PlaceDatabase, session_reason: str) -> Drive:
        """Return a drive whose workers wait for scans; a failure releases the database."""
        try:
            return Drive(
                self._config,
                self._extractor,
                self._verifier,
                self._connections,
                database,
                session_reason,
            )
        except BaseException:
            database.close()
            raise

    def _replace_drive(self, database: PlaceDatabase, session_reason: str) -> None:
        """Switch to another database. Everything that can fail comes before the switch."""
        new = self._make_drive(database, session_reason)
        old, self._drive = self._drive, new
        self._stop_quietly(old)
        self._connect_drive()
        old.pipeline.close()

    def _connect_drive(self) -> None:
        drive = self._drive
        drive.reconfigure(self._config)  # settings may have changed while it was made
        self._connections.publishers.show(drive.database, drive.path)
        self._connections.inputs.connect(drive.reader, drive.workers.put)
        self._connections.publishers.publish_path()

    def _stop_quietly(self, drive: Drive) -> None:
        events = self._connections.events
        events.is_muted = True  # interrupted work is no news
        try:
            drive.stop()
        finally:
            events.is_muted = False

    def _read_map(self) -> tuple[PlaceDatabase, SavedMap]:
        return self._map.load(
            partial(load_database, config=self._config, extractor=self._extractor)
        )


def _load_extractor(path: Path, device: str) -> NetworkDescriptorExtractor:
    """Load the network and run it once: the first run takes seconds, as code is compiled."""
    extractor = NetworkDescriptorExtractor.load(path, device=device)
    rng = np.random.default_rng(0)
    azimuth = rng.uniform(0.0, 2.0 * np.pi, 5000)
    distance = rng.uniform(5.0, 20.0, 5000)
    height = rng.uniform(-1.5, 3.0, 5000)
    points = np.stack([distance * np.cos(azimuth), distance * np.sin(azimuth), height], axis=1)
    extractor.describe(points.astype(np.float32))
    return extractor
