"""A small disk that can be full or read-only on demand, for a node that writes its map there."""

from contextlib import suppress
import os
from pathlib import Path
import resource
import subprocess

from lpr_ros.core.files import beside

SIZE_MB = 64
TINY_BYTES = 4096


class SmallDisk:
    """A tmpfs where we may mount one; else a limit on the node's files, and the folder's mode."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.is_mounted = _mount(folder, f'size={SIZE_MB}m')
        self._filler = folder / 'filler'

    @property
    def means(self) -> str:
        """Say what stands for a disk."""
        size = f'a tmpfs of {SIZE_MB} MB, filled or remounted'
        return size if self.is_mounted else 'RLIMIT_FSIZE of the node, and mode 555 of the folder'

    def fill(self, pid: int) -> None:
        """Leave no room for what the process writes."""
        if not self.is_mounted:
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (TINY_BYTES, hard))
            return
        with suppress(OSError), self._filler.open('wb', buffering=0) as stream:
            while stream.write(bytes(TINY_BYTES)):
                pass

    def free(self, pid: int) -> None:
        """Have room again."""
        if self.is_mounted:
            self._filler.unlink()
        else:
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    def set_writable(self, writable: bool) -> None:
        """Let the process write, or only read: also what a killed save left, which must go."""
        if not writable:
            for path in self.folder.glob('*.map'):
                with suppress(FileExistsError):  # one under way
                    beside(path).touch(exist_ok=False)
        if self.is_mounted:
            _mount(self.folder, f'remount,{"rw" if writable else "ro"}')
        else:
            self.folder.chmod(0o755 if writable else 0o555)

    def close(self) -> None:
        """Give the disk back; what is on it is gone."""
        if self.is_mounted:
            subprocess.run(['umount', '--lazy', str(self.folder)], check=True)


def _mount(folder: Path, options: str) -> bool:
    if os.geteuid() != 0:
        return False
    command = ['mount', '-t', 'tmpfs', '-o', options, 'lpr_ros', str(folder)]
    done = subprocess.run(command, check=False, capture_output=True)
    return done.returncode == 0
