"""The loop closer in a process of its own, for who must not wait while it works.

The registration libraries hold the lock of the interpreter while they compute, 0.5 s at a time:
in a thread they would stop description and every callback of a node. And what they do to the
process, such as ending it, never coming back or keeping memory, they do to this one only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from lpr_ros.core.errors import VerificationError
from lpr_ros.core.loop_closer import LoopCloser, Verdict
from lpr_ros.core.pairwise import PairwiseConfig
from lpr_ros.core.recogniser import Sighting
from lpr_ros.core.verification import VerificationConfig

NICENESS = 5  # where cores are short, describing the next scan comes first
START_S = 60.0  # that a new process has besides: on a busy machine it is not there at once
# kiss-matcher 1.0.2 never gives back 0.02 to 0.5 MB of every search: after so many verifications
# another process takes over.
RENEWED_AFTER = 300


class CloserProcess:
    """A LoopCloser elsewhere. `close` is for one thread; the rest may be called by any."""

    def __init__(
        self,
        verification: VerificationConfig,
        pairwise: PairwiseConfig,
        verified: int,
        timeout_s: float = 60.0,
        renewed_after: int = RENEWED_AFTER,
    ):
        self.timeout_s = timeout_s  # of one sighting
        self._renewed_after = renewed_after
        self.configure(verification, pairwise, verified)
        self._lock = threading.Lock()  # over the life of the process
        self._stopped = False
        self._has_answered = False
        self._start()

    def configure(
        self, verification: VerificationConfig, pairwise: PairwiseConfig, verified: int
    ) -> None:
        """Take new settings from the next sighting on; what was found so far stays."""
        self._settings = (verification, pairwise, verified)

    def close(self, sighting: Sighting) -> Verdict:
        """Verify the candidates; VerificationError where the process failed and began anew."""
        if not sighting.candidates:
            return Verdict(sighting.keyframe.id)  # not worth the way there
        # Killed rather than waited for with a timeout: sending may hang as well as the answer.
        is_full = self._verifications >= self._renewed_after
        is_new = is_full or not self._has_answered
        allowed_s = self.timeout_s + (START_S if is_new else 0.0)
        watchdog = self._watchdog(allowed_s)
        began_s = time.monotonic()
        try:
            if is_full:
                self._renew()
                watchdog.cancel()
                watchdog = self._watchdog(allowed_s)  # of the new process
            self._connection.send((self._settings, sighting))
            answer = self._connection.recv()
            self._has_answered = True
        except (EOFError, OSError) as error:
            status = self._process.wait()
            self._connection.close()
            self._start()
            raise VerificationError(
                f'keyframe {sighting.keyframe.id}: verification ended with status {status} after '
                f'{time.monotonic() - began_s:.1f} s, expected an answer within {allowed_s} s; '
                'its candidates are lost, a new process takes the next ones'
            ) from error
        finally:
            watchdog.cancel()
        if isinstance(answer, Verdict):
            self._verifications += len(answer.rejected) + (answer.verified is not None)
            return answer
        raise VerificationError(f'keyframe {sighting.keyframe.id}: {answer}')

    @property
    def pid(self) -> int:
        """Id of the process that verifies now."""
        return self._process.pid

    def stop(self) -> None:
        """End the process at once, also in the middle of a verification."""
        with self._lock:
            self._stopped = True
            self._process.kill()
            self._process.wait()

    def _watchdog(self, allowed_s: float) -> threading.Timer:
        """Have the process of now killed when the time is over."""
        watchdog = threading.Timer(allowed_s, self._process.kill)
        watchdog.start()
        return watchdog

    def _renew(self) -> None:
        """Have another process go on with what this one knows."""
        self._connection.send(None)
        closer = self._connection.recv()
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._start()
        self._connection.send(closer)

    def _start(self) -> None:
        """Begin a process, unless they were ended."""
        with self._lock:
            if self._stopped:
                return
            self._has_answered = False
            self._verifications = 0
            ours, theirs = Pipe()
            # Signals to the whole group are for the parent, who ends this one; what is blocked
            # here is blocked there, from the first moment on.
            with theirs, _blocked(signal.SIGINT, signal.SIGTERM):
                self._process: subprocess.Popen[bytes] = subprocess.Popen(
                    [sys.executable, '-m', __name__, str(theirs.fileno())],
                    env=os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path))},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                )
            self._connection: Connection[Any, Any] = ours


@contextmanager
def _blocked(*signals: signal.Signals) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(connection: 'Connection[Any, Any]') -> None:
    """Answer sightings until the other side is gone."""
    closer: LoopCloser | None = None
    known = None
    while True:
        try:
            message = connection.recv()
            if message is None:  # another takes over
                connection.send(closer)
                return
        except (EOFError, OSError):
            return
        if isinstance(message, LoopCloser):  # from the one before
            closer = message
            continue
        settings, sighting = message
        try:
            if closer is None:
                closer = LoopCloser(*settings)
            elif settings != known:
                closer.configure(*settings)
            known = settings
            answer: Verdict | str = closer.close(sighting)
        except Exception as error:  # it is the other side that counts and reports it
            answer = f'{type(error).__name__}: {error}'
        try:
            connection.send(answer)
        except OSError:
            return


def main() -> None:
    """Run as the child, until the pipe ends, whose inherited number is the only argument."""
    os.nice(NICENESS)
    serve(Connection(int(sys.argv[1])))


if __name__ == '__main__':
    main()
