"""sensor_msgs/PointCloud2 and the core's scans."""

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2, PointField

from lpr_ros.core.pointcloud2 import PackedCloud, read_cloud, stamp_ns
from lpr_ros.core.records import Scan
from lpr_ros.pose_messages import header_message


def scan_from_message(
    message: PointCloud2, T_odom_sensor: NDArray[np.float64] | None = None
) -> Scan:
    """Read the finite points of any PointCloud2; CloudError says what is wrong with one."""
    return Scan(read_cloud(message).points, stamp_ns(message.header), T_odom_sensor)


def cloud_message(stamp_ns: int, frame_id: str, packed: PackedCloud) -> PointCloud2:
    """Make a message of a packed cloud."""
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
    # Bytes are taken as they are; an array would be checked number by number: 300 ms for 4 MB.
    message.data = packed.data
    return message
