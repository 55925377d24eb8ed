"""The SROS2 policy grants the nodes exactly the topics and services they use."""

from xml.etree import ElementTree

from node_rig import START_S, Rig
import pytest
from ros_processes import Ros, wait_until

from lpr_ros.cli.sros2_policy import main, policy

# Used only with simulated time or if tf is installed.
OPTIONAL = {'/clock', '/tf', '/tf_static'}


def granted(text: str, node: str, kind: str, access: str) -> set[str]:
    """Return the full names of the topics or services that a policy grants a node access to."""
    (profile,) = ElementTree.fromstring(text).findall(f'.//profile[@node="{node}"]')
    names = [n.text for n in profile.findall(f'{kind}s[@{access}="ALLOW"]/{kind}')]
    assert len(names) == len(set(names))
    namespace = profile.get('ns').rstrip('/')
    absolute = [f'{namespace}/{node}/{n[2:]}' if n.startswith('~/') else n for n in names]
    return {n if n.startswith('/') else f'{namespace}/{n}' for n in absolute}


@pytest.mark.parametrize('name', ['lpr_node', 'pose_graph_node'])
def test_policy_grants_exactly_what_the_node_uses(ros: Ros, name):
    """One node has the default names, the other a namespace and a remapped topic."""
    if name == 'lpr_node':
        rig = Rig(ros, autostart=True, backends='[lio_sam]')
        rig.wait_active()
        observer, namespace, text = rig.node, '/', policy()
    else:
        namespace, text = '/robot', policy('robot', {'odometry': '/odom'})
        names = ('-r', '__ns:=/robot', '-r', 'odometry:=/odom')
        ros.start('-m', 'lpr_ros.pose_graph_node', '--ros-args', *names)
        observer = ros.node()
    node = (name, namespace)
    wait_until(
        lambda: node in observer.get_node_names_and_namespaces(), f'{name} in the graph', START_S
    )

    def used(query) -> set[str]:
        return {topic for topic, _ in query(name, namespace)} - OPTIONAL

    for kind, access, query in (
        ('topic', 'publish', observer.get_publisher_names_and_types_by_node),
        ('topic', 'subscribe', observer.get_subscriber_names_and_types_by_node),
        ('service', 'reply', observer.get_service_names_and_types_by_node),
        ('service', 'request', observer.get_client_names_and_types_by_node),
    ):
        expected = granted(text, name, kind, access) - OPTIONAL
        wait_until(lambda query=query, e=expected: used(query) >= e, f'{access} {expected}')
        assert used(query) == expected


def test_names_in_use_replace_the_defaults(capsys):
    assert main(['--namespace', '/robot', '-r', 'points:=/velodyne_points']) == 0
    topics = granted(capsys.readouterr().out, 'lpr_node', 'topic', 'subscribe')
    assert {'/velodyne_points', '/robot/odometry', '/clock'} <= topics
    assert '/robot/points' not in topics


@pytest.mark.parametrize('remap', ['pints:=/velodyne_points', 'points', 'points:='])
def test_names_that_the_nodes_do_not_have_are_refused(capsys, remap):
    assert main(['-r', remap]) == 1
    output = capsys.readouterr()
    assert (output.out, len(output.err.splitlines())) == ('', 1)
    assert remap.partition(':=')[0] in output.err
