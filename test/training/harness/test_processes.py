"""ROS domains of tests and benchmarks."""

import os
import tempfile

import pytest

from lpr_ros.core.errors import LprError
from lpr_ros.ros_utils.fastdds_variable import FAST_DDS_2, FAST_DDS_3
from lpr_training.harness import processes
from lpr_training.harness.processes import GHOST_S, own_domain, use_own_domain


@pytest.fixture(autouse=True)
def few_domains(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    monkeypatch.setattr(processes, 'DOMAINS', range(1, 4))
    return tmp_path


def test_a_domain_has_one_user_at_a_time():
    with own_domain() as first, own_domain() as second, own_domain() as third:
        assert {first, second, third} == {1, 2, 3}
        with pytest.raises(LprError, match='all 3 ROS domains'), own_domain():
            pass
    with own_domain() as again:
        assert again in {1, 2, 3}


def test_a_domain_with_killed_processes_is_used_last(few_domains):
    with own_domain() as first:
        pass
    with own_domain() as second, own_domain() as third:
        assert {first, second, third} == {1, 2, 3}
    lock = few_domains / f'lpr_ros_test_domain_{second}'
    old_s = lock.stat().st_mtime - GHOST_S
    os.utime(lock, (old_s, old_s))
    with own_domain() as again:
        assert again == second


def test_the_next_benchmark_of_a_process_leaves_the_domain_of_the_last_one(monkeypatch):
    for name in ('ROS_DOMAIN_ID', 'ROS_AUTOMATIC_DISCOVERY_RANGE', FAST_DDS_2, FAST_DDS_3):
        monkeypatch.setenv(name, '')  # restored afterwards
    use_own_domain()
    first = os.environ['ROS_DOMAIN_ID']
    use_own_domain()
    assert os.environ['ROS_DOMAIN_ID'] != first
    with own_domain(), own_domain():
        pass
