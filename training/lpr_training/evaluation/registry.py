"""From the command line of evaluate.py to the report of one protocol."""

from argparse import Namespace
from collections.abc import Callable

from lpr_training.evaluation import between_runs, kitti_bev, places, sequence, wild_places_intra
from lpr_training.evaluation.methods import Method, make_method
from lpr_training.evaluation.report import Report
from lpr_training.protocols.kitti_bev import parse_range
from lpr_training.protocols.runs import OXFORD_RADIUS_M, WILD_PLACES_RADIUS_M


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


def _sequence(args: Namespace, method: Method) -> Report:
    return sequence.evaluate(
        method,
        sequence.open_drive(args.data, args.dataset, args.run),
        exclude=args.exclude,
        exclude_by=args.exclude_by,
        radius_m=args.radius,
        yaw_seed=_yaw_seed(args),
    )


def _places(args: Namespace, method: Method) -> Report:
    return places.evaluate(
        method,
        places.open_worlds(args.data, args.worlds, args.drives),
        radius_m=args.radius,
        yaw_seed=_yaw_seed(args),
    )


def _oxford(args: Namespace, method: Method) -> Report:
    parts = between_runs.oxford_parts(args.data, args.sets)
    return between_runs.evaluate_all(args.protocol, method, parts, OXFORD_RADIUS_M)


def _wild_places_inter(args: Namespace, method: Method) -> Report:
    parts = between_runs.wild_places_parts(args.data, args.sets)
    return between_runs.evaluate_all(args.protocol, method, parts, WILD_PLACES_RADIUS_M)


def _wild_places_intra(args: Namespace, method: Method) -> Report:
    sequences = wild_places_intra.open_sequences(args.data, args.sets)
    return wild_places_intra.evaluate_all(
        method, sequences, official_window=args.official_window
    )


def _yaw_seed(args: Namespace) -> int | None:
    return args.seed if args.yaw == 'random' else None


RUNNERS: dict[str, Callable[[Namespace, Method], Report]] = {
    'kitti_bev': _kitti_bev,
    'sequence': _sequence,
    'places': _places,
    'oxford': _oxford,
    'wild_places_inter': _wild_places_inter,
    'wild_places_intra': _wild_places_intra,
}
