"""What the report says: headline, tiles, captions, and what to do where something is missing."""

from dataclasses import dataclass
import math

from lpr_ros.core.drive_result import DriveResult
from lpr_ros.core.drive_summary import (
    keyframe_ms,
    loop_gaps_m,
    median_of,
    odometry_poses,
)
from lpr_ros.core.drive_truth import RADIUS_M, WRONG_LOOP_M, Judgement

UNKNOWN = 'not known'
DROPS = {
    'unreadable': 'could not be read',
    'cloud': 'had no usable points',
    'stamp': 'came no later than the scan before',
    'odometry': 'had no usable odometry',
    'verification': 'got no loops, as verification failed',
}


@dataclass(frozen=True)
class Tile:
    """One number that matters, what it counts, and a note."""

    value: str
    label: str
    note: str = ''


def headline(result: DriveResult) -> str:
    """Say in one sentence what came of the drive."""
    count = len(result.loops)
    way = distance(result.travelled_m) if result.has_odometry else duration(result.duration_s)
    found = f'{count} loop closure{"" if count == 1 else "s"}' if count else 'No loop closure'
    text = f'{found} in {way} of driving'
    gaps = [median_of(loop_gaps_m(result, poses))
            for poses in (odometry_poses(result), result.correction.poses)]  # fmt: skip
    if math.isfinite(gaps[0]) and gaps[0] > gaps[1]:
        text += (
            f': back at a known place, odometry was off by {distance(gaps[0])} in the median. '
            f'The corrected drive, fitted to these loops, meets them within {distance(gaps[1])}'
        )
    old = sum(loop.match_id < result.first_id for loop in result.loops)
    if result.first_id:
        text += f'. {old} of them lead into the old map of {result.first_id} keyframes'
    return text + '.'


def tiles(result: DriveResult, judgement: Judgement | None) -> list[Tile]:
    """Return the numbers for the top of the page."""
    rate = result.duration_s / result.wall_s if result.wall_s > 0.0 else math.nan
    found = [
        Tile(f'{len(result.places)}', 'keyframes', f'from {result.scans} scans'),
        Tile(f'{len(result.loops)}', 'loop closures', funnel(result)),
    ]
    if judgement is not None:
        errors = judgement.errors
        right = int(errors.is_right.sum())
        found += [
            Tile(percent(judgement.precision), 'precision', f'{right} of {len(errors.loops)} '
                 f'within {WRONG_LOOP_M:g} m'),
            Tile(percent(judgement.recall), 'recall', f'{len(judgement.found)} of '
                 f'{len(judgement.revisits)} revisits'),
            Tile(distance(median_of(errors.metres)), 'loop error', 'median, against the truth'),
            Tile(f'{distance(judgement.ate_odometry_m)} → {distance(judgement.ate_corrected_m)}',
                 'trajectory error', 'before → after, RMS'),
        ]  # fmt: skip
    elif result.has_odometry:
        found.append(Tile(distance(result.travelled_m), 'travelled', duration(result.duration_s)))
    found.append(Tile(
        milliseconds(median_of(keyframe_ms(result))), 'per keyframe',
        f'{rate:.1f} times real time' if math.isfinite(rate) and rate > 0.0 else '',
    ))  # fmt: skip
    return found


def funnel(result: DriveResult) -> str:
    """Say how many candidates became loops."""
    candidates = sum(o.candidates for o in result.outcomes)
    verified = sum(o.verified is not None for o in result.outcomes)
    return f'of {candidates} candidates, {verified} verified' if result.outcomes else ''


def hints(result: DriveResult) -> list[str]:
    """Say what stands out and what to do about it; settings are named as --set takes them."""
    found = []
    if result.interrupted:
        found.append('The run was interrupted: this is the drive up to that moment.')
    if not result.places:
        found.append(
            'No keyframe was made. Is there odometry at the times of the scans? Without any, set '
            'keyframes.interval_s.'
        )
    elif not result.loops:
        found.append(f'No loops found: {why_no_loops(result)}')
    if not result.has_odometry and result.places:
        found.append(
            'There is no odometry, so there is no trajectory to correct, and loops could not be '
            'checked against each other. A TUM or KITTI file can be given with --poses.'
        )
    refused = len(result.correction.refused)
    if refused:
        found.append(
            f'The optimiser leaves out {refused} of {len(result.loops)} loops, as they disagree '
            'with the rest (kept_by_optimiser in loops.csv). Where they are right, odometry '
            'drifts more than pairwise.odometry.position_share and heading_deg say.'
        )
    if result.dropped() > 0.05 * max(result.scans, 1):
        found.append(
            f'{result.dropped()} of {result.scans} scans were left out; the reasons are below.'
        )
    return found


