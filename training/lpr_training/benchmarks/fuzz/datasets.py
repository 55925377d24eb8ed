"""Fuzz targets: the files of every dataset format."""

from collections.abc import Callable, Sequence
import io
from pathlib import Path
import pickle
from random import Random
import zipfile

import numpy as np

from lpr_training.benchmarks.fuzz.files import START_NS, poses, scans
from lpr_training.benchmarks.fuzz.mutations import BINARY, MIXED, Mutation
from lpr_training.benchmarks.fuzz.target import Target, files_target
from lpr_training.datasets.base import PlaceDataset, PlaceSample
from lpr_training.datasets.formats.pcd import read_pcd, write_pcd
from lpr_training.datasets.kitti import KittiDataset, write_kitti
from lpr_training.datasets.kitti_bev import KittiBevDataset
from lpr_training.datasets.oxford import POINTS, OxfordDataset, write_oxford
from lpr_training.datasets.oxford_raw import read_ins, read_timestamps
from lpr_training.datasets.packed_scans import ScansDataset
from lpr_training.datasets.places import PlacesDataset, write_places
from lpr_training.datasets.splits.evaluation_sets import EvaluationSets, make_evaluation_sets
from lpr_training.datasets.splits.published_pickles import import_evaluation, import_training
from lpr_training.datasets.splits.tuples import TrainingTuples, make_tuples
from lpr_training.datasets.wild_places import WildPlacesDataset, write_wild_places


def read_all(dataset: PlaceDataset) -> None:
    """Read every place and check that points and poses are finite."""
    assert np.isfinite(dataset.T_world_sensor).all()
    for place in (dataset[i] for i in range(len(dataset))):
        assert place.points.ndim == 2
        assert place.points.shape[1] == 3
        assert place.points.dtype == np.float32
        assert np.isfinite(place.points).all()


def kitti(folder: Path) -> Target:
    """Damage scans, poses, times and calibration."""
    root = folder / 'kitti'
    write_kitti(root, '00', scans())
    return files_target('kitti', root, lambda: read_all(KittiDataset(root)))


def oxford(folder: Path) -> Target:
    """Damage submaps and tables of the Oxford benchmark layout."""
    root, rng = folder / 'oxford', np.random.default_rng(0)
    clouds = [
        PlaceSample(
            rng.uniform(-1, 1, (POINTS, 3)).astype(np.float32), T, START_NS + i * 10**9, 'r', ''
        )
        for i, T in enumerate(poses(2))
    ]
    write_oxford(root, 'run', clouds)
    return files_target('oxford', root, lambda: read_all(OxfordDataset(root)))


