"""config/sros2_policy.xml grants the nodes exactly the topics and services they use."""

from pathlib import Path
from xml.etree import ElementTree

from node_rig import START_S, Rig
import pytest
from ros_processes import Ros, wait_until

POLICY = Path(__file__).resolve().parents[2] / 'config' / 'sros2_policy.xml'
# Used only with simulated time or if tf is installed.
OPTIONAL = {'/clock', '/tf', '/tf_static'}


def granted(node: str, kind: str, access: str) -> set[str]:
    """Return the full names of the topics or services a node has the access to."""
    (profile,) = ElementTree.parse(POLICY).findall(f'.//profile[@node="{node}"]')
    names = [n.text for n in profile.findall(f'{kind}s[@{access}="ALLOW"]/{kind}')]
    assert len(names) == len(set(names))
    return {f'/{node}/{n[2:]}' if n.startswith('~/') else f'/{n}' for n in names}


@pytest.mark.parametrize('name', ['lpr_node', 'pose_graph_node'])
def test_policy_grants_exactly_what_the_node_uses(ros: Ros, name):
    if name == 'lpr_node':
        rig = Rig(ros, autostart=True, backends='[lio_sam]')
        rig.wait_active()
        observer = rig.node
    else:
        ros.start('-m', 'lpr_ros.pose_graph_node')
        observer = ros.node()
    wait_until(lambda: name in observer.get_node_names(), f'{name} in the graph', START_S)

    def used(query) -> set[str]:
        return {topic for topic, _ in query(name, '/')} - OPTIONAL

    for kind, access, query in (
        ('topic', 'publish', observer.get_publisher_names_and_types_by_node),
        ('topic', 'subscribe', observer.get_subscriber_names_and_types_by_node),
        ('service', 'reply', observer.get_service_names_and_types_by_node),
        ('service', 'request', observer.get_client_names_and_types_by_node),
    ):
        expected = granted(name, kind, access) - OPTIONAL
        wait_until(lambda query=query, e=expected: used(query) >= e, f'{access} {expected}')
        assert used(query) == expected
