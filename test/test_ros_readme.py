"""The tables of the README are those of the code."""

from pathlib import Path
import re

import pytest

from lpr_ros.backends.selection import AdaptersConfig
from lpr_ros.parameters import markdown_table
from lpr_ros.pose_graph_node import PoseGraphNodeConfig

README = Path(__file__).resolve().parents[1] / 'README.md'
TABLES = {'pose_graph_node': PoseGraphNodeConfig(), 'adapters': AdaptersConfig()}


@pytest.mark.parametrize('name', sorted(TABLES))
def test_the_parameters_are_current(name):
    """In the README a table stands between <!-- parameters: NAME --> and <!-- end -->."""
    text = README.read_text(encoding='utf-8')
    found = re.search(rf'<!-- parameters: {name} -->\n(.*?)<!-- end -->', text, re.DOTALL)
    assert found, f'README has no table of {name}'
    assert found.group(1).strip() == markdown_table(TABLES[name]).strip()