def why_no_loops(result: DriveResult) -> str:
    """Follow the way of a match to where all of them ended."""
    database = result.config.database
    if not any(o.matches for o in result.outcomes):
        return (
            'no keyframe had an older one to be compared with. Keyframes less than '
            f'{database.exclude_s:g} s or {database.exclude_m:g} m apart are not compared '
            '(database.exclude_s, database.exclude_m): the drive is shorter than that.'
        )
    if not any(o.candidates for o in result.outcomes):
        return (
            'no match was supported by the keyframes before it. If the drive does come back to a '
            'place, look for short diagonal lines in the matrix of distances: where you see them, '
            'lower support.min_support; where you do not, the descriptor does not know the place, '
            'for example with a sensor unlike those it was trained on.'
        )
    if not any(o.verified for o in result.outcomes):
        return (
            'geometry refused every candidate. Either no place was really seen again, or the '
            'scans overlap little: a narrow field of view needs keyframes.submap_m, a sparse '
            'sensor a lower verification.overlap.'
        )
    noise = result.config.pairwise.odometry
    return (
        'loops were verified by geometry, but they contradict odometry or each other. If your '
        f'odometry drifts more than {100 * noise.position_share:g} % of the way or '
        f'{noise.heading_deg:g} degrees per 100 m, say so: pairwise.odometry.position_share, '
        'pairwise.odometry.heading_deg.'
    )


def captions(result: DriveResult, judgement: Judgement | None) -> dict[str, str]:
    """Return what each figure shows and what to look for, by its name."""
    return {
        'drive': (
            (
                'The drive from above. Each orange line is a loop closure and joins the keyframe '
                'that came back (dot) to the one it recognised. On the left long lines show how '
                'far odometry had drifted from the place; on the right as much of them remains '
                'as the two keyframes are truly apart.'
                if result.loops
                else 'The drive from above, as odometry has it. Does it cross its own path? '
                'Then a loop was to be found; without one there is nothing to correct.'
            )
            + (' The wide grey band is the ground truth.' if judgement else '')
            + (' The grey path is the old map.' if result.first_id else '')
        ),
        'time': (
            'The same drive with time as height. A loop closure joins two moments at one place, '
            'so on the corrected drive it stands upright. A slanted one deserves a look.'
        ),
        'matrix': (
            'How alike each keyframe is to every earlier one; bright is alike. Driving a road '
            'again the same way draws a bright line parallel to the edge, driving it the other '
            'way one across. Rings are loop closures: bright lines without rings are loops missed.'
        ),
        'pairs': (
            'Pairs of scans from above, laid over each other as their loop closure says: the '
            'earlier one in blue, taken at the dot, the later one in orange, taken at the '
            'triangle. Walls should be drawn once; a wall drawn twice is a wrong loop. Parked '
            'cars may differ. Ranked by overlap.'
        ),
        'truth': (
            f'Against the ground truth. A revisit is a keyframe within {RADIUS_M:g} m of one that '
            f'it may match; a loop closure is right within {WRONG_LOOP_M:g} m of the true '
            'relative pose. The curve is what the nearest descriptor alone would do at every '
            'threshold, the diamond what is left after sequence, geometry and consistency have '
            'had their say.'
        ),
        'probability': (
            'The nearest match of each keyframe. Above: what its distance means by the '
            'calibration of the checkpoint. Below: what became of it. Loop closures at distances '
            'with a low probability say that the calibration does not fit this sensor, so gates '
            'on probability would cost loops.'
        ),
        'timings': (
            'Bars are medians, ticks the 95th percentile. Verification runs only for candidates; '
            'where it is too slow, lower candidates or take verification.strategy=gicp.'
        ),
    }


def drops_in_words(result: DriveResult) -> list[tuple[str, tuple[str, ...]]]:
    """Return a sentence per kind of trouble with scans, and what was wrong with each."""
    return [
        (f'{len(texts)} scan{"" if len(texts) == 1 else "s"} {DROPS.get(kind, kind)}', texts)
        for kind, texts in result.drops.items()
    ]


def distance(metres: float) -> str:
    """Write a distance as people say it."""
    if not math.isfinite(metres):
        return UNKNOWN
    if metres >= 1000.0:
        return f'{metres / 1000.0:.2f} km'
    if metres >= 100.0:
        return f'{metres:.0f} m'
    if metres >= 1.0:
        return f'{metres:.1f} m'
    return f'{100.0 * metres:.0f} cm' if metres >= 0.01 else f'{1000.0 * metres:.0f} mm'


def duration(seconds: float) -> str:
    """Write a time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    return f'{minutes} min {rest} s' if minutes else f'{rest} s'


def milliseconds(ms: float) -> str:
    """Write a short time."""
    if not math.isfinite(ms):
        return UNKNOWN
    if ms >= 10.0:
        return f'{ms:,.0f} ms'.replace(',', '\u202f')
    return f'{ms:.1f} ms' if ms >= 1.0 else f'{ms:.2f} ms'


def percent(share: float) -> str:
    """Write a share; one that is not all never reads as 100 %."""
    if not math.isfinite(share):
        return UNKNOWN
    shown = 100.0 * share
    return f'{min(shown, 99.9):.1f} %' if 99.0 < shown < 100.0 else f'{shown:.0f} %'
