"""Open whatever a user points at: a bag, a KITTI folder or packed scans."""

from pathlib import Path

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.recordings.bag import BagRecording
from lpr_ros.core.recordings.base import DEFAULT_OPTIONS, Recording, RecordingOptions
from lpr_ros.core.recordings.demo import DemoRecording
from lpr_ros.core.recordings.kitti import KittiRecording
from lpr_ros.core.recordings.packed import PackedRecording

# The first match wins. A path that matches none is opened as a bag, which reports what is wrong
# with it; the bag is not in the registry, so that a format added at run time is asked before it.
FORMATS: dict[str, type[Recording]] = {
    'kitti': KittiRecording,
    'packed': PackedRecording,
}


def recording_format(path: Path) -> type[Recording]:
    """Return the class that reads a path; DatasetError if there is nothing to read."""
    path = Path(path)
    if not path.exists():
        if DemoRecording.matches(path):
            return DemoRecording
        formats: list[type[Recording]] = [*FORMATS.values(), BagRecording, DemoRecording]
        expected = ', '.join(kind.description for kind in formats)
        raise DatasetError(f'{path}: no such file or folder; expected one of: {expected}')
    if (path / 'sequences').is_dir():
        found = sorted(str(folder) for folder in (path / 'sequences').iterdir())
        raise DatasetError(f'{path}: choose one of the sequences {", ".join(found)}')
    return next((kind for kind in FORMATS.values() if kind.matches(path)), BagRecording)


def open_recording(path: Path, options: RecordingOptions = DEFAULT_OPTIONS) -> Recording:
    """Open a rosbag2 folder, .mcap, .db3, ROS 1 .bag, KITTI folder or scans_*.npz."""
    kind: type = recording_format(path)
    recording: Recording = kind(Path(path), options)
    return recording
