"""Verification in a child process, for callers that it must not block.

The registration libraries hold the GIL for up to 0.5 s at a time; in a thread they would stall
descriptor extraction and every callback of the node. If they crash, hang or leak memory, the
child is replaced. It holds no state, so at most the keyframe being verified is lost.
"""

from multiprocessing.connection import Connection
import os
import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import VerificationError
from lpr_ros.core.loop_closure.verification import InProcessVerifier, VerificationConfig
from lpr_ros.core.processes import parent_connection, start_child
from lpr_ros.core.types import Keyframe, LoopClosure, Match

NICENESS = 5  # descriptor extraction has priority when cores are scarce
STARTUP_S = 60.0  # additional timeout of the first answer, which includes process startup
# kiss-matcher 1.0.2 leaks 0.02 to 0.5 MB per call; the child is replaced after this many.
MAX_VERIFICATIONS = 300


class VerificationProcess:
    """A verifier in a child process. All methods but `verify` are thread-safe."""

    def __init__(
        self,
        config: VerificationConfig,
        timeout_s: float = 60.0,
        max_verifications: int = MAX_VERIFICATIONS,
    ):
        self.timeout_s = timeout_s  # per candidate
        self._max_verifications = max_verifications
        self._config = config
        self._lock = threading.Lock()  # guards the lifetime of the process
        self._stopped = False
        self._has_answered = False
        self._start()

    def configure(self, config: VerificationConfig) -> None:
        """Use new settings from the next candidate on."""
        self._config = config

    def verify(
        self,
        query: Keyframe,
        candidate: Keyframe,
        match: Match,
        T_guess: NDArray[np.float64] | None = None,
        *,
        thorough: bool = True,
    ) -> LoopClosure | None:
        """Verify a candidate; raise VerificationError if the child failed and was replaced."""
        if self._verifications >= self._max_verifications:
            self._replace()
        # A watchdog instead of a timeout on the pipe, because sending can block too.
        allowed_s = self.timeout_s + (0.0 if self._has_answered else STARTUP_S)
        watchdog = threading.Timer(allowed_s, self._process.kill)
        watchdog.start()
        began_s = time.monotonic()
        try:
            self._connection.send((self._config, query, candidate, match, T_guess, thorough))
            answer = self._connection.recv()
            self._has_answered = True
        except (EOFError, OSError) as error:
            status = self._process.wait()
            self._replace_after_failure()
            raise VerificationError(
                f'keyframe {query.id}: the verification process ended with status {status} after '
                f'{time.monotonic() - began_s:.1f} s, expected an answer within {allowed_s} s; '
                'its remaining candidates were skipped and the process was restarted'
            ) from error
        finally:
            watchdog.cancel()
        if isinstance(answer, str):
            raise VerificationError(f'keyframe {query.id}: {answer}')
        self._verifications += 1
        loop: LoopClosure | None = answer
        return loop

    @property
    def pid(self) -> int:
        """Process ID of the child."""
        return self._process.pid

    def interrupt(self) -> None:
        """Make a `verify` in progress fail; the next one runs in a new child."""
        with self._lock:
            self._process.kill()

    def stop(self) -> None:
        """Kill the child, even during a verification."""
        with self._lock:
            self._stopped = True
            self._process.kill()
            self._process.wait()

    def _replace_after_failure(self) -> None:
        """Start another child; without one, the next verification fails and tries again."""
        try:
            self._replace()
        except OSError as error:  # out of file descriptors, processes or memory
            raise VerificationError(f'the verification process cannot start: {error}') from error

    def _replace(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._start()

    def _start(self) -> None:
        """Start a child, unless `stop` was called."""
        with self._lock:
            if self._stopped:
                return
            self._has_answered = False
            self._verifications = 0
            self._process, self._connection = start_child(__name__)


def serve(connection: 'Connection[Any, Any]') -> None:
    """Verify candidates until the parent closes the connection."""
    verifier: InProcessVerifier | None = None
    while True:
        try:
            config, *candidate, thorough = connection.recv()
        except (EOFError, OSError):
            return
        try:
            verifier = verifier or InProcessVerifier(config)
            verifier.configure(config)
            answer: LoopClosure | str | None = verifier.verify(*candidate, thorough=thorough)
        except Exception as error:  # raised in the parent
            answer = f'{type(error).__name__}: {error}'
        try:
            connection.send(answer)
        except OSError:
            return


def main() -> None:
    """Run the child process."""
    os.nice(NICENESS)
    serve(parent_connection())


if __name__ == '__main__':
    main()
