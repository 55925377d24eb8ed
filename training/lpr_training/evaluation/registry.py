"""The protocols of evaluate.py, one line each."""

from argparse import Namespace

from lpr_training.evaluation import between_runs, kitti_bev, sequence, wild_places_intra, worlds
from lpr_training.evaluation.protocol import Protocol
from lpr_training.evaluation.report import Report

PROTOCOLS: dict[str, Protocol] = {
    'kitti_bev': kitti_bev.PROTOCOL,
    'sequence': sequence.PROTOCOL,
    'places': worlds.PROTOCOL,
    'oxford': between_runs.OXFORD,
    'wild_places_inter': between_runs.WILD_PLACES_INTER,
    'wild_places_intra': wild_places_intra.PROTOCOL,
}


def run_protocol(args: Namespace) -> Report:
    """Evaluate `args.method` with the protocol named by `args.protocol`."""
    from lpr_training.evaluation.methods import make_method  # imports torch

    method = make_method(args.method, args.weights, device=args.device, batch=args.batch)
    method.progress = not args.quiet
    return PROTOCOLS[args.protocol].run(args, method)
