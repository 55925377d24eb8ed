"""Reader of the loops.csv that the offline command writes."""

import csv

import numpy as np

from lpr_ros.core.geometry.se3 import pose_from_quaternion
from lpr_ros.core.offline.export import COVARIANCE, POSE, UPPER
from lpr_ros.core.types import LoopClosure, Match


def read_loops(path):
    with path.open(newline='', encoding='utf-8') as stream:
        return [_loop(row) for row in csv.DictReader(stream)]


def _loop(row):
    values = [float(row[name]) for name in POSE]
    covariance = np.zeros((6, 6))
    for (i, j), name in zip(UPPER, COVARIANCE, strict=True):
        covariance[i, j] = covariance[j, i] = float(row[name])
    match_id = int(row['match_id'])
    return LoopClosure(
        int(row['query_id']),
        match_id,
        pose_from_quaternion(values[:3], values[3:]),
        covariance,
        float(row['overlap']),
        int(row['inliers']),
        Match(match_id, float(row['distance']), float(row['probability'])),
    )
