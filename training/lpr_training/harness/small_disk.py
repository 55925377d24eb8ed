"""A small disk for a node's map that can be filled or made read-only on demand."""

from contextlib import suppress
import os
from pathlib import Path
import resource
import subprocess

from lpr_ros.core.files import PARTIAL_SUFFIX, sidecar_path

SIZE_MB = 64
BLOCK_BYTES = 4096


class SmallDisk:
    """A tmpfs if mounting is permitted; otherwise a file size limit and a folder mode."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.is_mounted = _mount(folder, f'size={SIZE_MB}m')
        self._filler = folder / 'filler'

    @property
    def description(self) -> str:
        """Describe how the disk is emulated."""
        if self.is_mounted:
            return f'tmpfs of {SIZE_MB} MB, filled or remounted'
        return 'RLIMIT_FSIZE of the node, and mode 555 of the folder'

    def fill(self, pid: int) -> None:
        """Leave no space for the process to write."""
        if not self.is_mounted:
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (BLOCK_BYTES, hard))
            return
        with suppress(OSError), self._filler.open('wb', buffering=0) as stream:
            while stream.write(bytes(BLOCK_BYTES)):
                pass

    def free(self, pid: int) -> None:
        """Make space again."""
        if self.is_mounted:
            self._filler.unlink()
        else:
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    def set_writable(self, writable: bool) -> None:
        """Make the disk writable or read-only, with the leftover of a killed save on it."""
        if not writable:
            for path in self.folder.glob('*.map'):
                with suppress(FileExistsError):  # a save is in progress
                    sidecar_path(path, PARTIAL_SUFFIX).touch(exist_ok=False)
        if self.is_mounted:
            _mount(self.folder, f'remount,{"rw" if writable else "ro"}')
        else:
            self.folder.chmod(0o755 if writable else 0o555)

    def close(self) -> None:
        """Unmount the disk; its contents are lost."""
        if self.is_mounted:
            subprocess.run(['umount', '--lazy', str(self.folder)], check=True)


def _mount(folder: Path, options: str) -> bool:
    if os.geteuid() != 0:
        return False
    command = ['mount', '-t', 'tmpfs', '-o', options, 'lpr_ros', str(folder)]
    done = subprocess.run(command, check=False, capture_output=True)
    return done.returncode == 0
