"""From the command line of evaluate.py to the report of one protocol."""

from argparse import Namespace
from collections.abc import Callable

from lpr_training.evaluation import kitti_bev
from lpr_training.evaluation.methods import Method, make_method
from lpr_training.evaluation.report import Report
from lpr_training.protocols.kitti_bev import parse_range


def run_protocol(args: Namespace) -> Report:
    """Evaluate by the protocol that `args.protocol` names."""
    method = make_method(args.method, args.weights, device=args.device, batch=args.batch)
    method.progress = not args.quiet
    return RUNNERS[args.protocol](args, method)


def _kitti_bev(args: Namespace, method: Method) -> Report:
    return kitti_bev.evaluate(
        method,
        args.data,
        database=parse_range(args.database) if args.database else None,
        queries=parse_range(args.queries) if args.queries else None,
        yaw_seed=_yaw_seed(args),
    )


def _yaw_seed(args: Namespace) -> int | None:
    return args.seed if args.yaw == 'random' else None


RUNNERS: dict[str, Callable[[Namespace, Method], Report]] = {'kitti_bev': _kitti_bev}
