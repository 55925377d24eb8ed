"""Run readers on damaged input in a child process that may crash, hang or run out of memory."""

from collections.abc import Iterator
from dataclasses import dataclass
import logging
from multiprocessing import get_context
from multiprocessing.connection import Connection
import os
from pathlib import Path
import resource
from signal import Signals
import tempfile
import traceback
import warnings

from lpr_ros.core.errors import LprError
from lpr_training.benchmarks.fuzz.registry import TARGETS
from lpr_training.benchmarks.fuzz.target import Target, random_of

# Beyond what the process has before reading: address space, where a single absurd allocation
# fails at once, and resident memory, for inputs of a few kilobytes.
ADDRESS_BYTES = 1 << 30
RESIDENT_BYTES = 64 << 20
# An input hangs if it uses this much CPU time or, if it only waits, this much wall time, which is
# long because a busy machine must not look like a hang.
HANG_CPU_S = 20.0
HANG_S = 600.0
POLL_S = 0.5
MAX_MESSAGE_LENGTH = 2500  # error messages are read by people and kept in logs
ACCEPTED, REJECTED = 'accepted', 'refused'


@dataclass(frozen=True)
class Outcome:
    """Outcome of one input; every kind except ACCEPTED and REJECTED is a finding."""

    index: int
    kind: str
    detail: str = ''


def outcomes(name: str, seed: int, first: int, last: int) -> Iterator[Outcome]:
    """Read inputs first to last - 1 of a target; replace a child process that dies."""
    while first < last:
        with tempfile.TemporaryDirectory(prefix='lpr_fuzz_') as folder:
            for outcome in _one_child(Path(folder), name, seed, first, last):
                yield outcome
                first = outcome.index + 1


def _one_child(folder: Path, name: str, seed: int, first: int, last: int) -> Iterator[Outcome]:
    """Yield outcomes until the last input or the end of the child process."""
    context = get_context('fork')  # imports take seconds, and no threads are running yet
    ours, theirs = context.Pipe(duplex=False)
    work = (folder, name, seed, range(first, last))
    child = context.Process(target=_serve, args=(ours, theirs, *work), daemon=True)
    child.start()
    theirs.close()
    index = first
    try:
        while index < last:
            if not _has_result(ours, child.pid):
                yield Outcome(index, 'hang', f'no result within {HANG_CPU_S} s of CPU time')
                return
            try:
                outcome: Outcome = ours.recv()
            except EOFError:
                child.join()
                yield Outcome(index, 'crash', _cause_of_death(child.exitcode))
                return
            yield outcome
            index = outcome.index + 1
    finally:
        child.kill()
        child.join()
        ours.close()


def _has_result(pipe: Connection, pid: int | None) -> bool:
    """Wait for a result of the child; return False after a timeout."""
    used_s = _cpu_s(pid)
    for _ in range(
        round(HANG_S / POLL_S)
    ):  # counted, as the clock advances while both are suspended
        if pipe.poll(POLL_S):
            return True
        if _cpu_s(pid) - used_s > HANG_CPU_S:
            return False
    return False


def _cpu_s(pid: int | None) -> float:
    """Return the CPU seconds of a process, 0 if it has exited."""
    try:
        fields = Path(f'/proc/{pid}/stat').read_text(encoding='ascii').rpartition(')')[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def _cause_of_death(code: int | None) -> str:
    return Signals(-code).name if code is not None and code < 0 else f'exit code {code}'


def _serve(
    ours: Connection, theirs: Connection, folder: Path, name: str, seed: int, indices: range
) -> None:
    ours.close()  # otherwise the child would block forever if its parent is killed
    logging.disable()
    warnings.simplefilter('ignore')
    target = TARGETS[name](folder)
    _limit_memory()
    for index in indices:
        before = _peak_resident_bytes()
        outcome = _read_one(target, seed, index)
        grown = _peak_resident_bytes() - before
        if grown > RESIDENT_BYTES:
            outcome = Outcome(index, 'memory', f'grew by {grown} bytes, then {outcome.kind}')
        theirs.send(outcome)


def _peak_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit_memory() -> None:
    pages = int(Path('/proc/self/statm').read_text(encoding='ascii').split()[0])
    limit = pages * resource.getpagesize() + ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read_one(target: Target, seed: int, index: int) -> Outcome:
    data = target.make(random_of(target.name, seed, index))
    try:
        target.read(data)
    except LprError as error:
        return _check_message(index, error, target.label)
    except BaseException as error:  # any other exception is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f'{Path(where.filename).name}:{where.lineno}'
        return Outcome(index, type(error).__name__, f'{place}: {str(error)[:300]}')
    return Outcome(index, ACCEPTED)


def _check_message(index: int, error: LprError, label: str) -> Outcome:
    """Check that an error names the input and the reason, and is short."""
    message = str(error)
    if len(message) > MAX_MESSAGE_LENGTH:
        return Outcome(index, 'long message', f'{len(message)} characters: {message[:300]}')
    if label not in message or not message.replace(label, '').strip(' :,'):
        return Outcome(index, 'no reason', message[:300])
    return Outcome(index, REJECTED, type(error).__name__)
