"""Who may match whom, and what counts as a true match, per benchmark."""

from lpr_training.protocols.kitti_bev import KittiBevResult, default_ranges, evaluate_kitti_bev
from lpr_training.protocols.results import Result
from lpr_training.protocols.runs import (
    Run,
    RunsResult,
    evaluate_oxford,
    evaluate_runs,
    evaluate_wild_places_inter,
)
from lpr_training.protocols.sequence import (
    SequenceResult,
    evaluate_sequence,
    exclude_recent,
    score_sequence,
)
from lpr_training.protocols.wild_places_intra import IntraResult, evaluate_wild_places_intra

__all__ = [
    'IntraResult',
    'KittiBevResult',
    'Result',
    'Run',
    'RunsResult',
    'SequenceResult',
    'default_ranges',
    'evaluate_kitti_bev',
    'evaluate_oxford',
    'evaluate_runs',
    'evaluate_sequence',
    'evaluate_wild_places_inter',
    'evaluate_wild_places_intra',
    'exclude_recent',
    'score_sequence',
]
