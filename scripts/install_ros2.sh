#!/usr/bin/env bash
# Install lpr_ros in a ROS 2 workspace, in a virtual environment that sees the packages of ROS.
#
#   scripts/install_ros2.sh [WORKSPACE]        default: ~/ros2_ws
#
# ROS_PREFIX is the ROS installation; default: the sourced one, or the only one in /opt/ros.
# A second run updates what the first one installed.
set -euo pipefail

fail() {
  echo "error: $1" >&2
  exit 1
}

if [[ "${1:-}" == -* ]]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit 0
fi
package=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
workspace=$(realpath -m "${1:-$HOME/ros2_ws}")

if [[ -z "${ROS_PREFIX:-}" ]]; then
  found=(/opt/ros/*/setup.bash)
  [[ -n "${ROS_DISTRO:-}" ]] && found=("/opt/ros/$ROS_DISTRO/setup.bash")
  [[ ${#found[@]} -eq 1 ]] || fail "several ROS installations, set ROS_PREFIX: ${found[*]%/setup.bash}"
  ROS_PREFIX=${found[0]%/setup.bash}
fi
[[ -f "$ROS_PREFIX/setup.bash" ]] || fail "no ROS 2 in $ROS_PREFIX: install it, or set ROS_PREFIX"
set +u # the scripts of ROS read variables that are not set
source "$ROS_PREFIX/setup.bash"
set -u

python3 -c 'import ensurepip, colcon_core' 2>/dev/null ||
  fail 'venv or colcon is missing: sudo apt install python3-venv python3-colcon-common-extensions'

mkdir -p "$workspace/src"
cd "$workspace"
[[ -e src/lpr_ros ]] || ln -s "$package" src/lpr_ros
[[ -x venv/bin/python ]] || python3 -m venv --system-site-packages venv
touch venv/COLCON_IGNORE
set +u
source venv/bin/activate
set -u
# Ubuntu 22.04 has a pip that predates some wheels.
python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || pip install --upgrade pip
pip install --require-hashes --no-deps -r src/lpr_ros/requirements.lock
pip install --no-build-isolation --use-pep517 -e src/lpr_ros
python -m colcon build --packages-select lpr_ros

cat << END
Done. In every terminal:
  source $workspace/venv/bin/activate && source $workspace/install/setup.bash
  ros2 launch lpr_ros demo.launch.py
END
