"""The sentences of the report: headline, tiles, captions, and advice if something is missing."""

from dataclasses import dataclass
import math

from lpr_ros.core.offline import export
from lpr_ros.core.offline.evaluation import (
    MAX_LOOP_ERROR_M,
    RECALL_WINDOW_M,
    REVISIT_RADIUS_M,
    DriveEvaluation,
)
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.offline.statistics import median_of
from lpr_ros.core.offline.summary import keyframe_ms, loop_gaps_m, odometry_poses

UNKNOWN = 'unknown'
TITLES = {
    'map': 'Map',
    'drive': 'Trajectory and loop closures',
    'time': 'Loop closures over time',
    'matrix': 'Descriptor distances',
    'pairs': 'Matched scans',
    'truth': 'Precision and recall',
    'probability': 'Nearest matches',
    'timings': 'Processing time',
}
DROPS = {
    'unreadable': 'could not be read',
    'cloud': 'had no usable points',
    'stamp': 'had a stamp not later than the previous scan',
    'odometry': 'had no usable odometry',
    'few_points': 'had too few points for LiDAR odometry',
    'verification': 'got no loop closures because verification failed',
}


@dataclass(frozen=True)
class Tile:
    """A number at the top of the page, with a label and a note."""

    value: str
    label: str
    note: str = ''


def headline(result: DriveResult) -> str:
    """Return the outcome of the drive in one or two sentences."""
    count = len(result.loops)
    length = distance(result.traveled_m) if result.has_odometry else duration(result.duration_s)
    found = f'{count} loop closure{"" if count == 1 else "s"}' if count else 'No loop closures'
    text = f'{found} in {length} of driving'
    before, after = (
        median_of(loop_gaps_m(result, poses))
        for poses in (odometry_poses(result), result.correction.poses)
    )
    if math.isfinite(before) and before > after:
        text += (
            f'. At these revisits, odometry had drifted by {distance(before)} (median); after '
            f'optimization, the trajectory agrees with the loop closures to {distance(after)}'
        )
    if result.first_id:
        old = sum(loop.match_id < result.first_id for loop in result.loops)
        text += f'. {old} of them match the existing map of {result.first_id} keyframes'
    return text + '.'


def tiles(result: DriveResult, evaluation: DriveEvaluation | None) -> list[Tile]:
    """Return the numbers at the top of the page."""
    rate = result.duration_s / result.wall_s if result.wall_s > 0.0 else math.nan
    shown = [
        Tile(f'{len(result.places)}', 'keyframes', f'from {result.scans} scans'),
        Tile(f'{len(result.loops)}', 'loop closures', candidate_counts(result)),
    ]
    if evaluation is not None:
        errors, revisits, metrics = evaluation.errors, evaluation.revisits, evaluation.loop_metrics
        shown += [
            Tile(
                percent(metrics['precision']),
                'precision',
                f'{len(errors.correct)} of {len(errors.loops)} within {MAX_LOOP_ERROR_M:g} m',
            ),
            Tile(
                percent(metrics['recall']),
                'recall',
                f'{len(revisits.recalled)} of {len(revisits.ids)} revisits',
            ),
            Tile(distance(median_of(errors.meters)), 'loop error', 'median, to ground truth'),
            Tile(
                f'{distance(evaluation.ate_odometry_m)} → {distance(evaluation.ate_corrected_m)}',
                'trajectory error',
                'RMSE, before → after',
            ),
        ]
    elif result.has_odometry:
        shown.append(Tile(distance(result.traveled_m), 'traveled', duration(result.duration_s)))
    speed = f'{rate:.1f} times real time' if math.isfinite(rate) and rate > 0.0 else ''
    shown.append(Tile(milliseconds(median_of(keyframe_ms(result))), 'per keyframe', speed))
    return shown


def candidate_counts(result: DriveResult) -> str:
    """Return how many candidates there were, and how many of them came how far."""
    if not result.outcomes:
        return ''
    candidates = sum(o.candidates for o in result.outcomes)
    excluded = sum(len(o.excluded) for o in result.outcomes)
    verified = sum(o.verified is not None for o in result.outcomes)
    by_odometry = f'{excluded} excluded by odometry, ' if excluded else ''
    return f'{candidates} candidates, {by_odometry}{verified} verified'


