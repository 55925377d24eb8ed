"""Store in a checkpoint what its descriptor distances mean, from held-out places."""

from dataclasses import replace
from pathlib import Path

from lpr_ros.core.calibration import Calibration
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.model.checkpoint import load_checkpoint, save_checkpoint
from lpr_ros.core.model.describer import Describer
from lpr_training.calibration import SAME_PLACE_M, fit_calibration
from lpr_training.training_data import HeldOut
from lpr_training.validation import match_held_out


def calibrate(
    describer: Describer,
    held_out: HeldOut,
    *,
    radius_m: float = SAME_PLACE_M,
    batch: int = 16,
    progress: bool = False,
) -> Calibration:
    """Fit P(same place | distance) to the matches of held-out places, revisits or not."""
    matches = match_held_out(
        describer, held_out, radius_m=radius_m, batch=batch, progress=progress
    )
    if not len(matches.distances):
        raise DatasetError(
            f'no held-out place has a place {held_out.gap} older to be matched with; '
            'expected some to calibrate on'
        )
    return fit_calibration(matches.distances, matches.is_same, radius_m)


def calibrate_weights(
    weights: Path,
    held_out: HeldOut,
    *,
    out: Path | None = None,
    device: str = 'auto',
    batch: int = 16,
    radius_m: float = SAME_PLACE_M,
    progress: bool = False,
) -> Calibration:
    """Calibrate a checkpoint file in place, or into another file."""
    checkpoint = load_checkpoint(weights)
    describer = Describer(checkpoint.build(), device=device)
    fitted = calibrate(describer, held_out, radius_m=radius_m, batch=batch, progress=progress)
    save_checkpoint(out or weights, replace(checkpoint, calibration=fitted.to_dict()))
    return fitted
