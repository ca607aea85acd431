"""Named sets of effort: how many trials, samples and rounds a run takes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from placer.common.names import unknown
from placer.common.yaml_file import parse_file
from placer.errors import InputError


class Preset(BaseModel):
    """Effort of a run.

    ``budget``: trials. ``calibration_samples``, ``evaluation_samples``: at most that many samples
    are used. ``noise_samples``: calibration samples on which calibration methods are compared, and
    evaluation samples on which noise is measured beside the trials. ``mixed_groups``: scale groups
    for which every calibration method is tried, the noisiest first. ``noise_sources``: probes of
    the result's rules and groups, which tell where its accuracy went. ``rounds``: interleaved
    rounds per trial. ``finalists``:
    candidates that are raced; ``race_rounds``: rounds before each elimination and ``races`` the
    most of those; ``confirm_rounds``: fresh rounds of the winner against the float model. In both
    every model is compiled ``copies`` times.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: PositiveInt
    calibration_samples: PositiveInt
    evaluation_samples: PositiveInt
    noise_samples: PositiveInt
    mixed_groups: PositiveInt
    noise_sources: NonNegativeInt
    rounds: PositiveInt
    finalists: PositiveInt
    race_rounds: PositiveInt
    races: PositiveInt
    confirm_rounds: PositiveInt
    copies: PositiveInt


def load_preset(name: str) -> Preset:
    """Return the preset of ``configs/presets/NAME.yaml``; InputError lists the known ones."""
    folder = Path(str(resources.files("placer.configs"))) / "presets"
    path = folder / f"{name}.yaml"
    known = sorted(p.stem for p in folder.glob("*.yaml"))
    if name not in known:
        raise InputError(unknown("preset", name, known))
    return parse_file(path, folder, Preset)