def hints(result: DriveResult) -> list[str]:
    """Return what stands out and what to do about it; settings are named as in --set."""
    shown = []
    if result.interrupted:
        shown.append('The run was interrupted; these are the results up to that point.')
    if not result.places:
        shown.append(
            'There are no keyframes. Check that the odometry covers the time of the scans. '
            'Without odometry, set keyframes.interval_s.'
        )
    elif not result.loops:
        shown.append(f'No loop closures: {why_no_loops(result)}')
    if not result.has_odometry and result.places:
        shown.append(
            'There is no odometry, so there is no trajectory to correct and loop closures could '
            'not be checked for consistency. Provide poses as a TUM or KITTI file with --poses.'
        )
    if result.correction.error:
        shown.append(f'There is no corrected trajectory: {result.correction.error}')
    rejected = len(result.correction.rejected)
    if rejected:
        shown.append(
            f'The optimizer rejected {rejected} of {len(result.loops)} loop closures as outliers '
            '(kept_by_optimiser in loops.csv). If they are correct, odometry drifts more than '
            'odometry_noise.position_fraction and odometry_noise.heading_deg specify.'
        )
    if result.retracted:
        shown.append(
            f'{count_of(len(result.retracted), "loop closure")} published and retracted later, '
            'outvoted by others (retracted in loops.csv; dashed lines below). The corrected '
            'trajectory and the pose graph are without them.'
        )
    if len(result.sessions) > 1:
        later = [f'{name} ({reason})' for name, reason in list(result.sessions.items())[1:]]
        shown.append(
            f'The drive has {len(result.sessions)} sessions, which only loop closures connect. '
            f'New sessions: {"; ".join(later)}.'
        )
    if result.dropped() > 0.05 * max(result.scans, 1):
        shown.append(
            f'{result.dropped()} of {result.scans} scans were dropped; see Dropped scans below.'
        )
    return shown


def count_of(number: int, noun: str) -> str:
    """Return e.g. '1 loop closure was' or '2 loop closures were'."""
    return f'{number} {noun} was' if number == 1 else f'{number} {noun}s were'


def why_no_loops(result: DriveResult) -> str:
    """Return at which stage the last candidates were lost, and what to change."""
    database = result.config.database
    if not any(o.matches for o in result.outcomes):
        return (
            'no keyframe had an earlier one to match. Keyframes within '
            f'{database.exclude_s:g} s or {database.exclude_m:g} m of travel are excluded '
            '(database.exclude_s, database.exclude_m), and the drive is shorter than that.'
        )
    if not any(o.candidates for o in result.outcomes):
        return (
            'no match was supported by the preceding keyframes. If the drive does revisit a '
            'place, look for short diagonal lines in the matrix of descriptor distances. If there '
            'are any, lower sequence.min_support. If not, the descriptor does not recognize the '
            'place, for example because the sensor differs from those in the training data.'
        )
    if any(o.verified for o in result.outcomes):
        return (
            'some candidates passed geometric verification but contradict odometry or each other. '
            f'{raise_odometry_noise(result)}'
        )
    excluded = sum(len(o.excluded) for o in result.outcomes)
    failed = sum(len(o.rejected) for o in result.outcomes)
    overlap = (
        'the scans overlap too little: with a narrow field of view set keyframes.submap_m, with a '
        'sparse sensor lower verification.min_overlap.'
    )
    if not excluded:
        return (
            'every candidate failed geometric verification. Either the drive revisits no place, '
            f'or {overlap}'
        )
    lost = (
        f'{count_of(excluded, "candidate")} excluded by odometry, which puts them much too far '
        'from the place they resemble'
    )
    if not failed:
        return f'{lost}, and none was left to verify. {raise_odometry_noise(result)}'
    return (
        f'{lost}, and {failed} failed geometric verification. {raise_odometry_noise(result)} '
        f'Otherwise the drive revisits no place, or {overlap}'
    )


def raise_odometry_noise(result: DriveResult) -> str:
    """Return the advice for odometry that drifts more than its settings say."""
    noise = result.config.odometry_noise
    return (
        f'If odometry drifts by more than {100 * noise.position_fraction:g} % of the distance or '
        f'{noise.heading_deg:g} degrees per 100 m, raise odometry_noise.position_fraction and '
        'odometry_noise.heading_deg.'
    )


