"""Readers of damaged input in a child process, which may die, hang or run out of memory."""

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
from lpr_training.benchmarks.fuzz_list import TARGETS
from lpr_training.benchmarks.fuzz_targets import Target, random_of

# On top of what the process has before it reads: addresses, of which a single absurd request is
# refused at once, and memory that is really filled, for inputs of some kilobytes.
ADDRESS_BYTES = 1 << 30
RESIDENT_BYTES = 64 << 20
# An input hangs when it takes so much of a core; or, where it waits, so much of the clock, which
# is long because a busy machine must not look like a hang.
HANG_CPU_S = 20.0
HANG_S = 600.0
POLL_S = 0.5
LONGEST_MESSAGE = 2500  # characters: a reason is read by people and kept in logs
ACCEPTED, REFUSED = 'accepted', 'refused'


@dataclass(frozen=True)
class Outcome:
    """What became of one input; any kind but accepted and refused is a finding."""

    index: int
    kind: str
    detail: str = ''


def outcomes(name: str, seed: int, first: int, last: int) -> Iterator[Outcome]:
    """Read the inputs first to last - 1 of a target; a child that dies is followed by another."""
    while first < last:
        with tempfile.TemporaryDirectory(prefix='lpr_fuzz_') as folder:
            for outcome in _one_child(Path(folder), name, seed, first, last):
                yield outcome
                first = outcome.index + 1


def _one_child(
    folder: Path, name: str, seed: int, first: int, last: int
) -> Iterator[Outcome]:
    """Yield until the last input or the end of the child, whichever comes first."""
    context = get_context('fork')  # the imports cost seconds, and no thread runs yet
    ours, theirs = context.Pipe(duplex=False)
    work = (folder, name, seed, range(first, last))
    child = context.Process(target=_serve, args=(ours, theirs, *work), daemon=True)
    child.start()
    theirs.close()
    index = first
    try:
        while index < last:
            if not _answers(ours, child.pid):
                yield Outcome(index, 'hang', f'no answer in {HANG_CPU_S} s of a core')
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


def _answers(pipe: Connection, pid: int | None) -> bool:
    """Wait until the child has something to say, or has had its time."""
    used_s = _cpu_s(pid)
    for _ in range(round(HANG_S / POLL_S)):  # counted: the clock runs on while both are stopped
        if pipe.poll(POLL_S):
            return True
        if _cpu_s(pid) - used_s > HANG_CPU_S:
            return False
    return False


def _cpu_s(pid: int | None) -> float:
    """Return the seconds of a core that a process has used; it may have ended."""
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
    ours.close()  # else a child whose parent is killed would wait for ever to be heard
    logging.disable()
    warnings.simplefilter('ignore')
    target = TARGETS[name](folder)
    _limit_memory()
    for index in indices:
        before = _most_resident_bytes()
        outcome = _try(target, seed, index)
        grown = _most_resident_bytes() - before
        if grown > RESIDENT_BYTES:
            outcome = Outcome(index, 'memory', f'{grown} bytes more, then {outcome.kind}')
        theirs.send(outcome)


def _most_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit_memory() -> None:
    pages = int(Path('/proc/self/statm').read_text(encoding='ascii').split()[0])
    limit = pages * resource.getpagesize() + ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _try(target: Target, seed: int, index: int) -> Outcome:
    data = target.make(random_of(target.name, seed, index))
    try:
        target.read(data)
    except LprError as error:
        return _judge(index, error, target.label)
    except BaseException as error:  # the very thing that is looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f'{Path(where.filename).name}:{where.lineno}'
        return Outcome(index, type(error).__name__, f'{place}: {str(error)[:300]}')
    return Outcome(index, ACCEPTED)


def _judge(index: int, error: LprError, label: str) -> Outcome:
    """Tell whether a refusal says which input and why."""
    message = str(error)
    if len(message) > LONGEST_MESSAGE:
        return Outcome(index, 'long message', f'{len(message)} characters: {message[:300]}')
    if label not in message or not message.replace(label, '').strip(' :,'):
        return Outcome(index, 'no reason', message[:300])
    return Outcome(index, REFUSED, type(error).__name__)
