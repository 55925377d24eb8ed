"""Triangle meshes with materials, and the operations that worlds are built with."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
import trimesh

from lpr_training.simulator.geometry.materials import Material


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles with a material each."""

    vertices: NDArray[np.float32]  # (V, 3), meters
    faces: NDArray[np.int32]  # (F, 3), indices into vertices
    material: NDArray[np.uint8]  # (F,), Material

    def tobytes(self) -> bytes:
        """Return the contents as bytes, for comparison."""
        return self.vertices.tobytes() + self.faces.tobytes() + self.material.tobytes()


def empty() -> Mesh:
    """Return a mesh without triangles."""
    return Mesh(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32), np.zeros(0, np.uint8))


def merge(meshes: Iterable[Mesh]) -> Mesh:
    """Concatenate meshes."""
    parts = [m for m in meshes if len(m.faces)]
    if not parts:
        return empty()
    offsets = np.cumsum([0] + [len(m.vertices) for m in parts[:-1]])
    return Mesh(
        np.concatenate([m.vertices for m in parts]),
        np.concatenate([m.faces + np.int32(o) for m, o in zip(parts, offsets, strict=True)]),
        np.concatenate([m.material for m in parts]),
    )


def instances(
    mesh: Mesh, position: ArrayLike, yaw: ArrayLike, scale: ArrayLike | None = None
) -> Mesh:
    """Copy a mesh to N poses: position (N, 3), yaw (N,) about z, scale (N, 3)."""
    where = np.atleast_2d(np.asarray(position, np.float64))
    angle = np.broadcast_to(np.asarray(yaw, np.float64), len(where))
    size = np.ones((1, 3)) if scale is None else np.asarray(scale, np.float64)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    local = mesh.vertices[None].astype(np.float64) * np.broadcast_to(size, where.shape)[:, None]
    x = c * local[..., 0] - s * local[..., 1] + where[:, None, 0]
    y = s * local[..., 0] + c * local[..., 1] + where[:, None, 1]
    z = local[..., 2] + where[:, None, 2]
    count, step = len(where), len(mesh.vertices)
    faces = mesh.faces[None] + (np.arange(count, dtype=np.int32) * step)[:, None, None]
    return Mesh(
        np.stack([x, y, z], axis=-1).reshape(-1, 3).astype(np.float32),
        faces.reshape(-1, 3).astype(np.int32),
        np.tile(mesh.material, count),
    )


def moved(mesh: Mesh, xyz: Sequence[float], yaw: float = 0.0) -> Mesh:
    """Copy a mesh to a pose."""
    return instances(mesh, [xyz], [yaw])


def quads(corners: ArrayLike, material: ArrayLike) -> Mesh:
    """Triangulate Q quadrilaterals: corners (Q, 4, 3), material () or (Q,)."""
    points = np.asarray(corners, np.float32).reshape(-1, 4, 3)
    count = len(points)
    base = 4 * np.arange(count, dtype=np.int32)[:, None, None]
    faces = base + np.array([[0, 1, 2], [0, 2, 3]], np.int32)
    kind = np.broadcast_to(np.asarray(material, np.uint8), count)
    return Mesh(points.reshape(-1, 3), faces.reshape(-1, 3), np.repeat(kind, 2))


def triangles(corners: ArrayLike, material: Material) -> Mesh:
    """Make a mesh of T separate triangles: corners (T, 3, 3)."""
    points = np.asarray(corners, np.float32).reshape(-1, 3)
    faces = np.arange(len(points), dtype=np.int32).reshape(-1, 3)
    return Mesh(points, faces, np.full(len(faces), material, np.uint8))


def from_trimesh(source: trimesh.Trimesh, material: Material) -> Mesh:
    """Convert a trimesh to a mesh of one material."""
    return Mesh(
        np.asarray(source.vertices, np.float32),
        np.asarray(source.faces, np.int32),
        np.full(len(source.faces), material, np.uint8),
    )


_BOX = from_trimesh(trimesh.creation.box(), Material.CONCRETE)


def box(size: Sequence[float], center: Sequence[float], material: Material) -> Mesh:
    """Make an axis-aligned box."""
    vertices = (_BOX.vertices * np.asarray(size) + np.asarray(center)).astype(np.float32)
    return Mesh(vertices, _BOX.faces, np.full(len(_BOX.faces), material, np.uint8))


def hull(points: ArrayLike, material: Material) -> Mesh:
    """Make the convex hull of some points."""
    return from_trimesh(trimesh.convex.convex_hull(np.asarray(points, np.float64)), material)


def tube(
    start: ArrayLike,
    end: ArrayLike,
    radii: tuple[float, float],
    material: Material,
    sides: int = 6,
) -> Mesh:
    """Make an open tapered tube between two points, for trunks, branches and poles."""
    a, b = np.asarray(start, np.float64), np.asarray(end, np.float64)
    along = (b - a) / np.linalg.norm(b - a)
    helper = np.array([1.0, 0.0, 0.0]) if abs(along[0]) < 0.9 else np.array([0.0, 1.0, 0.0])
    u = np.cross(along, helper)
    u /= np.linalg.norm(u)
    v = np.cross(along, u)
    angle = np.linspace(0.0, 2.0 * np.pi, sides, endpoint=False)
    ring = np.cos(angle)[:, None] * u + np.sin(angle)[:, None] * v
    low, high = a + radii[0] * ring, b + radii[1] * ring
    corners = np.stack([low, np.roll(low, -1, 0), np.roll(high, -1, 0), high], axis=1)
    return quads(corners, material)
