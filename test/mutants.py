"""Mutation testing of the modules where a small mistake gives wrong loops: `make mutants`.

One operator, comparison, boolean or number of a module is changed at a time, and the tests of that
module must fail. The sample is fixed by the seed. Survivors are printed; the exit status is 1 if
less than 90 % of the mutants are detected.

    python test/mutants.py --count 100 --seed 0 --modules se3 trajectory

Mutants run in copies of the repository below a temporary folder: the working tree is only read.
"""

import argparse
import ast
from collections.abc import Iterator, Sequence
import compileall
import contextlib
from dataclasses import dataclass
import importlib
import os
from pathlib import Path
import random
import resource
import shutil
import signal
import sys
import tempfile
import time

import pytest

ROOT = Path(__file__).resolve().parents[1]
OWN_FOLDERS = (ROOT, ROOT / 'test', ROOT / 'training')
# Imported once, before forking: they take most of the time of a test run.
PRELOADED = (
    'numpy', 'scipy.spatial.transform', 'torch', 'faiss', 'yaml', 'small_gicp', 'kiss_matcher',
    'gtsam', 'numba', 'hypothesis.strategies', 'safetensors.torch', 'tqdm',
)  # fmt: skip
MIN_DETECTED = 0.9
TIMEOUT_S = 120.0  # an endless loop counts as detected
MEMORY_BYTES = 6 * 2**30

# Module -> test files, the fastest first.
TESTS = {
    'core/database/descriptor_index': (
        'core/database/test_descriptor_index.py',
        'core/database/test_place_database.py',
    ),
    'core/database/faiss_index': (
        'core/database/test_descriptor_index.py',
        'core/database/test_place_database.py',
    ),
    'core/database/keyframe_table': (
        'core/database/test_keyframe_table.py',
        'core/database/test_place_database.py',
    ),
    'core/database/place_database': (
        'core/database/test_map_validation.py',
        'core/database/test_place_database.py',
        'core/database/test_map_file.py',
    ),
    'core/geometry/odometry_jumps': ('core/geometry/test_odometry_jumps.py',),
    'core/geometry/odometry_noise': (
        'core/geometry/test_odometry_noise.py',
        'core/loop_closure/test_belief.py',
    ),
    'core/geometry/se3': ('core/geometry/test_se3.py',),
    'core/geometry/trajectory': ('core/geometry/test_trajectory.py',),
    'core/loop_closure/loop_closer': ('core/loop_closure/test_loop_closer.py',),
    'core/loop_closure/overlap': ('core/loop_closure/test_overlap.py',),
    'core/loop_closure/belief': ('core/loop_closure/test_belief.py',),
    'core/loop_closure/registration': ('core/loop_closure/test_registration.py',),
    'core/loop_closure/verification': ('core/loop_closure/test_verification.py',),
    'core/offline/precision_recall': ('training/evaluation/test_metrics.py',),
    'core/pose_graph/graph': ('core/pose_graph/test_graph.py',),
    'core/retrieval/keyframing': ('core/retrieval/test_keyframing.py',),
    'core/retrieval/sequence_filter': ('core/retrieval/test_sequence_filter.py',),
    'lpr_node/odometry_buffer': ('lpr_node/test_odometry_buffer.py',),
}

