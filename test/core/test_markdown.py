"""Markdown tables."""

from lpr_ros.core.markdown import markdown_table, metric_table


def test_markdown_table_has_a_heading_per_column_and_a_line_per_row():
    assert markdown_table(('a', 'b'), [(1, 'x'), (2.5, '')]) == (
        '| a | b |\n|---|---|\n| 1 | x |\n| 2.5 |  |\n'
    )


def test_metric_table_lists_numbers_with_their_targets_and_skips_the_rest():
    metrics = {'loops': 3, 'ms': 1.234, 'name': 'city', 'rows': [1]}
    assert metric_table('node', metrics, {'ms': '< 2'}) == (
        '| node | value | target |\n|---|---|---|\n| loops | 3 |  |\n| ms | 1.23 | < 2 |\n'
    )
