"""Damaged and hostile scans and odometry."""

import array
from collections.abc import Callable
import copy
from random import Random
import zlib

from geometry_msgs.msg import Quaternion
from nav_msgs.msg import Odometry
import numpy as np
from sensor_msgs.msg import PointCloud2

from lpr_ros.conversions.clouds import cloud_message
from lpr_ros.conversions.poses import odometry_message
from lpr_ros.core.io.pointcloud2 import pack_cloud

EXTREME_SECONDS = (-(2**31), -1, 0, 1, 2**31 - 1)
EXTREME_NANOSECONDS = (0, 10**9 - 1, 10**9, 2**32 - 1)
NOISE_POINTS = 3000


def copied(cloud: PointCloud2) -> PointCloud2:
    """Return a copy that shares the data, which mutations replace and never change."""
    made = copy.copy(cloud)
    made.header = copy.deepcopy(cloud.header)
    made.fields = copy.deepcopy(cloud.fields)
    return made


def _with_values(cloud: PointCloud2, random: Random, value: float, fraction: float) -> None:
    """Overwrite the coordinates of some points."""
    rows = np.frombuffer(bytes(cloud.data), np.uint8).reshape(-1, cloud.point_step).copy()
    chosen = np.random.default_rng(random.getrandbits(32)).random(len(rows)) < fraction
    rows[chosen, :12] = np.full(3, value, '<f4').view(np.uint8)
    cloud.data = array.array('B', rows.tobytes())


def _some_nan(cloud: PointCloud2, random: Random) -> None:
    _with_values(cloud, random, np.nan, 0.3)


def _all_nan(cloud: PointCloud2, random: Random) -> None:
    _with_values(cloud, random, np.nan, 1.1)


def _infinite(cloud: PointCloud2, random: Random) -> None:
    _with_values(cloud, random, np.inf, random.choice((0.1, 1.1)))


def _far(cloud: PointCloud2, random: Random) -> None:
    _with_values(cloud, random, random.choice((1e6, 1e30, -3e38)), random.choice((0.1, 1.1)))


def _empty(cloud: PointCloud2, random: Random) -> None:
    cloud.width, cloud.row_step, cloud.data = 0, 0, array.array('B')


def _truncated(cloud: PointCloud2, random: Random) -> None:
    cloud.data = cloud.data[: random.randrange(len(cloud.data))]


def _compressed(cloud: PointCloud2, random: Random) -> None:
    """Put an encoded cloud into a plain one, as some transports do."""
    cloud.data = array.array('B', zlib.compress(bytes(cloud.data), 1))
    if random.random() < 0.5:  # consistent sizes: one row of bytes
        cloud.height, cloud.width = 1, 1
        cloud.point_step = cloud.row_step = len(cloud.data)


def _layout(cloud: PointCloud2, random: Random) -> None:
    name = random.choice(('height', 'width', 'point_step', 'row_step'))
    setattr(cloud, name, random.choice((0, 1, 7, 2**31, 2**32 - 1)))


def _fields(cloud: PointCloud2, random: Random) -> None:
    field = random.choice(cloud.fields)
    field.offset, field.datatype = random.choice(((2**32 - 1, 7), (0, 200), (0, 0), (5, 8)))


def _no_fields(cloud: PointCloud2, random: Random) -> None:
    cloud.fields = []


def _big_endian(cloud: PointCloud2, random: Random) -> None:
    cloud.is_bigendian = True


def _frame(cloud: PointCloud2, random: Random) -> None:
    names = ('', 'lídar/雷达', 'a\nb', 'x' * 100_000, f'lidar_{random.getrandbits(32)}')
    cloud.header.frame_id = random.choice(names)


# Whether the scan still shows its place.
MUTATIONS: dict[Callable[[PointCloud2, Random], None], bool] = {
    _some_nan: True,
    _all_nan: False,
    _infinite: True,
    _far: True,
    _empty: False,
    _truncated: False,
    _compressed: False,
    _layout: False,
    _fields: False,
    _no_fields: False,
    _big_endian: False,
    _frame: True,
}


def damaged(cloud: PointCloud2, random: Random) -> tuple[PointCloud2, bool]:
    """Return a damaged copy, and whether it still shows its place."""
    made = copied(cloud)
    mutation = random.choice(list(MUTATIONS))
    mutation(made, random)
    return made, MUTATIONS[mutation]


def noise(random: Random) -> PointCloud2:
    """Return a valid scan of random points, which shows no place."""
    rng = np.random.default_rng(random.getrandbits(32))
    points = rng.uniform((-30, -30, -2), (30, 30, 8), (NOISE_POINTS, 3)).astype(np.float32)
    return cloud_message(0, 'lidar', pack_cloud(points))


def hostile_odometry(stamp_ns: int, random: Random) -> Odometry:
    """Return odometry with a bad pose, a bad stamp or bad frames."""
    T = np.eye(4)
    T[:3, 3] = [random.choice((0.0, 1.0, -1e5, 1e300)) for _ in range(3)]
    message = odometry_message(stamp_ns, 'odom', 'lidar', T)
    kind = random.randrange(5)
    if kind == 0:
        message.pose.pose.position.x = random.choice((float('nan'), float('inf')))
    elif kind == 1:
        value = random.choice((0.0, float('nan'), 1e-300, 1e300))
        message.pose.pose.orientation = Quaternion(x=value, y=value, z=value, w=value)
    elif kind == 2:
        message.header.stamp.sec = random.choice(EXTREME_SECONDS)
        message.header.stamp.nanosec = random.choice(EXTREME_NANOSECONDS)
    elif kind == 3:
        message.header.frame_id = random.choice(('', 'map', 'x' * 10_000, 'ödom\n'))
        message.child_frame_id = random.choice(('', 'base_link', f'base_{random.getrandbits(16)}'))
    return message
