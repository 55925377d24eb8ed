"""Where the loops of a drive are lost: its revisits stage by stage, judged by ground truth.

revisits        keyframes within RecordedDrive.revisit_radius_m of an earlier one that may match
first           of these, the nearest descriptor is of a place within that radius
candidate       a place within that radius is among the candidates for verification
tried           such a candidate was registered: accepted or rejected by geometry
verified        a loop of the keyframe that is right in place passed geometric verification
published       a loop of the keyframe that is right in place is published at the end
wrong ever      published loops that are wrong in place (not only of revisits)
retracted       published loops that were taken back, right or wrong
wrong at end    published loops that are wrong in place and were not taken back
delay           distance traveled from a revisit to the publication of its loop, median

A loop is wrong in place if its pose is more than `RecordedDrive.max_place_error_m` off.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.offline.evaluation import true_traveled_m
from lpr_ros.core.offline.statistics import median_of
from lpr_ros.core.pipeline import Step
from lpr_ros.core.types import LoopClosure
from lpr_training.benchmarks.loops.metrics import drive_result, find_revisits
from lpr_training.benchmarks.loops.recorded_drive import RecordedDrive

STAGE_COLUMNS = {
    'revisits': 'revisits',
    'first': 'right place first',
    'candidate': 'candidate',
    'tried': 'tried',
    'verified': 'verified',
    'published': 'published',
    'wrong_ever': 'wrong in place, ever',
    'retracted': 'retracted',
    'wrong_at_end': 'wrong in place, at end',
    'delay_median_m': 'delay m',
}


@dataclass(frozen=True, eq=False)
class Publication:
    """A loop, the keyframe after which it was published, and whether it was taken back."""

    loop: LoopClosure
    published_at: int
    is_retracted: bool = False


def publications(steps: Iterable[Step]) -> list[Publication]:
    """Return every loop that was ever published, once, in order of its last publication."""
    found: dict[object, Publication] = {}
    for step in steps:
        now = step.keyframe_query.keyframe.id
        for loop in step.result.retracted:
            if loop.key in found:
                found[loop.key] = Publication(loop, found[loop.key].published_at, True)
        for loop in step.result.trusted:
            found.pop(loop.key, None)
            found[loop.key] = Publication(loop, now)
    return list(found.values())


def published_loops(steps: Iterable[Step]) -> list[LoopClosure]:
    """Return the loops that are published at the end of the drive."""
    return [p.loop for p in publications(steps) if not p.is_retracted]


def stage_metrics(drive: RecordedDrive, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the counts of every stage, by the names defined above."""
    reference = drive_result(drive)
    truth = reference.T_world_sensor
    pairs = find_revisits(drive, reference)
    near = {query_id: set(earlier.tolist()) for query_id, earlier in pairs.items()}
    traveled_m = true_traveled_m(reference.database, truth)
    first, candidate, tried, verified = set(), set(), set(), set()
    for step in steps:
        query, result = step.keyframe_query, step.result
        here = near.get(query.keyframe.id, set())
        registered = [c.match.keyframe_id for c in result.rejected]
        if result.verified is not None:
            registered.append(result.verified.match_id)
            if is_right_place(drive, result.verified):
                verified.add(query.keyframe.id)
        for stage, ids in (
            (first, [m.keyframe_id for m in query.matches[:1]]),
            (candidate, [c.match.keyframe_id for c in query.candidates]),
            (tried, registered),
        ):
            if here & set(ids):
                stage.add(query.keyframe.id)
    every = publications(steps)
    wrong = [p for p in every if not is_right_place(drive, p.loop)]
    right = [p for p in every if not p.is_retracted and is_right_place(drive, p.loop)]
    right = [p for p in right if p.loop.query_id in near]
    return {
        'revisits': len(near),
        'first': len(first),
        'candidate': len(candidate),
        'tried': len(tried),
        'verified': len(verified & near.keys()),
        'published': len({p.loop.query_id for p in right}),
        'wrong_ever': len(wrong),
        'retracted': sum(p.is_retracted for p in every),
        'wrong_at_end': sum(not p.is_retracted for p in wrong),
        'delay_median_m': median_of(
            np.array([traveled_m[p.published_at] - traveled_m[p.loop.query_id] for p in right])
        ),
    }


def is_right_place(drive: RecordedDrive, loop: LoopClosure) -> bool:
    """Return whether a loop joins the right places, as precisely as the truth can tell."""
    T = drive.T_world_sensor
    T_true = invert(T[loop.match_id]) @ T[loop.query_id]
    error_m = float(np.linalg.norm(loop.T_match_query[:3, 3] - T_true[:3, 3]))
    return error_m <= drive.max_place_error_m
