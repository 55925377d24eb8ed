"""Resets, map loads and lifecycle transitions while scans and service calls keep coming."""

import os
import threading

from node_rig import Rig
import pytest
from toy_drive import STEPS_PER_LAP, step

from lpr_training.harness.node_drivers import cycle_lifecycle, load_map, repeat, reset
from lpr_training.harness.resource_usage import ResourceUsage, growth, resource_usage
from lpr_training.harness.service_calls import ServiceCalls

SCAN_PERIOD_S = 0.05


class Traffic:
    """Scans, and calls of ~/save_map by a second client, until closed."""

    def __init__(self, rig: Rig):
        self._rig = rig
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._send_scans, daemon=True),
            threading.Thread(target=self._save_maps, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join()

    def _send_scans(self) -> None:
        number = 0
        steps = [step(index) for index in range(2 * STEPS_PER_LAP)]
        while not self._closed.wait(SCAN_PERIOD_S):
            self._rig.send(steps[number % len(steps)])
            number += 1

    def _save_maps(self) -> None:
        client = ServiceCalls(self._rig.ros.node())
        while not self._closed.wait(0.1):
            client.trigger('/lpr_node/save_map')  # refused while the node is unconfigured


@pytest.fixture
def loaded_rig(ros):
    rig = Rig(ros, autostart=True, map_path=ros.folder / 'places.map', backends='[lio_sam]')
    rig.wait_active()
    rig.drive(range(STEPS_PER_LAP))
    assert rig.trigger('save_map').success
    traffic = Traffic(rig)
    yield rig
    traffic.close()
    rig.process.interrupt()
    assert rig.process.wait() == 0, rig.process.output
    assert 'Traceback' not in rig.process.output


def test_node_survives_resets_loads_and_transitions_under_load(loaded_rig):
    rig = loaded_rig
    pid = rig.process.popen.pid
    client = ServiceCalls(rig.node)
    for action, count in ((reset, 60), (load_map, 40), (cycle_lifecycle, 8)):
        usage = repeat(action, count, client, pid)
        assert growth(usage).threads <= 1, (action.__name__, usage)
        assert growth(usage).descriptors <= 2, (action.__name__, usage)
        assert growth(usage).private_mb <= 30.0, (action.__name__, usage)
    for number in range(6):  # which destroys subscriptions and adapters
        assert rig.change_state('deactivate')
        assert rig.change_state('cleanup')
        assert rig.set('qos.points.depth', 2 + number % 2)[0]
        assert rig.set('adapters.lio_sam.interval_s', 1.0 + number % 2)[0]
        assert rig.change_state('configure')
        assert rig.change_state('activate')
    assert rig.status()['state'] == 'active'
    described = int(rig.status()['described'])
    rig.status_with('described', described + 1)


def test_node_rejects_transitions_that_its_state_does_not_allow(ros):
    rig = Rig(ros)  # unconfigured
    client = ServiceCalls(rig.node)
    for transition in ('activate', 'cleanup', 'deactivate', 'active_shutdown'):
        assert not client.change_state('/lpr_node', transition), transition
    assert client.change_state('/lpr_node', 'configure')
    assert not client.change_state('/lpr_node', 'configure')
    assert client.state('/lpr_node') == 'inactive'
    rig.process.interrupt()
    assert rig.process.wait() == 0, rig.process.output


def test_growth_compares_what_stays():
    usage = [ResourceUsage(mb, 4, fd) for mb, fd in ((10, 9), (90, 5), (12, 5), (13, 7))]
    assert growth(usage) == ResourceUsage(2, 0, 0)
    assert resource_usage(os.getpid()).threads >= 1