# Mutants that behave the same: module -> part of the statement after the change -> reason.
TIE = 'floating-point numbers that are exactly equal'
EQUIVALENT = {
    'core/geometry/odometry_jumps': {
        'np.eye(5)': 'replaced by the first pose before it is read',
    },
    'core/geometry/odometry_noise': {
        'variance[..., :3] = np.square(horizontal': 'the variance of z is set in the next line',
        'variance[..., :4]': 'rotations are assigned afterward',
    },
    'core/loop_closure/loop_closer': {
        'strict=False': 'candidates and places are made together',
    },
    'core/database/descriptor_index': {
        'len(ids) >= count': 'the nearest of count rows are all of them',
        'squared, count - 2': 'the bound is at least as large, which keeps more rows',
        '[count + 1]': 'a larger bound keeps more rows, which are sorted and cut',
        'max(2, count //': 'half of the training rows give cells as good',
        'parts(1, count)': 'cells trained without the first row are as good',
        'len(coarse) < CATCH_UP_ROWS': 'one row more in the last batch',
    },
    'core/database/faiss_index': {
        'min_points_per_centroid = 2': 'only the threshold of a warning',
        'METRIC_L2, True': 'codes of residuals are as good',
        'default_rng(1)': 'another random projection is as good',
        'min(2.0, max(': 'FAISS visits at most all cells',
        'max(2, len(self))': 'an index of one row has one cell',
    },
    'core/database/keyframe_table': {
        'positions[:, 1]': 'a pose is NaN in all elements or in none',
        'T[1, 0]': 'a pose is NaN in all elements or in none',
        'T[0, 1]': 'a pose is NaN in all elements or in none',
        '_stamps_ns[-2:]': 'stored stamps ascend, so the pair before the newest is never wrong',
        'gap_m >= 0.0': 'a gap of 0 m excludes no earlier keyframe',
    },
    'core/database/place_database': {'strict=False': 'search returns a distance for every id'},
    'core/geometry/se3': {
        'reshape(-2,': 'NumPy infers any negative size',
        '_cross(T_a_b[..., :4, 3])': 'the fourth component is not used',
        ':3], T[..., :4, 3])': 'the fourth component is 1, within the limit',
        'largest, 2.0)': 'a zero quaternion stays zero',
        'flat[:, 3:] <= 0.0': 'with w = 0 both signs are the same rotation',
        '3:5])[..., 0]': 'a slice ends at the last column',
        'skew < MAX_SKEW': TIE,
        'det(R) >= 0.0': 'the determinant of an orthogonal matrix is 1 or -1',
    },
    'core/geometry/trajectory': {
        'reshape(-2,': 'NumPy infers any negative size',
        '+ true_center)': 'centered positions sum to zero, so a constant factor cancels',
        '(positions + center)': 'centered positions sum to zero, so a constant factor cancels',
        'u.T) <= 0.0': 'the determinant of an orthogonal matrix is 1 or -1',
        'range(4)': 'the last row of every pose is 0 0 0 1',
    },
    'core/loop_closure/overlap': {
        'range_m <= (1.0': TIE,
        '(azimuth - np.pi)': 'a full turn is a whole number of bins',
    },
    'core/loop_closure/registration': {
        'prepend=-2': 'columns are not negative',
        'points[:, :3] / cell_m': 'the third cell is not used',
        'max() + 2)': 'columns stay distinct',
        'np.linspace(1,': 'one of 500 samples',
        'len(points) - 2': 'one of 500 samples',
    },
    'core/retrieval/keyframing': {
        'rotation_angle_rad(change) > ': TIE,
        'traveled = 1.0': 'only differences of the traveled distance are used',
    },
}

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.MatMult: ast.Add,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}  # fmt: skip
# Not behavior: declarations of settings, messages, annotations.
SKIPPED_CALLS = {'option', 'dataclass', 'TypeVar', 'getLogger'}
SKIPPED_NODES = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Mutant:
    """One changed module."""

    module: str
    line: int
    before: str  # the changed statement or expression
    after: str
    source: str

    @property
    def is_equivalent(self) -> bool:
        """Whether no test can tell it from the original."""
        parts = EQUIVALENT.get(self.module, {})
        return any(part in self.after and part not in self.before for part in parts)

    def __str__(self) -> str:
        return f'lpr_ros/{self.module}.py:{self.line}: {self.before}  ->  {self.after}'


