"""LiDAR odometry in a child process, for callers that it must not block.

Registering a scan takes up to a scan period and holds the GIL. If the child crashes or hangs it
is replaced, and a new segment starts at the last pose.
"""

from multiprocessing.connection import Connection
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import OdometryError, ScanError
from lpr_ros.core.geometry.odometry_jumps import OdometrySegment
from lpr_ros.core.odometry.config import LidarOdometryConfig
from lpr_ros.core.odometry.lidar_odometry import LidarOdometry, OdometryEstimate
from lpr_ros.core.processes import parent_connection, start_child

TIMEOUT_S = 60.0  # for one scan, or for the start of the process


class LidarOdometryProcess:
    """LiDAR odometry in a child process. `add` in one thread, `stop` in any."""

    def __init__(self, config: LidarOdometryConfig, timeout_s: float = TIMEOUT_S):
        self._config, self._timeout_s = config, timeout_s
        self._last = OdometryEstimate(np.eye(4), OdometrySegment())
        self._lock = threading.Lock()  # guards the lifetime of the process
        self._stopped = False
        self._start()

    @property
    def pid(self) -> int:
        """Process ID of the child."""
        return self._process.pid

    def add(
        self,
        stamp_ns: int,
        points: NDArray[np.float32],
        time_s: NDArray[np.float32] | None = None,
    ) -> OdometryEstimate:
        """Register the next scan, as `LidarOdometry.add`.

        Raise OdometryError if the child failed and was replaced.
        """
        # A watchdog instead of a timeout on the pipe, because sending can block too.
        watchdog = threading.Timer(self._timeout_s, self._process.kill)
        watchdog.start()
        try:
            self._connection.send((stamp_ns, points, time_s))
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            status = self._process.wait()
            reason = f'the LiDAR odometry process ended with status {status} at {stamp_ns} ns'
            self._replace(reason)
            raise OdometryError(f'{reason}; it was restarted') from error
        finally:
            watchdog.cancel()
        if isinstance(answer, tuple):
            raise ScanError(*answer)
        if isinstance(answer, str):
            raise OdometryError(answer)
        self._last = answer
        return self._last

    def stop(self) -> None:
        """Kill the child, even while it registers a scan."""
        with self._lock:
            self._stopped = True
            self._process.kill()
            self._process.wait()

    def _replace(self, reason: str) -> None:
        self._connection.close()
        segment = OdometrySegment(self._last.segment.number + 1, reason)
        self._last = OdometryEstimate(self._last.T_odom_sensor, segment)
        try:
            self._start()
        except OSError as error:  # out of file descriptors, processes or memory
            raise OdometryError(f'the LiDAR odometry process cannot start: {error}') from error

    def _start(self) -> None:
        """Start a child at the last pose, unless `stop` was called."""
        with self._lock:
            if not self._stopped:
                self._process, self._connection = start_child(__name__)
                self._connection.send((self._config, self._last.T_odom_sensor, self._last.segment))


def serve(connection: 'Connection[Any, Any]') -> None:
    """Register scans until the parent closes the connection."""
    try:
        odometry = LidarOdometry(*connection.recv())
        while True:
            scan = connection.recv()
            try:
                answer: OdometryEstimate | tuple[str, str] | str = odometry.add(*scan)
            except ScanError as error:
                answer = error.kind, str(error)
            except Exception as error:  # raised in the parent
                answer = f'{type(error).__name__}: {error}'
            connection.send(answer)
    except (EOFError, OSError):
        return


if __name__ == '__main__':
    serve(parent_connection())
