"""Draw docs/images/correction.gif: a drive, its loop closures and its correction over time.

make demo && python docs/images/correction.py demo/scans_city_200.npz demo/truth_city_200.tum

Runs the pipeline over the recording and, after every keyframe, the pose graph over the loop
closures published so far.
"""

import argparse
from dataclasses import dataclass
import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
import numpy as np
from PIL import Image

from lpr_ros.core.config import override
from lpr_ros.core.geometry.trajectory import position_errors_m, root_mean_square
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.offline.run import run_offline
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.core.pose_graph.optimizer import PoseGraphOptimizer
from lpr_ros.core.recordings.open import RecordingOptions, open_recording
from lpr_ros.core.resources import weights_path

# The drift of the simulated wheel odometry.
ODOMETRY = {
    'odometry_noise.position_fraction': 0.02,
    'odometry_noise.heading_deg': 1.0,
    'odometry_noise.tilt_deg': 0.4,
}
KEYFRAMES_PER_FRAME = 5
FRAME_MS, LAST_FRAME_MS = 90, 3500
WIDTH, HEIGHT, DPI = 8.8, 3.2, 100  # inches, dots per inch
INK, MUTED, TRUTH = '#1b2430', '#5b6675', '#b9c0ca'
BEFORE, AFTER, LOOP = '#d55e00', '#0072b2', '#009e73'


@dataclass(frozen=True)
class State:
    """The drive up to one keyframe: positions (N, 3) and loops as pairs of keyframes."""

    odometry: np.ndarray
    corrected: np.ndarray
    truth: np.ndarray
    loops: list[tuple[int, int]]


def states(scans: Path, truth: Path) -> list[State]:
    """Run the pipeline over the drive, and the pose graph over its loops as they appear."""
    config = override(PipelineConfig(), ODOMETRY)
    loops_after: list[int] = []  # number of loops published when keyframe i was finished

    def on_scan(gathered) -> None:
        loops_after.extend([len(gathered.loops)] * (len(gathered.outcomes) - len(loops_after)))

    result = run_offline(
        open_recording(scans, RecordingOptions(truth=str(truth))),
        NetworkDescriptorExtractor.load(weights_path()),
        config,
        on_scan=on_scan,
    )
    T_world_odom = result.T_world_sensor[0] @ np.linalg.inv(result.places[0].T_odom_sensor)
    optimizer = PoseGraphOptimizer(noise=config.odometry_noise)
    added, found = 0, []
    for i, total in enumerate(loops_after):
        optimizer.add_keyframe(result.database[i])
        for loop in result.loops[added:total]:
            optimizer.add_loop(loop)
        optimizer.update()
        added = total
        if i % KEYFRAMES_PER_FRAME == 0 or i == len(loops_after) - 1:
            odometry = [place.T_odom_sensor for place in result.places[: i + 1]]
            poses = optimizer.poses
            corrected = [poses[k] for k in range(i + 1)]
            true = [result.T_world_sensor[k] for k in range(i + 1)]
            found.append(
                State(
                    positions(T_world_odom, odometry),
                    positions(T_world_odom, corrected),
                    positions(np.eye(4), true),
                    [(loop.query_id, loop.match_id) for loop in result.loops[:total]],
                )
            )
    return found


def positions(T_world_map: np.ndarray, poses: list[np.ndarray]) -> np.ndarray:
    """Return the positions (N, 3) of poses in the world frame."""
    return np.array([(T_world_map @ T)[:3, 3] for T in poses])


def draw(state: State, whole: State) -> Image.Image:
    """Draw one frame: odometry on the left, corrected on the right."""
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor='white')
    for column, (title, path, color) in enumerate([
        ('Odometry alone', state.odometry, BEFORE),
        ('With lpr_ros', state.corrected, AFTER),
    ]):  # fmt: skip
        axes = figure.add_axes((0.01 + 0.5 * column, 0.02, 0.48, 0.78))
        frame_axes(axes, whole)
        axes.plot(*state.truth[:, :2].T, color=TRUTH, linewidth=5, solid_capstyle='round')
        axes.plot(*path[:, :2].T, color=color, linewidth=1.6)
        axes.plot(*path[-1, :2], 'o', color=color, markersize=6)
        if column:
            ends = [(path[query, :2], path[match, :2]) for query, match in state.loops]
            axes.add_collection(LineCollection(ends, colors=LOOP, linewidths=3, alpha=0.8))
            axes.plot(*np.array([a for a, _ in ends]).reshape(-1, 2).T, '.', color=LOOP)
        error = root_mean_square(position_errors_m(path, state.truth))
        x = 0.02 + 0.5 * column
        figure.text(x, 0.91, title, color=color, fontsize=14, fontweight='bold')
        note = f'{len(state.loops)} loop closures, ' if column else ''
        figure.text(x, 0.83, f'{note}error {error:.2f} m', color=INK, fontsize=11)
    figure.text(0.98, 0.91, 'ground truth in gray', color=MUTED, fontsize=9, ha='right')
    buffer = io.BytesIO()
    figure.savefig(buffer, format='png')
    return Image.open(buffer).convert('RGB')


def frame_axes(axes: Axes, whole: State) -> None:
    """Give every frame the same limits, and no ticks."""
    every = np.concatenate([whole.truth, whole.odometry])[:, :2]
    low, high = every.min(axis=0) - 8, every.max(axis=0) + 8
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect='equal')
    axes.axis('off')


def main() -> None:
    """Draw all frames and write the animation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('scans', type=Path)
    parser.add_argument('truth', type=Path)
    parser.add_argument('--out', type=Path, default=Path(__file__).with_suffix('.gif'))
    args = parser.parse_args()
    drive = states(args.scans, args.truth)
    frames = [draw(state, drive[-1]) for state in drive]
    # One palette for all frames: a palette per frame flickers.
    palette = frames[-1].quantize(48)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [FRAME_MS] * (len(frames) - 1) + [LAST_FRAME_MS]
    frames[0].save(
        args.out, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True
    )


if __name__ == '__main__':
    main()