def mutants_of(module: str) -> list[Mutant]:
    """Return every mutant of a module."""
    text = (ROOT / 'lpr_ros' / f'{module}.py').read_text()
    count = sum(1 for _ in sites(ast.parse(text)))
    made = []
    for number in range(count):
        tree = ast.parse(text)
        node, shown = next(site for i, site in enumerate(sites(tree)) if i == number)
        before = ast.unparse(shown)
        mutate(node)
        after = ast.unparse(shown)
        made.append(Mutant(module, node.lineno, short(before), short(after), ast.unparse(tree)))
    return made


def short(text: str) -> str:
    """Return the first line of a statement."""
    return text.splitlines()[0]


def sites(
    tree: ast.AST, module: ast.Module | None = None, shown: ast.stmt | None = None
) -> Iterator[tuple[ast.expr | ast.stmt, ast.stmt]]:
    """Yield the nodes that can be mutated, each with the statement to print."""
    module = module or tree
    for field, value in ast.iter_fields(tree):
        if field in ('annotation', 'returns', 'decorator_list', 'type_comment'):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or is_skipped(node):
                continue
            statement = node if isinstance(node, ast.stmt) else shown
            # Numbers at module level are tuning constants; how they are combined is logic.
            is_constant = isinstance(node, ast.Constant) and statement in module.body
            if is_mutable(node) and not is_constant:
                yield node, statement
            yield from sites(node, module, statement)


def is_skipped(node: ast.AST) -> bool:
    if isinstance(node, SKIPPED_NODES):
        return True
    if isinstance(node, ast.Call):
        name = getattr(node.func, 'id', getattr(node.func, 'attr', ''))
        owner = getattr(getattr(node.func, 'value', None), 'id', '')
        return name in SKIPPED_CALLS or owner == 'logger'
    return False


def is_mutable(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return type(node.ops[0]) in COMPARISONS
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return type(node.op) in OPERATORS
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not | ast.USub | ast.Invert)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    return isinstance(node, ast.BoolOp)


def mutate(node: ast.AST) -> None:
    """Change one node in place."""
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        node.op = OPERATORS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub):
            node.op = ast.UAdd()
        else:  # applied twice, `not` and `~` do nothing
            node.operand = ast.UnaryOp(node.op, node.operand)
    elif isinstance(node, ast.Constant):
        value = node.value
        node.value = not value if isinstance(value, bool) else value + 1


