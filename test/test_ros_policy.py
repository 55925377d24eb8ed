"""The access that config/sros2_policy.xml grants is what the nodes use: all of it and no more."""

from pathlib import Path
from xml.etree import ElementTree

from node_rig import START_S, Rig
import pytest
from ros_processes import Ros, wait_until

POLICY = Path(__file__).resolve().parents[1] / 'config' / 'sros2_policy.xml'
# Used with simulated time and where tf is installed.
SOMETIMES = {'/clock', '/tf', '/tf_static'}


def granted(node: str, kind: str, way: str) -> set[str]:
    """Return the full names that a node may publish, subscribe to or reply to."""
    (profile,) = ElementTree.parse(POLICY).findall(f'.//profile[@node="{node}"]')
    names = [n.text for n in profile.findall(f'{kind}s[@{way}="ALLOW"]/{kind}')]
    assert len(names) == len(set(names))
    return {f'/{node}/{n[2:]}' if n.startswith('~/') else f'/{n}' for n in names}


@pytest.mark.parametrize('name', ['lpr_node', 'pose_graph_node'])
def test_the_policy_grants_what_the_node_uses(ros: Ros, name):
    if name == 'lpr_node':
        rig = Rig(ros, autostart=True, backends='[lio_sam]')
        rig.wait_active()
        asker = rig.node
    else:
        ros.start('-m', 'lpr_ros.pose_graph_node')
        asker = ros.node()
    wait_until(lambda: name in asker.get_node_names(), f'{name} is there', START_S)

    def used(ask) -> set[str]:
        return {topic for topic, _ in ask(name, '/')} - SOMETIMES

    for kind, way, ask in (
        ('topic', 'publish', asker.get_publisher_names_and_types_by_node),
        ('topic', 'subscribe', asker.get_subscriber_names_and_types_by_node),
        ('service', 'reply', asker.get_service_names_and_types_by_node),
        ('service', 'request', asker.get_client_names_and_types_by_node),
    ):
        expected = granted(name, kind, way) - SOMETIMES
        wait_until(lambda ask=ask, e=expected: used(ask) >= e, f'{way} {expected}')
        assert used(ask) == expected
