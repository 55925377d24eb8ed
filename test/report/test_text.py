"""The report names the stage at which the last candidates were lost, and advice that fits it."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from toy_graphs import loop_closure

from lpr_ros.core.offline.result import Outcome
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.core.types import Match
from lpr_ros.report.descriptor_figures import outcome_label
from lpr_ros.report.text import candidate_counts, why_no_loops

MATCHES = (Match(0, 0.1, 0.9),)
EXCLUDED = Outcome(9, MATCHES, 2, excluded=(0, 1))
REJECTED = Outcome(9, MATCHES, 2, rejected=(0, 1))
VERIFIED = Outcome(9, MATCHES, 2, verified=loop_closure(0, 9, np.eye(4)))
NOISE, OVERLAP = 'odometry_noise.position_fraction', 'verification.min_overlap'


def drive(*outcomes):
    return SimpleNamespace(config=PipelineConfig(), outcomes=outcomes)


@pytest.mark.parametrize(
    ('outcomes', 'cause', 'advice'),
    [
        ([EXCLUDED], '2 candidates were excluded by odometry', {NOISE}),
        ([REJECTED], 'every candidate failed geometric verification', {OVERLAP}),
        (
            [EXCLUDED, REJECTED],
            'excluded by odometry, .* and 2 failed geometric',
            {NOISE, OVERLAP},
        ),
        ([VERIFIED, EXCLUDED], 'passed geometric verification but contradict', {NOISE}),
        ([Outcome(9, MATCHES, 0)], 'no match was supported', {'sequence.min_support'}),
        ([Outcome(9, (), 0)], 'no keyframe had an earlier one', {'database.exclude_s'}),
    ],
)
def test_the_cause_is_the_stage_that_lost_the_candidates(outcomes, cause, advice):
    text = why_no_loops(drive(*outcomes))
    assert re.search(cause, text)
    named = {NOISE, OVERLAP, 'sequence.min_support', 'database.exclude_s'}
    assert {setting for setting in named if setting in text} == advice


def test_candidates_excluded_by_odometry_are_counted_apart():
    counts = candidate_counts(drive(EXCLUDED, REJECTED, VERIFIED))
    assert counts == '6 candidates, 2 excluded by odometry, 1 verified'
    assert candidate_counts(drive(REJECTED)) == '2 candidates, 0 verified'
    assert candidate_counts(drive()) == ''
    labels = [outcome_label(o, frozenset()) for o in (EXCLUDED, REJECTED, VERIFIED)]
    assert labels == ['excluded by odometry', 'failed verification', 'inconsistent']
