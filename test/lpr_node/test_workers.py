"""The queues and threads between the callbacks and the pipeline."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from ros_processes import wait_until
from toy_drive import START_NS, STEPS_PER_LAP, step, tiny_extractor

from lpr_ros.core.config import override
from lpr_ros.core.loop_closure.verification import InProcessVerifier
from lpr_ros.core.pipeline import Pipeline, PipelineConfig
from lpr_ros.core.types import Scan
from lpr_ros.lpr_node.diagnostics import EventLog, Statistics
from lpr_ros.lpr_node.workers import Inbox, ScanWorkers

CONFIG = override(PipelineConfig(), {'database.exclude_s': 3.0, 'database.exclude_m': 20.0})


def test_inbox_drops_the_oldest_item_and_never_blocks():
    inbox = Inbox(2)
    assert [inbox.put(i) for i in range(4)] == [False, False, True, True]
    assert [inbox.get(), inbox.get()] == [2, 3]
    taken = []
    thread = threading.Thread(target=lambda: taken.append(inbox.get()))
    thread.start()
    assert inbox.close() == 0
    thread.join()
    assert taken == [None]
    assert inbox.put(5)  # dropped


def test_inbox_counts_dropped_items():
    inbox = Inbox(3)
    for item in range(5):
        inbox.put(item)
    assert inbox.clear() == 3
    inbox.put(6)
    assert inbox.close() == 1
    assert inbox.is_closed


def scan(index):
    at = step(index)
    return Scan(at.points, at.stamp_ns, at.T_odom_sensor)


class Recorder:
    """A listener that keeps the results."""

    def __init__(self):
        self.keyframe_queries, self.results = [], []

    def on_keyframe_query(self, keyframe_query):
        self.keyframe_queries.append(keyframe_query)

    def on_verification_result(self, result):
        self.results.append(result)


class BlockedVerifier(InProcessVerifier):
    """A verification that does not end until it is released."""

    def __init__(self):
        super().__init__(CONFIG.verification)
        self.entered, self.released = threading.Event(), threading.Event()

    def verify(self, *arguments, **options):
        self.entered.set()
        assert self.released.wait(60.0)
        return super().verify(*arguments, **options)


@pytest.fixture
def events():
    log = SimpleNamespace(**dict.fromkeys(('info', 'warning', 'error'), lambda text: None))
    context = SimpleNamespace(ok=lambda: True)
    return EventLog(SimpleNamespace(context=context, get_logger=lambda: log), Statistics())


@pytest.fixture
def start_workers(events):
    """Return a function that starts workers, which are stopped at the end."""
    stack = []

    def start(recorder, read=lambda scan: scan, verifier=None, queue_size=2):
        pipeline = Pipeline(CONFIG, tiny_extractor(), verifier=verifier)
        workers = ScanWorkers(pipeline, read, recorder, events, queue_size)
        workers.start()
        stack.append(workers)
        return workers

    yield start
    for workers in stack:
        workers.stop()
        workers.pipeline.close()


def balance(statistics):
    """Return received scans minus those with a known end."""
    counts = statistics.counts()
    ends = [n for name, n in counts.items() if name in ('described', 'passed')]
    ends += [n for name, n in counts.items() if name.startswith('dropped.')]
    return counts.get('scans', 0) - sum(ends)


def test_verification_delays_neither_description_nor_fills_the_memory(start_workers, events):
    verifier, recorder = BlockedVerifier(), Recorder()
    workers = start_workers(recorder, verifier=verifier)
    count = STEPS_PER_LAP + 8
    for index in range(count):
        workers.put(scan(index))
        wait_until(lambda index=index: len(recorder.keyframe_queries) > index, f'keyframe {index}')
    assert verifier.entered.is_set()
    assert not recorder.results
    assert workers.queue_length == 2
    dropped = events.statistics.counts()['keyframes_dropped.newer_keyframe']
    with_candidates = sum(bool(query.candidates) for query in recorder.keyframe_queries)
    assert dropped == with_candidates - 3  # one is being verified, two are queued
    verifier.released.set()
    wait_until(lambda: len(recorder.results) == 3, 'results')
    assert recorder.results[-1].query_id == count - 1  # the newest were kept


def test_workers_continue_after_unexpected_exceptions(start_workers, events):
    recorder = Recorder()

    def read(message):
        if message is None:
            raise ZeroDivisionError
        return message

    def count(name):
        return events.statistics.counts().get(name, 0)

    workers = start_workers(recorder, read)
    workers.put(None)
    wait_until(lambda: count('faults') == 1, 'fault')
    workers.put(Scan(np.empty((0, 3), np.float32), START_NS))
    wait_until(lambda: count('dropped.cloud') == 1, 'drop')
    workers.put(scan(0))
    wait_until(lambda: recorder.keyframe_queries, 'keyframe')
    wait_until(lambda: balance(events.statistics) == 0, 'balance of scans')
    assert count('dropped.fault') == 1


def test_a_failure_to_publish_costs_neither_this_keyframe_nor_the_next(start_workers, events):
    class BrokenPublisher(Recorder):
        def on_keyframe_query(self, keyframe_query):
            super().on_keyframe_query(keyframe_query)
            raise AssertionError('field sec must be an integer in [-2147483648, 2147483647]')

        def on_verification_result(self, result):
            super().on_verification_result(result)
            raise AssertionError

    recorder = BrokenPublisher()
    workers = start_workers(recorder, queue_size=100)
    for index in range(STEPS_PER_LAP + 4):
        workers.put(scan(index))
        wait_until(lambda index=index: len(recorder.keyframe_queries) > index, f'keyframe {index}')
    wait_until(lambda: any(result.trusted for result in recorder.results), 'a loop closure')
    workers.stop()
    counts = events.statistics.counts()
    assert counts['described'] == STEPS_PER_LAP + 4
    assert counts['verified'] == len(recorder.results)
    assert counts['faults'] == len(recorder.keyframe_queries) + len(recorder.results)
    assert balance(events.statistics) == 0


def test_stopped_workers_account_for_queued_scans(start_workers, events):
    reading = threading.Event()

    def read(message):
        reading.set()
        wait_until(lambda: events.statistics.counts()['scans'] >= 3, 'three scans')
        return message

    workers = start_workers(Recorder(), read)
    workers.put(scan(0))
    assert reading.wait(20.0)
    for index in (1, 2):
        workers.put(scan(index))
    workers.stop()
    workers.put(scan(3))
    assert events.statistics.counts()['dropped.newer_scan'] == 1
    assert balance(events.statistics) == 0


def test_workers_that_cannot_start_leave_no_thread(start_workers, events, monkeypatch):
    before = threading.active_count()
    real = threading.Thread.start

    def start(thread):
        if threading.active_count() > before:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, 'start', start)
    with pytest.raises(RuntimeError, match='new thread'):
        start_workers(Recorder())
    assert threading.active_count() == before
