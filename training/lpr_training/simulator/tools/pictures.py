"""Pictures of a world from above with its drive, and of single scans."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_training.simulator.drive.drive import Drive
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.sensor.scanner import Scene
from lpr_training.simulator.world.world import World

PIXELS = 1400  # side of the picture of a world

COLORS: dict[Material, str] = {
    Material.ASPHALT: '#9a9a9a',
    Material.CONCRETE: '#c4bfb6',
    Material.BRICK: '#a0522d',
    Material.PLASTER: '#d9c7a0',
    Material.GLASS: '#5b7fa6',
    Material.PAINT: '#b02a30',
    Material.RUBBER: '#222222',
    Material.BARK: '#6b4a2b',
    Material.LEAF: '#3f8f3f',
    Material.GRASS: '#cfe3b4',
    Material.SOIL: '#b89f7a',
    Material.SNOW: '#f4f8ff',
    Material.SIGN: '#e8b800',
    Material.WOOD: '#96703f',
    Material.ROOF: '#7d3b33',
    Material.METAL: '#55606b',
}


def draw_world(world: World, drive: Drive, path: Path) -> None:
    """Draw a world from above with its drive."""
    low, size = np.asarray(world.plan.origin), np.asarray(world.plan.size_m)
    image = _from_above(world, low, size)
    figure = Figure(figsize=(10, 10), dpi=110, layout='constrained')
    axes = figure.add_subplot()
    extent = (low[0], low[0] + size[0], low[1], low[1] + size[1])
    axes.imshow(image, origin='lower', extent=extent, interpolation='antialiased')
    share = np.linspace(0.0, 1.0, len(drive.xy[::8]))
    axes.scatter(drive.xy[::8, 0], drive.xy[::8, 1], c=share, cmap='plasma', s=3.0)
    axes.set(xlabel='x (m)', ylabel='y (m)')
    axes.set_title(f'{world.kind}, seed {world.seed}, day {world.day.number}; drive of '
                   f'{drive.length_m:.0f} m from dark to bright')  # fmt: skip
    figure.savefig(path)


def _from_above(
    world: World, low: NDArray[np.float64], size: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Render from above with one ray per pixel; slopes are shaded."""
    step = float(size.max()) / PIXELS
    x, y = np.meshgrid(np.arange(0.0, size[0], step), np.arange(0.0, size[1], step))
    origins = np.stack([low[0] + x, low[1] + y, np.full_like(x, 500.0)], axis=-1)
    flat = origins.reshape(-1, 3).astype(np.float32)
    down = np.tile(np.array([0.0, 0.0, -1.0], np.float32), (len(flat), 1))
    hits = Scene(world.mesh()).cast(flat, down, 2000.0)
    palette = np.array([to_rgb(COLORS[k]) for k in Material], np.float32)
    shade = 0.45 + 0.55 * hits.cosine[:, None]
    color = np.where(np.isfinite(hits.range_m)[:, None], palette[hits.material] * shade, 1.0)
    return color.reshape(*x.shape, 3).astype(np.float32)


def draw_scan(points: NDArray[np.float32], path: Path, title: str = '') -> None:
    """Draw one scan from above, in perspective and as a range image."""
    figure = Figure(figsize=(14, 11), dpi=100, layout='constrained')
    grid = figure.add_gridspec(2, 2, height_ratios=(3, 1))
    birds_eye(figure.add_subplot(grid[0, 0]), points)
    perspective(figure.add_subplot(grid[0, 1]), points)
    range_image(figure.add_subplot(grid[1, :]), points)
    figure.suptitle(title or f'{len(points):,} points')
    figure.savefig(path)


def birds_eye(
    axes: Axes, points: NDArray[np.float32], range_m: float = 45.0, size: float = 0.25
) -> None:
    """Draw points from above, x up, colored by height."""
    near = points[np.abs(points[:, :2]).max(axis=1) < range_m]
    near = near[np.argsort(near[:, 2])]
    axes.scatter(-near[:, 1], near[:, 0], c=near[:, 2], s=size, cmap='turbo', vmin=-3.0, vmax=3.5,
                 linewidths=0)  # fmt: skip
    axes.set(xlim=(-range_m, range_m), ylim=(-range_m, range_m), aspect='equal')
    axes.set_facecolor('black')
    axes.set_xticks([])
    axes.set_yticks([])


def perspective(axes: Axes, points: NDArray[np.float32], size: float = 0.5) -> None:
    """Draw points as seen from behind and above the sensor."""
    eye, down = np.array([-14.0, 0.0, 8.0]), np.radians(18.0)
    local = points - eye
    depth = np.cos(down) * local[:, 0] - np.sin(down) * local[:, 2]
    up = np.sin(down) * local[:, 0] + np.cos(down) * local[:, 2]
    seen = (depth > 4.0) & (depth < 90.0)
    order = np.argsort(-depth[seen])
    u = (-local[seen, 1] / depth[seen])[order]
    v = (up[seen] / depth[seen])[order]
    scale = np.clip(20.0 / depth[seen][order], 0.3, 3.0)
    axes.scatter(u, v, c=points[seen, 2][order], s=size * scale, cmap='turbo', vmin=-3.0,
                 vmax=4.0, linewidths=0)  # fmt: skip
    axes.set(xlim=(-0.8, 0.8), ylim=(-0.55, 0.6), aspect='equal')
    axes.set_facecolor('black')
    axes.set_xticks([])
    axes.set_yticks([])


def range_image(
    axes: Axes, points: NDArray[np.float32], columns: int = 1024, rows: int = 64
) -> None:
    """Draw points as a range image: azimuth to the right, elevation up, near is bright."""
    r = np.linalg.norm(points, axis=1)
    azimuth = np.arctan2(points[:, 1], points[:, 0])
    elevation = np.arcsin(points[:, 2] / np.maximum(r, 1e-6))
    low, high = np.quantile(elevation, [0.0005, 0.9995])
    j = np.clip((0.5 - azimuth / (2.0 * np.pi)) * columns, 0, columns - 1).astype(int)
    i = np.clip((high - elevation) / (high - low) * rows, 0, rows - 1).astype(int)
    image = np.full((rows, columns), np.nan)
    order = np.argsort(-r)
    image[i[order], j[order]] = r[order]
    axes.imshow(np.log(image), aspect='auto', cmap='turbo_r', vmin=1.0, vmax=4.4,
                interpolation='nearest')  # fmt: skip
    axes.set_facecolor('black')
    axes.set(xlabel='left  -  ahead  -  right', xticks=[], yticks=[])