def captions(result: DriveResult, evaluation: DriveEvaluation | None) -> dict[str, str]:
    """Return the captions: what a figure shows and what to look for."""
    return {
        'map': (
            'The corrected map, stronger in color with height, with the drive and its loop '
            'closures. Walls that appear twice indicate a missed loop closure.'
        ),
        'drive': drive_caption(result, evaluation),
        'time': (
            'The corrected trajectory with time as height. A loop closure connects two times at '
            'one place, so it should be vertical. Inspect any that are slanted.'
        ),
        'matrix': (
            'Descriptor distance of each keyframe to every earlier one; bright means similar. '
            'Revisiting a road in the same direction gives a bright line parallel to the '
            'diagonal, in the opposite direction a line perpendicular to it. Rings are loop '
            'closures; a bright line without rings is a missed revisit.'
        ),
        'pairs': (
            'Pairs of scans seen from above, aligned by their loop closure: the earlier one in '
            'blue, taken at the dot, and the later one in orange, taken at the triangle. Walls '
            'should coincide; a wall that appears twice indicates a wrong loop closure. Parked '
            'cars may differ. Ranked by overlap.'
        ),
        'truth': (
            f'A revisit is a keyframe within {REVISIT_RADIUS_M:g} m of an earlier one outside of '
            f'the exclusion window. A loop closure is correct within {MAX_LOOP_ERROR_M:g} m of '
            'the true relative pose. The curve is the nearest descriptor alone at every '
            'threshold; the diamond is the whole pipeline, counting revisits with a loop closure '
            'of their own. The recall at the top of the page also counts revisits within '
            f'{RECALL_WINDOW_M:g} m of travel from a correct loop closure.'
        ),
        'probability': (
            'The nearest match of each keyframe. Above: the probability of being the '
            'same place, judged against the other places of the drive; it stays near the prior '
            'until 100 keyframes have odometry. Below: what happened to the match.'
        ),
        'timings': (
            'Bars are medians, ticks are 95th percentiles. Verification runs only for candidates; '
            'if it is too slow, lower max_candidates or use verification.strategy=gicp.'
        ),
    }


def drive_caption(result: DriveResult, evaluation: DriveEvaluation | None) -> str:
    """Return the caption of the trajectory."""
    if result.loops:
        text = (
            'The trajectory from above. Each orange line is a loop closure between the later '
            'keyframe (dot) and the one it matched. On the left, long lines show how far odometry '
            'had drifted; on the right, only the true distance between the two remains.'
        )
    else:
        text = (
            'The trajectory from above, from odometry. If it crosses itself, there was a revisit '
            'to find; without loop closures there is nothing to correct.'
        )
    if result.retracted:
        text += ' Dashed lines are loop closures that were retracted.'
    if evaluation is not None:
        text += ' The wide gray band is the ground truth.'
    if result.first_id:
        text += ' The gray path is the existing map.'
    return text


def drop_sentences(result: DriveResult) -> list[tuple[str, tuple[str, ...]]]:
    """Return a sentence and the error messages for each kind of dropped scan."""
    return [
        (f'{len(texts)} scan{"" if len(texts) == 1 else "s"} {DROPS.get(kind, kind)}', texts)
        for kind, texts in result.drops.items()
    ]


def file_descriptions(result: DriveResult) -> dict[str, str]:
    """Return what the files in the output folder contain."""
    tables = {
        export.LOOPS: (
            'Loop closures, also retracted ones: T_match_query, covariance, overlap, probability'
        ),
        export.KEYFRAMES: 'Keyframes: odometry, corrected and true poses; nearest matches',
        export.MAP: 'Place database; relocalize another drive in it with --map',
    }
    trajectories = {
        export.GRAPH: 'Pose graph of odometry and loop closures, at the corrected poses',
        export.ODOMETRY: 'Trajectory before loop closure, TUM format',
        export.CORRECTED: 'Trajectory after loop closure, TUM format',
    }
    if result.T_world_sensor:
        trajectories[export.TRUTH] = 'Ground truth, TUM format'
    trajectories |= {
        export.kitti_name(name): text.replace('TUM', 'KITTI')
        for name, text in trajectories.items()
        if name != export.GRAPH
    }
    numbers = {
        export.TIMINGS: 'Milliseconds of each keyframe by stage',
        export.SUMMARY: 'The numbers on this page',
    }
    return tables | (trajectories if result.has_odometry else {}) | numbers


def distance(meters: float) -> str:
    """Format a distance."""
    if not math.isfinite(meters):
        return UNKNOWN
    if meters >= 1000.0:
        return f'{meters / 1000.0:.2f} km'
    if meters >= 100.0:
        return f'{meters:.0f} m'
    if meters >= 1.0:
        return f'{meters:.1f} m'
    if meters >= 0.01:
        return f'{100.0 * meters:.0f} cm'
    return f'{1000.0 * meters:.0f} mm' if meters >= 0.001 else '< 1 mm'


def duration(seconds: float) -> str:
    """Format a duration."""
    minutes, rest = divmod(round(seconds), 60)
    return f'{minutes} min {rest} s' if minutes else f'{rest} s'


def milliseconds(ms: float) -> str:
    """Format a processing time."""
    if not math.isfinite(ms):
        return UNKNOWN
    if ms >= 10.0:
        return f'{ms:,.0f} ms'.replace(',', '\u202f')
    return f'{ms:.1f} ms' if ms >= 1.0 else f'{ms:.2f} ms'


def percent(fraction: float) -> str:
    """Format a fraction; anything less than 1 never reads as 100 %."""
    if not math.isfinite(fraction):
        return UNKNOWN
    shown = 100.0 * fraction
    return f'{min(shown, 99.9):.1f} %' if 99.0 < shown < 100.0 else f'{shown:.0f} %'