def sample(modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants evenly from all modules, without the equivalent ones."""
    rng = random.Random(seed)
    piles = []
    for module in modules:
        found = [mutant for mutant in mutants_of(module) if not mutant.is_equivalent]
        rng.shuffle(found)
        piles.append(found)
    drawn: list[Mutant] = []
    while len(drawn) < count and any(piles):
        drawn += [pile.pop() for pile in piles if pile]
    return drawn[:count]


def copy_tree(folder: Path) -> None:
    """Copy what the tests read, and compile it: mutants do not write bytecode."""
    ignored = shutil.ignore_patterns('__pycache__', '*.pyc')
    for name in ('lpr_ros', 'test'):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ('training', 'weights', 'config', 'setup.cfg'):
        (folder / name).symlink_to(ROOT / name)
    compileall.compile_dir(folder / 'lpr_ros', quiet=1)


def start(tree: Path, tests: Sequence[str], core: int) -> int:
    """Fork a process that runs test files in a tree; return its id."""
    pid = os.fork()
    if pid:
        return pid
    status = 2
    try:
        os.setsid()
        os.sched_setaffinity(0, {core})
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.chdir(tree)
        paths = [str(tree), str(tree / 'training')]
        os.environ['PYTHONPATH'] = os.pathsep.join(paths)
        sys.path[:] = [*paths, *(p for p in sys.path if Path(p).resolve() not in OWN_FOLDERS)]
        options = ['-x', '-q', '-p', 'no:cacheprovider', '--hypothesis-seed=0']
        status = int(pytest.main([*options, *(f'test/{name}' for name in tests)]))
    finally:
        os._exit(status)


@dataclass(frozen=True, eq=False)
class Job:
    """A running mutant, or a module without one."""

    module: str
    mutant: Mutant | None
    tree: Path
    core: int
    pid: int
    deadline: float


class Runner:
    """Runs the tests of mutants in copies of the repository, one per worker."""

    def __init__(self, folder: Path, workers: int):
        cores = sorted(os.sched_getaffinity(0))
        self._free = [(folder / str(n), cores[n % len(cores)]) for n in range(workers)]
        self._jobs: dict[int, Job] = {}
        self.passed: list[tuple[str, Mutant | None]] = []
        for tree, _ in self._free:
            copy_tree(tree)

    def run(self, work: Sequence[tuple[str, Mutant | None]]) -> None:
        """Run the tests of each module, and collect what passed."""
        for module, mutant in work:
            while not self._free:
                self._wait()
            tree, core = self._free.pop()
            if mutant is not None:
                (tree / 'lpr_ros' / f'{module}.py').write_text(mutant.source)
            pid = start(tree, TESTS[module], core)
            deadline = time.monotonic() + TIMEOUT_S
            self._jobs[pid] = Job(module, mutant, tree, core, pid, deadline)
        while self._jobs:
            self._wait()

    def _wait(self) -> None:
        """Collect finished jobs; kill those past their deadline."""
        for job in list(self._jobs.values()):
            pid, status = os.waitpid(job.pid, os.WNOHANG)
            if not pid and time.monotonic() < job.deadline:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            if not pid:
                os.waitpid(job.pid, 0)
            if pid and status == 0:
                self.passed.append((job.module, job.mutant))
                if job.mutant is not None:
                    print(f'survived  {job.mutant}', flush=True)
            name = f'{job.module}.py'
            shutil.copy2(ROOT / 'lpr_ros' / name, job.tree / 'lpr_ros' / name)  # same mtime
            self._free.append((job.tree, job.core))
            del self._jobs[job.pid]
        time.sleep(0.05)

    def close(self) -> None:
        """Kill what is left."""
        for job in self._jobs.values():
            os.killpg(job.pid, signal.SIGKILL)
            os.waitpid(job.pid, 0)


def run(modules: Sequence[str], mutants: Sequence[Mutant], workers: int) -> list[Mutant]:
    """Return the mutants that the tests of their module do not detect."""
    with tempfile.TemporaryDirectory(prefix='mutants_') as folder:
        runner = Runner(Path(folder), workers)
        try:
            runner.run([(module, None) for module in modules])
            broken = sorted(set(modules) - {module for module, _ in runner.passed})
            if broken:
                raise SystemExit(f'tests fail without any mutant: {", ".join(broken)}')
            runner.run([(mutant.module, mutant) for mutant in mutants])
        finally:
            runner.close()
    return [mutant for _, mutant in runner.passed if mutant is not None]


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('--count', type=int, default=100, help='number of mutants (100)')
    add('--seed', type=int, default=0, help='of the sample (0)')
    cores = len(os.sched_getaffinity(0))
    add('--workers', type=int, default=cores, help=f'processes at a time (cores: {cores})')
    add('--modules', nargs='+', default=[], help='only modules whose path ends so (all)')
    add('--list', action='store_true', help='print the sample, run nothing')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sample; return 0 if enough mutants are detected, else 1."""
    args = build_parser().parse_args(argv)
    modules = [m for m in TESTS if not args.modules or m.endswith(tuple(args.modules))]
    mutants = sample(modules, args.count, args.seed)
    if args.list:
        print(*mutants, sep='\n')
        return 0
    # Stale bytecode: two mutants of one second and size look alike.
    sys.dont_write_bytecode = True
    os.environ['PYTHONDONTWRITEBYTECODE'] = '1'
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    started = time.monotonic()
    survivors = run(modules, mutants, args.workers)
    detected = len(mutants) - len(survivors)
    minutes = (time.monotonic() - started) / 60.0
    print(f'{detected} of {len(mutants)} mutants detected in {minutes:.1f} minutes')
    return 0 if detected >= MIN_DETECTED * len(mutants) else 1


if __name__ == '__main__':
    raise SystemExit(main())
