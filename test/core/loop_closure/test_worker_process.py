"""A child process verifies identically, and loses nothing accepted when it dies or hangs."""

import os
import signal

import numpy as np
import pytest
from toy_clouds import tiny_config
from toy_drive import STEPS_PER_LAP, step

from lpr_ros.core.config import override
from lpr_ros.core.errors import VerificationError
from lpr_ros.core.loop_closure.loop_closer import LoopCloser
from lpr_ros.core.loop_closure.worker_process import VerificationProcess
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.pipeline import Pipeline, PipelineConfig
from lpr_ros.core.types import Scan

CONFIG = override(PipelineConfig(), {'database.exclude_s': 3.0, 'database.exclude_m': 20.0})


@pytest.fixture(scope='module')
def queries():
    """The queries with candidates of a drive of one lap and a bit."""
    model = PlaceModel(tiny_config()).eval()
    recognizer = Pipeline(CONFIG, NetworkDescriptorExtractor(model, device='cpu')).recognizer
    made = []
    for index in range(STEPS_PER_LAP + 6):
        at = step(index)
        made.append(recognizer.add(Scan(at.points, at.stamp_ns, at.T_odom_sensor)))
    return [query for query in made if query.candidates]


@pytest.fixture
def process():
    verifier = VerificationProcess(CONFIG.verification)
    yield verifier
    verifier.stop()


def assert_same(here, there):
    pairs = [[(x.query_id, x.match_id) for x in result.trusted] for result in (here, there)]
    assert pairs[0] == pairs[1]
    for a, b in zip(here.trusted, there.trusted, strict=True):
        assert np.array_equal(a.T_match_query, b.T_match_query)
        assert np.array_equal(a.covariance, b.covariance)
    return pairs[0]


def test_a_child_process_verifies_like_this_process(process, queries):
    here = LoopCloser(CONFIG.loop_closure)
    there = LoopCloser(CONFIG.loop_closure, process)
    trusted = []
    for query in queries[-4:]:
        trusted += assert_same(here.verify_candidates(query), there.verify_candidates(query))
    assert trusted


def test_replacing_the_child_after_every_verification_changes_nothing(queries):
    verifier = VerificationProcess(CONFIG.verification, max_verifications=1)
    here, there = LoopCloser(CONFIG.loop_closure), LoopCloser(CONFIG.loop_closure, verifier)
    try:
        pids, trusted = [], []
        for query in queries[-4:]:
            trusted += assert_same(here.verify_candidates(query), there.verify_candidates(query))
            pids.append(verifier.pid)
    finally:
        verifier.stop()
    assert len(set(pids)) == len(pids)
    assert len(trusted) >= 2


def test_a_killed_child_loses_no_accepted_loop(process, queries):
    """Loops accepted before the kill still count in the consistency check after it."""
    here, there = LoopCloser(CONFIG.loop_closure), LoopCloser(CONFIG.loop_closure, process)
    for query in queries[:3]:
        assert_same(here.verify_candidates(query), there.verify_candidates(query))
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(VerificationError, match='status -9'):
        there.verify_candidates(queries[3])
    trusted = []
    for query in queries[4:]:
        expected = here.verify_candidates(query)
        trusted += assert_same(expected, there.verify_candidates(query))
    alone = LoopCloser(CONFIG.loop_closure)
    assert len(trusted) > len(alone.verify_candidates(queries[4]).trusted)


def test_signals_to_the_process_group_do_not_reach_the_child(queries):
    """Not even during startup; the child stays in the process group."""
    verifier = VerificationProcess(CONFIG.verification)
    try:
        pid = verifier.pid
        assert os.getpgid(pid) == os.getpgid(0)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        LoopCloser(CONFIG.loop_closure, verifier).verify_candidates(queries[-1])
        assert verifier.pid == pid
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGINT, signal.SIGTERM}
    finally:
        verifier.stop()


def test_an_exception_in_the_child_is_raised_and_the_child_survives(process, queries):
    closer = LoopCloser(CONFIG.loop_closure, process)
    before = process.pid
    query, place = queries[-1].keyframe, queries[-1].places[0]
    with pytest.raises(VerificationError, match=f'keyframe {query.id}: AttributeError'):
        process.verify(query, None, queries[-1].candidates[0].match)
    assert process.verify(query, place, queries[-1].candidates[0].match) is not None
    closer.verify_candidates(queries[-1])
    assert process.pid == before


def test_a_hung_child_is_replaced(process, queries):
    """A stopped child neither reads nor answers: both ends of the pipe block."""
    closer = LoopCloser(CONFIG.loop_closure, process)
    closer.verify_candidates(queries[-2])
    hung = process.pid
    os.kill(hung, signal.SIGSTOP)
    process.timeout_s = 0.5
    with pytest.raises(VerificationError, match=r'status -9 .* expected an answer within 0\.5 s'):
        closer.verify_candidates(queries[-1])
    assert process.pid != hung
    process.timeout_s = 60.0
    assert closer.verify_candidates(queries[-1]).query_id == queries[-1].keyframe.id


def test_new_settings_apply_to_the_next_keyframe(process, queries):
    closer = LoopCloser(CONFIG.loop_closure, process)
    assert closer.verify_candidates(queries[-2]).verified is not None
    closer.configure(override(CONFIG, {'verification.min_inliers': 10**9}).loop_closure)
    assert closer.verify_candidates(queries[-1]).verified is None
