"""Fuzz targets: maps, checkpoints, configurations, recordings, pose graphs, pose files."""

from collections.abc import Callable, Sequence
from contextlib import closing
import hashlib
import itertools
from pathlib import Path
from random import Random
import struct

import numpy as np
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.typesys import Stores, get_typestore
import torch
import yaml

from lpr_ros.core.config import Config
from lpr_ros.core.database.map_file import DIGEST_BYTES, PREFIX
from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pose_files import read_kitti_poses, read_tum, write_kitti_poses, write_tum
from lpr_ros.core.model.calibration import Calibration
from lpr_ros.core.model.checkpoint import from_model, save_checkpoint
from lpr_ros.core.model.config import BackboneConfig, InputConfig, ModelConfig, PoolingConfig
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.import_minkloc import read_foreign_tensors
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.core.recordings.base import RecordingOptions
from lpr_ros.core.recordings.open import open_recording
from lpr_training.benchmarks.fuzz.mutations import MIXED, TEXT, Mutation, damage
from lpr_training.benchmarks.fuzz.target import DamagedFile, Target, files_target
from lpr_training.datasets.bag import BagDataset
from lpr_training.datasets.bag_writer import Messages, write_bag
from lpr_training.datasets.base import RecordedScan
from lpr_training.simulator.sensor.model import Sensor
from lpr_training.train.config import TrainConfig
from lpr_training.train.state_file import read_state, write_state

START_NS = 1_700_000_000_000_000_000
DIM = 8


def poses(count: int = 4) -> list[np.ndarray]:
    """Return poses along a curve."""
    return [pose_from_euler([i, 0.1 * i * i, 0.2], [0.01, 0.02, 0.1 * i]) for i in range(count)]


def scans(count: int = 3, points: int = 12) -> list[RecordedScan]:
    """Return small scans with every field that a driver publishes."""
    rng = np.random.default_rng(0)
    return [
        RecordedScan(
            rng.normal(scale=10.0, size=(points, 3)).astype(np.float32),
            rng.random(points).astype(np.float32),
            (np.arange(points) % 16).astype(np.uint16),
            np.linspace(0.0, 0.1, points, dtype=np.float32),
            START_NS + 100_000_000 * i,
            T,
            T,
        )
        for i, T in enumerate(poses(count))
    ]


def map_file(folder: Path) -> Target:
    """Damage maps, half of the time with corrected checksums."""
    path = folder / 'map'
    config = DatabaseConfig(exclude_s=0.0, exclude_m=0.0, exclude_keyframes=0)
    database = PlaceDatabase(config, DIM, fingerprint='f')
    rng = np.random.default_rng(0)
    for number, (scan, session) in enumerate(itertools.product(scans(), ('a', 'b'))):
        database.add(
            database.make_keyframe(
                rng.normal(size=DIM).astype(np.float32),
                scan.points,
                session=session,
                stamp_ns=scan.stamp_ns,
                T_odom_sensor=scan.T_odom_sensor if number % 3 else None,
            )
        )
    database.save(path)
    database.close()

    def read() -> None:
        loaded = PlaceDatabase.load(path, config, fingerprint='f')
        for i in range(len(loaded)):
            keyframe = loaded[i]
            assert np.isfinite(keyframe.points).all()
            assert np.isfinite(keyframe.descriptor).all()
            assert len(loaded.query(keyframe)) <= config.top_k
        loaded.close()

    signed = tuple(_signed(mutation) for mutation in MIXED)
    return files_target('map', path, read, (*MIXED, *signed))