def oxford_raw(folder: Path) -> Target:
    """Damage timestamps and INS poses of a raw Oxford recording."""
    root = folder / 'raw'
    root.mkdir()
    times = [START_NS // 1000 + 20_000 * i for i in range(6)]
    (root / 'lms.timestamps').write_text(''.join(f'{t} 1\n' for t in times), encoding='ascii')
    header = 'timestamp,northing,easting,down,roll,pitch,yaw\n'
    rows = ''.join(f'{t},573500{i}.5,620000.0,-120.0,0.0,0.1,0.2\n' for i, t in enumerate(times))
    (root / 'ins.csv').write_text(header + rows, encoding='ascii')

    def read() -> None:
        read_timestamps(root / 'lms.timestamps')
        assert np.isfinite(read_ins(root / 'ins.csv').T).all()

    return files_target('oxford raw', root, read)


def wild_places(layout: str) -> Callable[[Path], Target]:
    """Return the factory of the target of a Wild-Places layout."""

    def make(folder: Path) -> Target:
        root = folder / 'wild'
        write_wild_places(root, layout, 'V-01', scans())
        return files_target(
            f'wild places {layout}', root, lambda: read_all(WildPlacesDataset(root))
        )

    return make


def places(folder: Path) -> Target:
    """Damage the layout written by convert.py."""
    root = folder / 'places'
    write_places(root, 'run', scans())
    return files_target('places', root, lambda: read_all(PlacesDataset(root)), MIXED)


def pcd(folder: Path) -> Target:
    """Damage ASCII, binary and compressed PCD files."""
    root = folder / 'pcd'
    root.mkdir()
    points = scans(1)[0].points
    write_pcd(root / 'binary.pcd', points)
    header = (root / 'binary.pcd').read_bytes().partition(b'DATA')[0]
    rows = '\n'.join(' '.join(f'{v:.3f}' for v in row) for row in points)
    (root / 'ascii.pcd').write_bytes(header + b'DATA ascii\n' + rows.encode())
    raw = np.ascontiguousarray(points.T, dtype='<f4').tobytes()
    parts = [raw[i : i + 32] for i in range(0, len(raw), 32)]
    packed = b''.join(bytes([len(part) - 1]) + part for part in parts)  # literal runs only
    sizes = np.array([len(packed), len(raw)], dtype='<u4').tobytes()
    compressed = root / 'compressed.pcd'
    compressed.write_bytes(header + b'DATA binary_compressed\n' + sizes + packed)

    def read() -> None:
        for path in sorted(root.glob('*.pcd')):
            assert np.isfinite(read_pcd(path)).all()

    return files_target('pcd', root, read, MIXED)


def packed(folder: Path) -> Target:
    """Damage packed scans and bird's-eye-view counts, half of the time inside the archive."""
    root = folder / 'packed'
    root.mkdir()
    clouds = scans()
    np.savez_compressed(
        root / 'scans_a.npz',
        points_cm=np.concatenate([(s.points * 100).astype(np.int16) for s in clouds]),
        offsets=np.cumsum([0, *(len(s.points) for s in clouds)]),
        stamps_ns=np.array([s.stamp_ns for s in clouds]),
        T_odom_sensor=np.stack([s.T_odom_sensor for s in clouds]),
    )
    counts = np.random.default_rng(0).integers(0, 2, (2, 151, 151), dtype=np.uint8)
    np.savez_compressed(
        root / 'kitti_bev_00.npz', counts=counts, T_world_sensor=np.stack(poses(2))[:, :3]
    )

    def read() -> None:
        read_all(ScansDataset(root))
        read_all(KittiBevDataset(root))

    return files_target('packed', root, read, _archive_mutations())


def protocols(folder: Path) -> Target:
    """Damage training tuples and evaluation sets."""
    root = folder / 'protocols'
    root.mkdir()
    xy = np.random.default_rng(0).uniform(0.0, 30.0, (12, 2))
    make_tuples(xy, 10.0, 20.0).save(root / 'tuples.npz')
    is_query = np.arange(12) % 2 == 0
    make_evaluation_sets(['a'] * 6 + ['b'] * 6, xy, is_query, 15.0).save(root / 'sets.npz')

    def read() -> None:
        tuples = TrainingTuples.load(root / 'tuples.npz')
        for i in range(len(tuples)):
            assert (tuples.non_negatives[i] < len(tuples)).all()
            assert (tuples.positives[i] < len(tuples)).all()
        sets = EvaluationSets.load(root / 'sets.npz')
        for run in range(len(sets.runs)):
            sets.database_of(run)
            for query in sets.queries_of(run):
                sets.true_of(int(query), run)

    return files_target('protocols', root, read, _archive_mutations())


def published(folder: Path) -> Target:
    """Damage pickles as published with the Oxford benchmark."""
    root = folder / 'published'
    root.mkdir()
    train = {
        i: {'query': f'a/{i}.bin', 'positives': [1 - i], 'negatives': np.arange(2, 4)}
        for i in range(2)
    }
    database = [{i: {'query': f'x/{run}/c/{i}.bin', 'northing': np.float64(1.5)}
                 for i in range(2)} for run in ('r', 's')]  # fmt: skip
    queries = [{0: {'query': 'x/r/c/0.bin', 1: [0, 1]}}, {0: {'query': 'x/s/c/1.bin', 0: [1]}}]
    for name, value in (('train', train), ('database', database), ('queries', queries)):
        for protocol in (2, 4):
            path = root / f'{name}{protocol}.pickle'
            path.write_bytes(pickle.dumps(value, protocol=protocol))

    def read() -> None:
        for protocol in (2, 4):
            import_training(root / f'train{protocol}.pickle')
            import_evaluation(
                root / f'database{protocol}.pickle', root / f'queries{protocol}.pickle'
            )

    return files_target('published', root, read)


def _archive_mutations() -> tuple[Mutation, ...]:
    return (*BINARY, *(_in_member(mutation) for mutation in MIXED))


def _in_member(mutation: Mutation) -> Mutation:
    """Apply a mutation to one array of an npz file, keeping the archive valid."""

    def change(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
        except Exception:  # already damaged
            return data
        if not members:
            return data
        name = random.choice(list(members))
        members[name] = bytes(mutation(bytearray(members[name]), random, list(members.values())))
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, 'w', zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return bytearray(stream.getvalue())

    return change
