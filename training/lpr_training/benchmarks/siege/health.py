"""Resources of the nodes at rest, before and after the siege."""

from dataclasses import dataclass
import time

from lpr_training.harness.resource_usage import ResourceUsage, lowest, resource_usage

SAMPLES = 24
SAMPLE_INTERVAL_S = 0.5  # 12 s in all: lpr_node returns free memory to the system every 10 s


@dataclass(frozen=True)
class Health:
    """What one process holds at rest."""

    pid: int
    usage: ResourceUsage


def measure_health(pid: int) -> Health:
    """Return the lowest of a few samples."""
    samples = []
    for _ in range(SAMPLES):
        samples.append(resource_usage(pid))
        time.sleep(SAMPLE_INTERVAL_S)
    return Health(pid, lowest(samples))


def health_growth(name: str, before: Health | None, after: Health | None) -> dict[str, float]:
    """Return what grew between two measurements, empty if the process was replaced."""
    if before is None or after is None or before.pid != after.pid:
        return {}
    old, new = before.usage, after.usage
    return {
        f'{name}_memory_mb': new.private_mb,
        f'{name}_memory_growth_mb': new.private_mb - old.private_mb,
        f'{name}_threads_growth': new.threads - old.threads,
        f'{name}_descriptors_growth': new.descriptors - old.descriptors,
    }
