"""Ray casting, and the measurement model that turns hits into LiDAR returns."""

from dataclasses import dataclass

from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from lpr_training.simulator.geometry.materials import LOSS, REFLECTIVITY
from lpr_training.simulator.geometry.mesh import Mesh
from lpr_training.simulator.sensor.model import Sensor

EDGE_M = (0.3, 2.5)  # range steps at which mixed pixels occur
MIXED_PIXEL_PROBABILITY = 0.25
POWER_SIGMA = 0.3  # log-normal spread of the returned power

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Hits:
    """Hits of N rays; the range is infinite without a hit."""

    range_m: Floats  # (N,)
    cosine: Floats  # (N,), of the angle of incidence
    material: NDArray[np.uint8]  # (N,)


@dataclass(frozen=True, eq=False)
class Returns:
    """The returns of one sweep, ring by ring."""

    points: Floats  # (N, 3), in the sensor frame at the time of each measurement
    intensity: Floats  # (N,)
    ring: NDArray[np.uint16]  # (N,)
    phase: Floats  # (N,), time as a fraction of the sweep


class Scene:
    """Triangles to cast rays at."""

    def __init__(self, mesh: Mesh) -> None:
        self._scene = EmbreeScene()
        self._mesh = TriangleMesh(self._scene, mesh.vertices, mesh.faces)
        self._material = mesh.material

    def cast(self, origins: Floats, directions: Floats, max_range_m: float) -> Hits:
        """Return the first hit of each ray; directions (N, 3) need not be unit vectors."""
        max_range = np.full(len(origins), max_range_m, np.float32)
        found = self._scene.run(origins, directions, dists=max_range, output=1)
        triangle, normal = found['primID'], found['Ng']
        hit = triangle >= 0
        dot = np.abs(np.einsum('ni,ni->n', normal, directions))
        length = np.sqrt(np.einsum('ni,ni->n', normal, normal))
        cosine = np.divide(dot, length, out=np.zeros_like(dot), where=hit)
        range_m = np.where(hit, found['tfar'], np.float32(np.inf))
        return Hits(range_m, cosine, self._material[np.where(hit, triangle, 0)])


class Scanner:
    """One sensor in one world."""

    def __init__(self, mesh: Mesh, sensor: Sensor) -> None:
        self._sensor = sensor
        self._scene = Scene(mesh)
        self._directions = sensor.directions()
        beams, columns = self._directions.shape[:2]
        self._ring = np.repeat(np.arange(beams, dtype=np.uint16), columns)
        self._phase = np.tile(sensor.sweep_phase().astype(np.float32), beams)

    def sweep(
        self,
        T_world_sensor: NDArray[np.float64],
        T_start_end: NDArray[np.float64],
        rng: np.random.Generator,
        vehicles: Mesh | None = None,
    ) -> Returns:
        """Simulate a sweep that starts at a pose and moves by `T_start_end`."""
        nominal = self._directions.astype(np.float32).reshape(-1, 3)
        spread = rng.standard_normal(nominal.shape, np.float32)
        spread *= np.float32(self._sensor.divergence_mrad * 1e-3 / 4.0)
        origins, directions = self._in_world(T_world_sensor, T_start_end, nominal + spread)
        hits = self._scene.cast(origins, directions, self._sensor.max_range_m)
        if vehicles is not None and len(vehicles.faces):
            other = Scene(vehicles).cast(origins, directions, self._sensor.max_range_m)
            hits = _nearer(hits, other)
        return self._measure(hits, nominal, rng)

    def _in_world(
        self, T_world_sensor: NDArray[np.float64], T_start_end: NDArray[np.float64], rays: Floats
    ) -> tuple[Floats, Floats]:
        """Return origins and directions of all rays, from the sensor pose at each firing."""
        beams, columns = self._directions.shape[:2]
        phase = self._sensor.sweep_phase()[:, None]
        turn = Rotation.from_rotvec(phase * Rotation.from_matrix(T_start_end[:3, :3]).as_rotvec())
        R = (T_world_sensor[:3, :3] @ turn.as_matrix()).astype(np.float32)
        origin = T_world_sensor[:3, 3] + phase * T_start_end[:3, 3] @ T_world_sensor[:3, :3].T
        origins = np.broadcast_to(origin.astype(np.float32), (beams, columns, 3)).reshape(-1, 3)
        local = rays.reshape(beams, columns, 1, 3)
        directions = np.matmul(local, R.transpose(0, 2, 1)[None])
        return np.ascontiguousarray(origins), np.ascontiguousarray(directions.reshape(-1, 3))

    def _measure(self, hits: Hits, nominal: Floats, rng: np.random.Generator) -> Returns:
        """Apply range noise, mixed pixels, dropouts and intensity."""
        sensor, count = self._sensor, len(nominal)
        chance = rng.random((3, count), np.float32)
        noise = rng.standard_normal((3, count), np.float32)
        range_m = self._mix_pixels(hits.range_m, chance[0])
        range_m = range_m + np.float32(sensor.range_sigma_m) * noise[0]
        reflectivity = REFLECTIVITY[hits.material]
        lambert = np.float32(0.25) + np.float32(0.75) * hits.cosine
        power = 10.0 * reflectivity * lambert * np.exp(POWER_SIGMA * noise[1])
        power *= (sensor.range_at_10_percent_m / np.maximum(range_m, 0.1)) ** 2
        valid = (power > 1.0) & (chance[1] >= LOSS[hits.material]) & (chance[2] >= sensor.dropout)
        valid &= (range_m >= sensor.min_range_m) & (range_m <= sensor.max_range_m)
        level = reflectivity[valid] * (0.75 + 0.5 * hits.cosine[valid]) + 0.05 * noise[2][valid]
        intensity = np.round(np.clip(level, 0.0, 1.0) * 255.0) / 255.0
        points = nominal[valid] * range_m[valid, None]
        return Returns(
            points.astype(np.float32), intensity.astype(np.float32), self._ring[valid],
            self._phase[valid],
        )  # fmt: skip

    def _mix_pixels(self, range_m: Floats, chance: Floats) -> Floats:
        """Add mixed pixels: ranges between two surfaces where a beam hits an edge."""
        if self._sensor.divergence_mrad <= 0.0:
            return range_m
        rows = range_m.reshape(self._directions.shape[:2])
        # Infinite ranges (no hit) would give NaN.
        finite = np.minimum(rows, np.float32(1e6))
        step = (np.roll(finite, -1, axis=1) - finite).ravel()
        size = np.abs(step)
        mixed = (size > EDGE_M[0]) & (size < EDGE_M[1]) & (chance < MIXED_PIXEL_PROBABILITY)
        return range_m + np.where(mixed, step * chance / MIXED_PIXEL_PROBABILITY, np.float32(0.0))


def _nearer(a: Hits, b: Hits) -> Hits:
    first = a.range_m <= b.range_m
    return Hits(
        np.where(first, a.range_m, b.range_m),
        np.where(first, a.cosine, b.cosine),
        np.where(first, a.material, b.material),
    )
