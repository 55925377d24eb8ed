"""Real ROS nodes and processes for tests, on a DDS domain of their own.

Tests use the fixture `ros` of conftest.py.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
import os
from pathlib import Path
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

from lpr_ros.ros_utils.fastdds_variable import profile_variable
from lpr_training.harness.processes import own_domain

ROOT = Path(__file__).resolve().parents[1]
SHARED_MEMORY_PROFILE = ROOT / 'config' / 'fastdds.xml'
TIMEOUT_S = 60.0  # long enough for a busy machine; only a test that fails waits for it


def wait_until(is_true: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
    """Return the first true value; fail with `what` after the timeout."""
    end = time.monotonic() + timeout_s
    while not (value := is_true()):
        assert time.monotonic() < end, f'timeout after {timeout_s} s: {what}'
        time.sleep(0.01)
    return value


class NoResponseError(AssertionError):
    """A service is not there, or did not answer in time."""


class Inbox:
    """The messages of one topic in order of arrival."""

    def __init__(self, topic: str):
        self.topic = topic
        self._messages: queue.Queue = queue.Queue()

    def put(self, message: Any) -> None:
        self._messages.put(message)

    def take(self, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the next message, or fail."""
        try:
            return self._messages.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f'{self.topic}: no message within {timeout_s} s') from None

    def take_until(self, condition: Callable[[Any], bool], timeout_s: float = TIMEOUT_S) -> Any:
        """Return the first message that fulfills the condition; skip those before."""
        end = time.monotonic() + timeout_s
        while True:
            message = self.take(max(0.0, end - time.monotonic()))
            if condition(message):
                return message

    def drain(self) -> list[Any]:
        """Return all messages received so far, without waiting."""
        taken = []
        while not self._messages.empty():
            taken.append(self._messages.get())
        return taken


class NodeProcess:
    """A subprocess whose output is recorded."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path):
        self._log = log
        with log.open('wb') as stream:
            self.popen = subprocess.Popen(
                command, env=env, stdout=stream, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, cwd=log.parent, start_new_session=True,
            )  # fmt: skip

    @property
    def output(self) -> str:
        return self._log.read_text(errors='replace')

    def interrupt(self, sent: signal.Signals = signal.SIGINT) -> None:
        self.popen.send_signal(sent)

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        """Return the exit status; kill the process and fail after the timeout."""
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f'still running after {timeout_s} s:\n{self.output}') from None

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()


class Ros:
    """An rclpy context that spins in the background, and subprocesses on the same domain."""

    def __init__(self, domain: int, folder: Path, stack: ExitStack):
        self.folder = folder
        # os.environ already has what the bootstrapper of the ROS wheels adds.
        self.env = os.environ | {
            'OMP_NUM_THREADS': '1',
            'PYTHONPATH': os.pathsep.join([str(ROOT), str(ROOT / 'training'), str(ROOT / 'test')]),
            'PYTHONUNBUFFERED': '1',
            'ROS_LOG_DIR': str(folder / 'log'),
        }
        self._stack = stack
        self.context = rclpy.Context()
        rclpy.init(args=[], context=self.context, domain_id=domain)
        self.executor = SingleThreadedExecutor(context=self.context)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        stack.callback(self._shut_down)
        self._thread.start()
        self._count = 0
        self._nodes: list[Any] = []
        self._clients: dict[tuple[Any, str], Any] = {}

    def node(self, name: str = '', kind: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Return a spinning node of class `kind`, by default rclpy.node.Node."""
        self._count += 1
        if kind is None:
            made = rclpy.create_node(
                name or f'tester_{self._count}', context=self.context, **options
            )
        else:
            made = kind(context=self.context, **options)
        self.executor.add_node(made)
        self._nodes.append(made)
        return made

    def listen(self, node: Any, kind: Any, topic: str, qos: Any = 10) -> Inbox:
        """Subscribe to a topic and collect its messages."""
        inbox = Inbox(topic)
        node.create_subscription(kind, topic, inbox.put, qos)
        return inbox

    def matched(self, publisher: Any, count: int = 1) -> None:
        """Wait until a publisher has this many subscriptions."""
        wait_until(
            lambda: publisher.get_subscription_count() >= count, f'{publisher.topic_name}: matched'
        )

    def start(self, *command: str, env: dict[str, str] | None = None) -> NodeProcess:
        """Start Python with these arguments, such as '-m', 'lpr_ros.player'."""
        self._count += 1
        log = self.folder / f'process_{self._count}.txt'
        process = NodeProcess([sys.executable, *command], self.env | (env or {}), log)
        self._stack.callback(process.stop)
        return process

    def call(
        self,
        node: Any,
        kind: Any,
        service: str,
        request: Any = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """Call a service and return the response; NoResponseError if there is none in time.

        Clients are reused: a server may lose the response to a client it has just discovered.
        """
        client = self._clients.get((node, service))
        if client is None:
            client = self._clients[node, service] = node.create_client(kind, service)
        if not client.wait_for_service(timeout_s):
            raise NoResponseError(f'no service {service} within {timeout_s} s')
        future = client.call_async(request or kind.Request())
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        if not done.wait(timeout_s):
            client.remove_pending_request(future)
            raise NoResponseError(f'{service}: no response within {timeout_s} s')
        return future.result()

    def _spin(self) -> None:
        with suppress(ExternalShutdownException):
            self.executor.spin()

    def _shut_down(self) -> None:
        """Stop spinning before nodes are destroyed: the executor would use dead handles."""
        self.context.try_shutdown()
        self._thread.join(TIMEOUT_S)
        for made in self._nodes:
            made.destroy_node()
        self.executor.shutdown(TIMEOUT_S)


@contextmanager
def ros_session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ros]:
    """Yield ROS on a domain of its own, limited to the loopback interface."""
    if os.environ.get('ROS_DISTRO') == 'humble':
        monkeypatch.setenv('ROS_LOCALHOST_ONLY', '1')
    else:
        monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    monkeypatch.setenv(profile_variable(), str(SHARED_MEMORY_PROFILE))
    with own_domain() as domain, ExitStack() as stack:
        monkeypatch.setenv('ROS_DOMAIN_ID', str(domain))
        yield Ros(domain, folder, stack)
