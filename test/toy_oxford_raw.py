"""Write a small raw RobotCar recording: LMS scans and INS poses."""

import numpy as np

from lpr_training.datasets.oxford_raw import SubmapConfig

RUN = '2014-05-19-13-20-57'
START_US = 1_400_505_893_170_765
SPEED_M_PER_SCAN = 0.25
CONFIG = SubmapConfig(skip_first=2, skip_last=2)
INS_HEADER = (
    'timestamp,ins_status,latitude,longitude,altitude,northing,easting,down,utm_zone,'
    'velocity_north,velocity_east,velocity_down,roll,pitch,yaw'
)


def street(rng):
    """Return the cross-section of a street as seen by a push-broom scan: right, down."""
    ground = np.column_stack([rng.uniform(-8, 8, 60), np.full(60, 1.9)])
    wall = np.column_stack([np.full(60, 9.0), rng.uniform(-6, 1.9, 60)])
    roof = np.column_stack([rng.uniform(-9, -3, 20), np.full(20, -6.0)])
    return np.concatenate([ground, wall, roof])


def write_raw_run(root, scans=200, *, northing=5735000.0, easting=620000.0):
    """Write a drive to the north, with the laser plane perpendicular to it."""
    rng = np.random.default_rng(0)
    (root / 'extrinsics').mkdir(parents=True)
    # x of the laser is right and y is down in the vehicle frame; the INS is 1 m behind.
    (root / 'extrinsics/lms_front.txt').write_text(f'1.5 0 -1 {np.pi / 2} 0 {np.pi / 2}\n')
    (root / 'extrinsics/ins.txt').write_text('-1.0 0 0 0 0 0\n')
    folder = root / RUN
    (folder / 'lms_front').mkdir(parents=True)
    (folder / 'gps').mkdir()
    times = START_US + 20_000 * np.arange(scans)
    for time in times:
        right_down = street(rng)
        scan = np.column_stack([right_down, rng.random(len(right_down))])
        (folder / 'lms_front' / f'{time}.bin').write_bytes(scan.astype('<f8').tobytes())
    (folder / 'lms_front.timestamps').write_text(''.join(f'{t} 1\n' for t in times))
    rows = [INS_HEADER]
    for i in range(-1, scans + 1, 1):
        north = northing + SPEED_M_PER_SCAN * i
        rows.append(
            f'{START_US + 20_000 * i},INS_SOLUTION_GOOD,0,0,0,{north:.6f},{easting},'
            f'-120.0,30U,0,0,0,0,0,0'
        )
    (folder / 'gps/ins.csv').write_text('\n'.join(rows) + '\n')
    return root
