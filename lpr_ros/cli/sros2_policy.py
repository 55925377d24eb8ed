"""Print the SROS2 policy of the nodes for the names in use.

    python -m lpr_ros.cli.sros2_policy --namespace /robot -r points:=/velodyne_points > policy.xml

Namespace and remapping are those that the nodes are started with.
"""

import argparse
from collections.abc import Mapping, Sequence
import sys
from xml.etree import ElementTree

from lpr_ros.core.errors import ConfigError, LprError
from lpr_ros.core.resources import find_resource

POLICY = 'sros2_policy.xml'


def build_parser() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        prog='python -m lpr_ros.cli.sros2_policy',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('--namespace', default='/', help='namespace of the nodes')
    parser.add_argument(
        '-r',
        '--remap',
        action='append',
        default=[],
        metavar='FROM:=TO',
        help='topic or service that the nodes are started with another name of; repeatable',
    )
    return parser


def policy(namespace: str = '/', names: Mapping[str, str] | None = None) -> str:
    """Return the policy with nodes in this namespace and these names replaced."""
    path = find_resource('config', POLICY)
    if path is None:
        raise ConfigError(f'{POLICY} is not installed')
    root = ElementTree.parse(path).getroot()
    replaced = dict(names or {})
    entries = [*root.iter('topic'), *root.iter('service')]
    known = sorted({entry.text or '' for entry in entries})
    for name in replaced:
        if name not in known:
            raise ConfigError(f'{name!r} is not a name in the policy: {", ".join(known)}')
    for profile in root.iter('profile'):
        profile.set('ns', '/' + namespace.strip('/'))
    for entry in entries:
        entry.text = replaced.get(entry.text or '', entry.text)
    return ElementTree.tostring(root, encoding='unicode', xml_declaration=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 for a name that does not exist."""
    args = build_parser().parse_args(argv)
    pairs = [text.partition(':=') for text in args.remap]
    try:
        for text, (name, separator, new) in zip(args.remap, pairs, strict=True):
            if not (name and separator and new):
                raise ConfigError(f'expected FROM:=TO, got {text!r}')
        print(policy(args.namespace, {name: new for name, _, new in pairs}))
    except LprError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
