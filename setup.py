"""The ament_python package, and the one place where dependencies are declared.

Versions and hashes of all but torch are in the lock files, made from this one by `make lock`.
"""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGE = 'lpr_ros'

ROS_PACKAGES = (
    'ament-index-python',
    'diagnostic-msgs',
    'geometry-msgs',
    'lifecycle-msgs',
    'nav-msgs',
    'rclpy[fastrtps]',
    'rosgraph-msgs',
    'sensor-msgs',
    'std-msgs',
    'std-srvs',
    'visualization-msgs',
)


def shared_files(*folders: str) -> list[tuple[str, list[str]]]:
    """Return every file below the folders, each to the same place below share."""
    paths = [path for folder in folders for path in sorted(Path(folder).rglob('*'))]
    return [(f'share/{PACKAGE}/{path.parent}', [str(path)]) for path in paths if path.is_file()]


setup(
    name=PACKAGE,
    version='0.2.0',
    description='LiDAR place recognition and loop closure for ROS 2',
    license='Apache-2.0',
    maintainer='lpr_ros maintainers',
    maintainer_email='maintainers@lpr-ros.example.org',
    packages=find_packages(include=[PACKAGE, f'{PACKAGE}.*']),
    package_data={f'{PACKAGE}.report': ['templates/*']},
    python_requires='>=3.10',
    install_requires=[
        'faiss-cpu',
        'gtsam',
        'jinja2',
        'kiss-icp==1.3.0',  # LiDAR odometry uses its Python classes, which change
        'kiss-matcher',
        'matplotlib',
        'numba',
        'numpy',
        'numpy<2; python_version < "3.11"',  # gtsam for Python 3.10 was built with NumPy 1
        'numpy<2; python_version == "3.12"',  # as was the ROS of Ubuntu 24.04 (cv_bridge)
        'plotly',
        'python-dateutil<3',  # botocore (s3fs) takes no newer one; matplotlib 3.11.2 pins 4
        'pyyaml',
        'rosbags',
        'safetensors',
        'scipy',
        'setuptools',
        'small_gicp',
        'torch==2.13.0',  # not in the lock: each index serves another build
        'tqdm',
    ],
    extras_require={
        'ros': [f'ros-jazzy-{name}' for name in ROS_PACKAGES],
        'ros-kilted': [f'ros-kilted-{name}' for name in ROS_PACKAGES],  # in place of 'ros'
        'training': ['tensorboard'],
        'sim': ['embreex', 'trimesh'],
        # What benchmark.py compares with: loops, slam, descriptor.
        'peers': ['kiss-slam', 'map_closures', 'spconv; python_version < "3.14"'],
        'fleet': ['fsspec', 'milvus-lite', 'pymilvus', 's3fs'],
        'view': ['rerun-sdk'],
        # Built from source: see docs/training.md.
        'minkowski': ['MinkowskiEngine==0.5.4'],
        'docs': ['mkdocs', 'mkdocs-material', 'mkdocstrings[python]', 'pillow'],
        'dev': [
            'cyclonedds; python_version < "3.14"',
            'evo',
            'hypothesis',
            'moto[s3,server]',
            'mypy',
            'pip-audit',
            'pytest',
            'pytest-cov',
            'pytest-timeout',
            'pytest-xdist',
            'ruff',
            'types-PyYAML',
        ],
    },
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{PACKAGE}']),
        (f'share/{PACKAGE}', ['package.xml']),
        *shared_files('launch', 'config', 'weights'),
    ],
    entry_points={
        'console_scripts': [
            'lpr_node = lpr_ros.command:lpr_node',
            'lpr_offline = lpr_ros.command:lpr_offline',
            'lpr_player = lpr_ros.command:lpr_player',
            'pose_graph_node = lpr_ros.command:pose_graph_node',
        ]
    },
    zip_safe=False,
)
