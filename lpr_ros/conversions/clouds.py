"""Conversions between sensor_msgs/PointCloud2 and scans."""

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2, PointField

from lpr_ros.conversions.poses import header_message
from lpr_ros.core.io.pointcloud2 import PointCloud2Layout, read_cloud
from lpr_ros.core.timing import stamp_ns
from lpr_ros.core.types import Scan


def scan_from_message(
    message: PointCloud2, T_odom_sensor: NDArray[np.float64] | None = None
) -> Scan:
    """Return the finite points of a PointCloud2; CloudError if it is malformed."""
    return Scan(read_cloud(message).points, stamp_ns(message.header), T_odom_sensor)


def cloud_message(stamp_ns: int, frame_id: str, packed: PointCloud2Layout) -> PointCloud2:
    """Return the message of a packed cloud."""
    message = PointCloud2(
        header=header_message(stamp_ns, frame_id),
        height=1,
        width=packed.width,
        fields=[
            PointField(name=name, offset=offset, datatype=code, count=1)
            for name, offset, code in packed.fields
        ],
        is_bigendian=False,
        point_step=packed.point_step,
        row_step=packed.point_step * packed.width,
        is_dense=True,
    )
    # Bytes are stored unchecked; rclpy checks an array element by element, 300 ms for 4 MB.
    message.data = packed.data
    return message
