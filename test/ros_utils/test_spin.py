"""Spinning survives entities that are destroyed while the executor uses them."""

import threading

import pytest
from rclpy.executors import InvalidHandle
from ros_processes import wait_until
from std_msgs.msg import String

from lpr_ros.lpr_node.node import main as lpr_node
from lpr_ros.player.node import main as lpr_player
from lpr_ros.pose_graph_node.node import main as pose_graph_node
from lpr_ros.ros_utils import spin as spin_module
from lpr_ros.ros_utils.spin import NodeExecutor, destroy_safely, spin, user_arguments


@pytest.fixture
def spinning(ros):
    """Return a node that spins in a NodeExecutor, and the thread that spins it."""
    node = ros.node()
    ros.executor.remove_node(node)
    executor = NodeExecutor(2, context=ros.context)
    thread = threading.Thread(target=spin, args=(node, executor), daemon=True)
    thread.start()
    wait_until(lambda: node.executor is executor, 'spinning')
    yield node, thread
    ros.context.try_shutdown()
    thread.join(20.0)
    assert not thread.is_alive()


def test_entities_are_destroyed_by_the_thread_that_builds_the_wait_set(spinning):
    node, thread = spinning
    publisher = node.create_publisher(String, 'topic', 10)
    destroyed_by = []

    def destroy():
        node.destroy_publisher(publisher)
        destroyed_by.append(threading.current_thread())

    destroy_safely(node, destroy)
    wait_until(lambda: destroyed_by, 'destruction')
    assert destroyed_by == [thread]
    assert publisher not in node.publishers


def test_entities_are_destroyed_at_once_if_nothing_spins(ros):
    node = ros.node()
    ros.executor.remove_node(node)
    node.executor = None
    publisher = node.create_publisher(String, 'topic', 10)
    destroy_safely(node, lambda: node.destroy_publisher(publisher))
    assert publisher not in node.publishers


def test_callbacks_continue_after_an_invalid_handle(spinning, monkeypatch):
    node, _ = spinning
    failures = iter([True, True, False])
    real = NodeExecutor.spin_once

    def fail_at_first(self, timeout_sec=None):
        if next(failures, False):
            raise InvalidHandle('destruction was requested')
        real(self, timeout_sec)

    monkeypatch.setattr(NodeExecutor, 'spin_once', fail_at_first)
    calls = []
    node.create_timer(0.01, lambda: calls.append(1))
    wait_until(lambda: len(calls) > 3, 'timer callbacks')
    assert next(failures, None) is None


def test_an_entity_that_stays_invalid_ends_the_node(ros, monkeypatch):
    """Rather than a busy loop that runs no callback."""
    monkeypatch.setattr(spin_module, 'MAX_INVALID_HANDLES', 3)

    def fail(self, timeout_sec=None):
        raise InvalidHandle('destruction was requested')

    monkeypatch.setattr(NodeExecutor, 'spin_once', fail)
    node = ros.node()
    ros.executor.remove_node(node)
    with pytest.raises(InvalidHandle):
        spin(node, NodeExecutor(2, context=ros.context))


@pytest.mark.parametrize(
    ('name', 'main'),
    [('lpr_node', lpr_node), ('pose_graph_node', pose_graph_node), ('lpr_player', lpr_player)],
)
def test_executables_print_help(monkeypatch, capsys, name, main):
    monkeypatch.setattr('sys.argv', [name, '--help', '--ros-args', '-p', 'autostart:=true'])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert f'usage: {name}' in capsys.readouterr().out


def test_bad_arguments_of_ros_are_one_line():
    with pytest.raises(SystemExit, match=r"error: .*'-p nonsense'"):
        user_arguments(['lpr_node', '--ros-args', '-p', 'nonsense'])
    assert user_arguments(['lpr_node', '--quiet', '--ros-args', '-p', 'a:=b']) == ['--quiet']
