"""Draw docs/images/architecture.svg: data flow from point cloud to loop closure.

python docs/images/architecture.py
"""

from pathlib import Path

WIDTH, HEIGHT = 992, 378
BOX_W, BOX_H = 168, 58
SHELL, CORE, OUTSIDE = '#dbe9f6', '#e3f1e2', '#f3f3f3'

# name -> (x, y, fill, title, module)
BOXES = {
    'clouds': (20, 60, OUTSIDE, 'Clouds, odometry', 'topics or a recording'),
    'scan': (216, 60, SHELL, 'Scan', 'lpr_node/inputs.py'),
    'keyframe': (412, 60, CORE, 'Keyframe, submap', 'retrieval/keyframing.py'),
    'cells': (608, 60, CORE, 'Voxels', 'model/quantize.py'),
    'features': (804, 60, CORE, 'Features', 'model/minkfpn.py, sparse/'),
    'descriptor': (804, 180, CORE, 'Descriptor', 'model/pooling.py'),
    'matches': (608, 180, CORE, 'Matches', 'database/place_database.py'),
    'candidates': (412, 180, CORE, 'Candidates', 'retrieval/sequence_filter.py'),
    'registered': (216, 180, CORE, 'Registered pair', 'loop_closure/registration.py'),
    'verified': (20, 180, CORE, 'Verified pair', 'loop_closure/verification.py'),
    'closure': (20, 300, CORE, 'Loop closure', 'belief.py'),
    'topics': (216, 300, SHELL, 'Topics, back-ends', 'publishers.py, slam_adapters/'),
    'graph': (412, 300, CORE, 'Corrected path', 'pose_graph/optimizer.py'),
    'map': (608, 300, OUTSIDE, 'Map file', 'database/map_file.py'),
    'checkpoint': (804, 300, OUTSIDE, 'Checkpoint', 'model/checkpoint.py'),
}
ARROWS = [
    ('clouds', 'scan'), ('scan', 'keyframe'), ('keyframe', 'cells'), ('cells', 'features'),
    ('features', 'descriptor'), ('descriptor', 'matches'), ('matches', 'candidates'),
    ('candidates', 'registered'), ('registered', 'verified'), ('verified', 'closure'),
    ('closure', 'topics'), ('topics', 'graph'), ('matches', 'map'), ('map', 'matches'),
    ('checkpoint', 'descriptor'),
]  # fmt: skip
LEGEND = [(SHELL, 'ROS: lpr_ros/'), (CORE, 'core, no ROS: lpr_ros/core/'),
          (OUTSIDE, 'outside, validated when read')]  # fmt: skip
STYLE = (
    'text{font-family:sans-serif;fill:#222;text-anchor:middle}'
    '.t{font-size:14px;font-weight:600}.w{font-size:11px}.n{font-size:12px;text-anchor:start}'
    'rect{stroke:#667;stroke-width:1}line,path{stroke:#445;stroke-width:1.6;fill:none}'
)


def ends(start: str, goal: str) -> tuple[float, float, float, float]:
    """Return the ends of an arrow between two boxes: side to side, or top to bottom."""
    ax, ay, bx, by = *BOXES[start][:2], *BOXES[goal][:2]
    if ay == by:
        right = bx > ax
        y = ay + BOX_H / 2
        return (ax + BOX_W, y, bx - 3, y) if right else (ax, y, bx + BOX_W + 3, y)
    if by > ay:
        return ax + BOX_W / 2, ay + BOX_H, bx + BOX_W / 2, by - 3
    return ax + BOX_W / 2, ay, bx + BOX_W / 2, by + BOX_H + 3


def draw() -> str:
    """Return the picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img" aria-label="Data flow through lpr_ros"><style>{STYLE}</style>',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#445"/></marker>'
        '</defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" style="fill:#fff;stroke:none"/>',
    ]
    for start, goal in ARROWS:
        x1, y1, x2, y2 = ends(start, goal)
        parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" marker-end="url(#a)"/>')
    for x, y, fill, title, what in BOXES.values():
        middle = x + BOX_W / 2
        parts.append(
            f'<rect x="{x}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="7" fill="{fill}"/>'
            f'<text class="t" x="{middle}" y="{y + 25}">{title}</text>'
            f'<text class="w" x="{middle}" y="{y + 44}">{what}</text>'
        )
    for number, (fill, text) in enumerate(LEGEND):
        x = 20 + 230 * number
        parts.append(
            f'<rect x="{x}" y="14" width="18" height="18" rx="4" fill="{fill}"/>'
            f'<text class="n" x="{x + 26}" y="28">{text}</text>'
        )
    return '\n'.join([*parts, '</svg>']) + '\n'


if __name__ == '__main__':
    Path(__file__).with_suffix('.svg').write_text(draw(), encoding='utf-8')
