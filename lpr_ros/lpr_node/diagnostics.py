"""The state of lpr_node on /diagnostics, once in a second."""

from collections.abc import Mapping
import time

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from lpr_ros.pose_messages import time_message
from lpr_ros.statistics import Statistics

RATES = ('scans', 'odometry', 'described', 'verified', 'accepted', 'loops')
DROPPED = 'dropped.'
REFUSED = 10  # loops accepted by geometry of which odometry let none through: worth a word


class Diagnostics:
    """Turns what was counted since the last time into a message."""

    def __init__(self, name: str, statistics: Statistics):
        self._name = name
        self._statistics = statistics
        self._before: dict[str, int] = {}
        self._before_s = time.monotonic()

    def message(self, stamp_ns: int, state: str, about: Mapping[str, object]) -> DiagnosticArray:
        """Return the message; `about` are further facts, such as the size of the database."""
        now_s, counts = time.monotonic(), self._statistics.counts()
        elapsed_s = max(now_s - self._before_s, 1e-3)
        new = {name: number - self._before.get(name, 0) for name, number in counts.items()}
        self._before, self._before_s = counts, now_s
        values: dict[str, object] = {'state': state, **about}
        values |= {f'{name}_per_s': f'{new.get(name, 0) / elapsed_s:.2f}' for name in RATES}
        values |= dict.fromkeys(RATES, 0) | dict(sorted(counts.items()))
        for stage, timing in self._statistics.timings().items():
            values[f'{stage}_mean_ms'] = f'{timing.mean_s * 1e3:.1f}'
            values[f'{stage}_p95_ms'] = f'{timing.p95_s * 1e3:.1f}'
        values['last_error'] = self._statistics.last_error
        level, summary = judge(state, new, counts, str(about.get('map_error', '')))
        status = DiagnosticStatus(
            level=level,
            name=self._name,
            message=summary,
            hardware_id='',
            values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = time_message(stamp_ns)
        return array


def judge(
    state: str, new: Mapping[str, int], total: Mapping[str, int], map_error: str = ''
) -> tuple[bytes, str]:
    """Say how it goes, by what was counted since the last time, and in all."""
    if new.get('faults'):
        return DiagnosticStatus.ERROR, 'errors that nobody foresaw: see the log'
    if map_error:
        return DiagnosticStatus.WARN, f'the map is not saved: {map_error}'
    if state != 'active':
        return DiagnosticStatus.OK, state
    dropped = {name.removeprefix(DROPPED): n for name, n in new.items() if DROPPED in name and n}
    # Faster sensors than keyframes need lose scans all the time; half of them is too slow.
    if 2 * dropped.get('newer_scan', 0) <= new.get('scans', 0):
        dropped.pop('newer_scan', None)
    if dropped:
        return DiagnosticStatus.WARN, 'dropped: ' + ', '.join(
            f'{number} {kind}' for kind, number in sorted(dropped.items())
        )
    if total.get('accepted', 0) >= REFUSED and not total.get('loops'):
        return DiagnosticStatus.WARN, 'every loop contradicts odometry: see pairwise.odometry'
    return DiagnosticStatus.OK, 'scans arrive' if new.get('scans') else 'waiting for scans'
