"""List what is installed beside this package, as CycloneDX JSON: name, version, license, source.

    python .ci/sbom.py build/sbom.json

Works offline: everything comes from the metadata of the environment that runs it.
"""

from collections.abc import Sequence
from importlib.metadata import Distribution, distributions
import json
from pathlib import Path
import re
import sys
from typing import Any

UNKNOWN = 'unknown'


def component(dist: Distribution) -> dict[str, Any]:
    """Describe one installed distribution."""
    name = re.sub(r'[-_.]+', '-', dist.metadata['Name']).lower()
    return {
        'type': 'library',
        'name': name,
        'version': dist.version,
        'purl': f'pkg:pypi/{name}@{dist.version}',
        'licenses': [{'license': {'name': license_of(dist)}}],
    }


def license_of(dist: Distribution) -> str:
    """Return the license as a distribution declares it, in any of the three ways there are."""
    meta = dist.metadata
    kinds = [c.rpartition(' :: ')[2] for c in meta.get_all('Classifier', [])
             if c.startswith('License ::')]  # fmt: skip
    text = (meta.get('License') or '').strip()
    short = '' if '\n' in text else text  # some give the whole text of it
    return meta.get('License-Expression') or short or ' or '.join(kinds) or UNKNOWN


def main(argv: Sequence[str]) -> int:
    """Write the list, and say which licenses there are."""
    found = {entry['name']: entry for entry in map(component, distributions())}
    components = [found[name] for name in sorted(found)]
    target = Path(argv[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    bom = {'bomFormat': 'CycloneDX', 'specVersion': '1.5', 'version': 1, 'components': components}
    target.write_text(json.dumps(bom, indent=1) + '\n', encoding='utf-8')
    by_license: dict[str, list[str]] = {}
    for entry in components:
        by_license.setdefault(entry['licenses'][0]['license']['name'], []).append(entry['name'])
    for license, names in sorted(by_license.items()):
        print(f'{license}: {", ".join(names)}')
    return 0


if __name__ == '__main__':
    raise SystemExit(main(sys.argv[1:]))