def _signed(mutation: Mutation) -> Mutation:
    """Apply a mutation to the header or the body, then correct the length and checksums."""

    def change(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
        if len(data) < PREFIX.size + DIGEST_BYTES:
            return data
        magic, version, size = PREFIX.unpack_from(data)
        text = data[PREFIX.size : PREFIX.size + size]
        body = data[PREFIX.size + size + DIGEST_BYTES : -DIGEST_BYTES]
        if random.random() < 0.5:
            text = mutation(text, random, [bytes(text)])
        else:
            body = mutation(body, random, [bytes(body)])
        start = PREFIX.pack(magic, version, len(text)) + text
        whole = start + hashlib.sha256(start).digest() + body
        return bytearray(whole + hashlib.sha256(whole).digest())

    return change


def checkpoint(folder: Path) -> Target:
    """Damage checkpoints, often in their JSON header."""
    path = folder / 'model.safetensors'
    config = ModelConfig(
        input=InputConfig(),
        backbone=BackboneConfig(
            planes=(2,), layers=(1,), num_top_down=0, conv0_kernel_size=3, feature_size=2
        ),
        pooling=PoolingConfig(channels=2, clusters=2, hidden=2),
    )
    save_checkpoint(
        path, from_model(PlaceModel(config), calibration=Calibration().to_dict(), license='none')
    )

    def read() -> None:
        extractor = NetworkDescriptorExtractor.load(path)
        assert len(extractor.fingerprint) == 64

    in_header = tuple(_in_header(mutation) for mutation in TEXT)
    return files_target('checkpoint', path, read, (*MIXED, *in_header))


def _in_header(mutation: Mutation) -> Mutation:
    """Apply a mutation to the JSON header of a safetensors file and correct its length."""

    def change(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
        if len(data) < 8:
            return data
        size = struct.unpack_from('<Q', data)[0]
        text = mutation(data[8 : 8 + size], random, seeds)
        return bytearray(struct.pack('<Q', len(text)) + text + data[8 + size :])

    return change


def training_state(folder: Path) -> Target:
    """Damage the state of a training run, which must never resume with other tensors."""
    path = folder / 'state.pt'
    state = {'epoch': 3, 'model': {'kernel': torch.arange(60.0).reshape(3, 20)}}
    write_state(path, state)

    def read() -> None:
        loaded = read_state(path)
        assert loaded['epoch'] == state['epoch']
        assert torch.equal(loaded['model']['kernel'], state['model']['kernel'])

    return files_target('training state', path, read)


def foreign_checkpoint(folder: Path) -> Target:
    """Damage a .pth file of plain tensors."""
    path = folder / 'model.pth'
    torch.save({'state_dict': {'conv': torch.ones(3, 2), 'bias': torch.zeros(2)}}, path)
    return files_target('foreign checkpoint', path, lambda: read_foreign_tensors(path))


def config(folder: Path) -> Target:
    """Damage the YAML of every configuration file."""
    path = folder / 'config.yaml'
    kinds: list[type[Config]] = [PipelineConfig, TrainConfig, Sensor, ModelConfig]
    valid = {kind: [yaml.safe_dump(kind().to_dict(), sort_keys=False).encode()] for kind in kinds}
    bombs = [b'a: &a [x, x, x, x, x, x, x, x, x]\n' + b''.join(
        f'{y}: &{y} [{", ".join([f"*{x}"] * 9)}]\n'.encode()
        for x, y in itertools.pairwise('abcdefghi')
    ) + b'candidates: *i\n']  # fmt: skip

    def make(random: Random) -> tuple[type[Config], DamagedFile]:
        kind = random.choice(kinds)
        seeds = valid[kind] if random.random() < 0.95 else bombs
        return kind, DamagedFile(path, damage(seeds, random, TEXT))

    def read(damaged: tuple[type[Config], DamagedFile]) -> None:
        kind, file = damaged
        file.path.write_bytes(file.data)
        made = kind.from_yaml(file.path)
        assert kind.from_dict(made.to_dict()) == made

    return Target('config', make, read, str(path))


def bag(storage: str, compression: str = 'none') -> Callable[[Path], Target]:
    """Return the factory of the target of a rosbag2 folder."""

    def make(folder: Path) -> Target:
        path = folder / 'drive'
        write_bag(path, scans(), storage=storage, compression=compression)
        return files_target(f'bag {storage} {compression}', path, lambda: _read_bag(path))

    return make


def ros1_bag(folder: Path) -> Target:
    """Damage a ROS 1 bag."""
    path = folder / 'drive.bag'
    messages, store = Messages(), get_typestore(Stores.ROS1_NOETIC)
    with Ros1Writer(path) as writer:
        connections = {}
        for scan in scans():
            made = {
                '/points': messages.cloud(scan),
                '/odometry': messages.odometry(scan.stamp_ns, 'odom', scan.T_odom_sensor),
            }
            for topic, message in made.items():
                kind = message.__msgtype__
                if topic not in connections:
                    connections[topic] = writer.add_connection(topic, kind, typestore=store)
                # ROS 1 headers start with a sequence number.
                message.header = store.types['std_msgs/msg/Header'](
                    seq=0, stamp=message.header.stamp, frame_id=message.header.frame_id
                )
                data = store.serialize_ros1(message, kind)
                writer.write(connections[topic], scan.stamp_ns, data)
    return files_target('bag ros1', path, lambda: _read_bag(path))


def _read_bag(path: Path) -> None:
    """Read a recording as lpr_offline does: bad messages are reported and skipped."""
    bad: list[DatasetError] = []
    with closing(open_recording(path, RecordingOptions(on_bad=bad.append))) as recording:
        for read in recording.scans(bad.append):
            assert np.isfinite(read.scan.points).all()
    dataset = BagDataset(path, on_bad=bad.append)
    for index in range(len(dataset)):
        try:
            dataset.points(index)
        except DatasetError as error:
            bad.append(error)
    if bad:
        raise bad[0]


def tum(folder: Path) -> Target:
    """Damage a TUM trajectory."""
    path = folder / 'poses.tum'
    stamps = np.array([scan.stamp_ns for scan in scans(4)])
    write_tum(path, Trajectory(stamps, np.stack(poses(4))))

    def read() -> None:
        trajectory = read_tum(path)
        assert np.isfinite(trajectory.T).all()
        assert (np.diff(trajectory.stamps_ns) > 0).all()

    return files_target('tum', path, read)


def kitti_poses(folder: Path) -> Target:
    """Damage a KITTI pose file."""
    path = folder / 'poses.txt'
    write_kitti_poses(path, poses(6))

    def read() -> None:
        assert np.isfinite(read_kitti_poses(path)).all()

    return files_target('kitti poses', path, read)
