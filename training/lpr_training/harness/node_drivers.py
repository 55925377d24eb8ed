"""Clients that load a running lpr_node with service calls and lifecycle transitions."""

from collections.abc import Callable

from lpr_ros.core.errors import LprError
from lpr_training.harness.resource_usage import ResourceUsage, resource_usage
from lpr_training.harness.service_calls import ServiceCalls

NODE = '/lpr_node'
LIFECYCLE_CYCLE = ('deactivate', 'cleanup', 'configure', 'activate')


def reset(client: ServiceCalls) -> None:
    """Reset the node once; LprError if it refuses."""
    _expect_success(client.trigger(f'{NODE}/reset'), 'reset')


def load_map(client: ServiceCalls) -> None:
    """Load the map once; LprError if the node refuses."""
    _expect_success(client.trigger(f'{NODE}/load_map'), 'load_map')


def cycle_lifecycle(client: ServiceCalls) -> None:
    """Take an active node to unconfigured and back once; LprError if a transition fails."""
    for transition in LIFECYCLE_CYCLE:
        if not client.change_state(NODE, transition):
            raise LprError(f'lifecycle transition {transition} failed')


def repeat(
    action: Callable[[ServiceCalls], None],
    count: int,
    client: ServiceCalls,
    pid: int,
    samples: int = 20,
) -> list[ResourceUsage]:
    """Repeat an action on the node with this pid; return its resource usage along the way."""
    every = max(1, count // samples)
    usage = []
    for number in range(count):
        action(client)
        if number % every == every - 1:
            usage.append(resource_usage(pid))
    return usage


def _expect_success(response: tuple[bool, str], service: str) -> None:
    success, message = response
    if not success:
        raise LprError(f'{service}: {message}')
