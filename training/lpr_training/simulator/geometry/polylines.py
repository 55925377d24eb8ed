"""Operations on planar polylines."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d

Line = NDArray[np.float64]  # (M, 2)


def arc_length(line: Line) -> NDArray[np.float64]:
    """Return the distance along the line at each vertex, starting at 0."""
    return np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])


def resample(line: ArrayLike, spacing_m: float) -> Line:
    """Return equally spaced points along the line, including both ends."""
    points = np.asarray(line, np.float64)
    s = arc_length(points)
    keep = np.concatenate([[True], np.diff(s) > 1e-9])
    points, s = points[keep], s[keep]
    count = max(2, round(float(s[-1]) / spacing_m) + 1)
    at = np.linspace(0.0, s[-1], count)
    return np.stack([np.interp(at, s, points[:, i]) for i in range(2)], axis=1)


def tangents(line: Line) -> NDArray[np.float64]:
    """Return the unit direction of travel at each vertex."""
    step = np.gradient(line, axis=0)
    return step / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-9)


def left_normals(line: Line) -> NDArray[np.float64]:
    """Return unit normals to the left of the direction of travel."""
    t = tangents(line)
    return np.stack([-t[:, 1], t[:, 0]], axis=1)


def smooth(line: Line, spacing_m: float, width_m: float) -> Line:
    """Round the corners of an evenly spaced line over `width_m`, keeping its ends."""
    sigma = width_m / spacing_m
    soft = gaussian_filter1d(line, sigma, axis=0, mode='nearest')
    s = np.arange(len(line)) * spacing_m
    to_end = np.minimum(s, s[-1] - s)
    blend = np.clip(to_end / (3.0 * width_m), 0.0, 1.0)[:, None]
    return blend * soft + (1.0 - blend) * line


def yaw_of(line: Line) -> NDArray[np.float64]:
    """Return the unwrapped heading at each vertex, radians."""
    t = tangents(line)
    return np.unwrap(np.arctan2(t[:, 1], t[:, 0]))
