#!/bin/bash
# Run a command in the environment of the workspace.
set -e
source /ros2_ws/venv/bin/activate
source /ros2_ws/install/setup.bash
exec "$@"
