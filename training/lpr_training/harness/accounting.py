"""Account for every scan sent to lpr_node, from its diagnostics."""

from collections.abc import Mapping

from lpr_ros.lpr_node.diagnostics import SCANS_DROPPED, SCANS_LOST

HANDLED = ('described', 'passed')


def scan_outcomes(status: Mapping[str, str]) -> dict[str, int]:
    """Return the number of scans sent by outcome: handled, dropped for a reason, or lost."""
    return {
        name: int(value)
        for name, value in status.items()
        if name in (*HANDLED, SCANS_LOST) or name.startswith(SCANS_DROPPED)
    }
