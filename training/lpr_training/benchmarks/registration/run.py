"""How well matches are verified: true pairs accepted, poses right, covariances honest, false none.

Real scans: every pair of neighbours five frames apart, the later turned by a random yaw, against
the odometry of the recording. Simulated revisits: against the truth, in worlds that nothing was
tuned on. False pairs: of different places, those that look most alike to Scan Context. Times are
CPU seconds of one thread: others on the machine do not count.
"""

from collections.abc import Sequence
from pathlib import Path
import time
from typing import Any

import numpy as np
from tqdm import tqdm

from lpr_ros.core.pairwise import PairwiseConfig, agrees_with_odometry, place
from lpr_ros.core.records import LoopClosure, Match
from lpr_ros.core.tangent import motion_between
from lpr_ros.core.verification import VerificationConfig, make_verifier
from lpr_training.benchmarks.registration_pairs import Pair, real_pairs, simulated_pairs

REAL_RUNS = ('kitti_raw_0005', 'nuscenes_0001')
APART = 5  # frames
REAL_GOAL_M = 0.3
WRONG_M = 1.0  # an accepted pose farther off is a wrong loop
WORLDS = ('city', 'suburb', 'forest', 'car_park', 'identical_houses')
SENSORS = ('hdl64', 'vlp16')
WORLD_M = {'car_park': 120.0}  # side; others 300
NO_MATCH = Match(0, 0.0, 1.0)


def run(
    data: Path,
    *,
    every: int = 4,
    pairs: int = 20,
    seed: int = 77,
    worlds: Sequence[str] = WORLDS,
    sensors: Sequence[str] = SENSORS,
    config: VerificationConfig | None = None,
) -> dict[str, Any]:
    """Verify every n-th real pair and so many simulated ones of each world and sensor."""
    config = config or VerificationConfig()
    runs = [name for name in REAL_RUNS if (data / f'scans_{name}.npz').is_file()]
    real, simulated = {}, {}
    bar = tqdm(total=len(runs) + len(worlds) * len(sensors), unit='set')
    for name in runs:
        bar.set_description(name)
        real[name] = _judge(list(real_pairs(data, name, APART, every, seed)), config)
        bar.update()
    for world in worlds:
        for sensor in sensors:
            bar.set_description(f'{world} {sensor}')
            true, false = simulated_pairs(world, sensor, pairs, seed, WORLD_M.get(world, 300.0))
            simulated[f'{world} {sensor}'] = _judge(true, config) | _refused(false, config)
            bar.update()
    bar.close()
    return {'config': config.to_dict(), 'real': real, 'simulated': simulated}


def table(result: dict[str, Any]) -> str:
    """Return both parts as markdown tables, the goals in the heads."""
    lines = [
        f'| real pairs, {APART} frames apart | pairs | within {REAL_GOAL_M} m (goal: all) '
        '| median m | max m | median deg | CPU s |',
        '|---|---|---|---|---|---|---|',
    ]
    for name, row in result['real'].items():
        lines.append(
            f'| {name} | {row["pairs"]} | {row["within_goal"]} '
            f'| {row["pose_error_median_m"]:.3f} | {row["pose_error_max_m"]:.2f} '
            f'| {row["pose_error_median_deg"]:.2f} | {row["cpu_s"]:.2f} |'
        )
    lines += [
        '',
        '| simulated | accepted | of these wrong (0) | median m (< 0.15) | p99 m (< 1) '
        '| median deg (< 0.5) | NEES per dimension (0.5 - 2) | false pairs accepted '
        '| and within odometry (0) | CPU s | CPU s of false |',
        '|---|---|---|---|---|---|---|---|---|---|---|',
    ]
    for name, row in result['simulated'].items():
        lines.append(
            f'| {name} | {row["accepted"]} / {row["pairs"]} | {row["wrong_poses"]} '
            f'| {row["pose_error_median_m"]:.3f} | {row["pose_error_p99_m"]:.2f} '
            f'| {row["pose_error_median_deg"]:.2f} | {row["nees_per_dim"]:.2f} '
            f'| {row["false_accepted"]} / {row["false_pairs"]} | {row["false_within_odometry"]} '
            f'| {row["cpu_s"]:.2f} | {row["false_cpu_s"]:.2f} |'
        )
    return '\n'.join(lines)


def _judge(pairs: Sequence[Pair], config: VerificationConfig) -> dict[str, Any]:
    """Verify true pairs; errors are of those accepted."""
    closures, seconds = _verify(pairs, config)
    motions, nees = [], []
    for pair, closure in zip(pairs, closures, strict=True):
        if closure is not None:
            motion = motion_between(closure.T_match_query, pair.T_match_query)
            motions.append(motion)
            nees.append(motion @ np.linalg.solve(closure.covariance, motion) / 6.0)
    table = np.reshape(motions, (-1, 6)) if motions else np.full((1, 6), np.nan)
    metres = np.linalg.norm(table[:, :3], axis=1)
    degrees = np.degrees(np.linalg.norm(table[:, 3:], axis=1))
    return {
        'pairs': len(pairs),
        'accepted': len(motions),
        'within_goal': int((metres < REAL_GOAL_M).sum()),
        'pose_error_median_m': float(np.median(metres)),
        'pose_error_p99_m': float(np.percentile(metres, 99)),
        'pose_error_max_m': float(metres.max()),
        'pose_error_median_deg': float(np.median(degrees)),
        'wrong_poses': int((metres > WRONG_M).sum()),
        'nees_per_dim': float(np.mean(nees)) if nees else float('nan'),
        'cpu_s': seconds,
    }


def _refused(pairs: Sequence[Pair], config: VerificationConfig) -> dict[str, Any]:
    """Verify pairs of different places; a right pose between two that overlap is no fault."""
    closures, seconds = _verify(pairs, config)
    accepted = [(c, p) for c, p in zip(closures, pairs, strict=True) if c is not None]
    wrong = [(c, p) for c, p in accepted if _error_m(c, p) > WRONG_M]
    return {
        'false_pairs': len(pairs),
        'false_right_pose': len(accepted) - len(wrong),
        'false_accepted': len(wrong),
        'false_within_odometry': sum(_allowed(closure, pair) for closure, pair in wrong),
        'false_cpu_s': seconds,
    }


def _error_m(closure: LoopClosure, pair: Pair) -> float:
    motion = motion_between(closure.T_match_query, pair.T_match_query)
    return float(np.linalg.norm(motion[:3]))


def _allowed(closure: LoopClosure, pair: Pair) -> bool:
    """Say whether odometry allows a loop: the first thing pairwise consistency asks."""
    placed = place(closure, pair.query, pair.match)
    return placed is not None and agrees_with_odometry(placed, PairwiseConfig())


def _verify(
    pairs: Sequence[Pair], config: VerificationConfig
) -> tuple[list[LoopClosure | None], float]:
    """Return what the verifier says, and the median CPU seconds it takes."""
    verifier = make_verifier(config)
    closures: list[LoopClosure | None] = []
    seconds = []
    for pair in pairs:
        start = time.process_time()
        closures.append(verifier.verify(pair.query, pair.match, NO_MATCH))
        seconds.append(time.process_time() - start)
    return closures, float(np.median(seconds)) if seconds else float('nan')
