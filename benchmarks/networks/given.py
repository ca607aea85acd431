"""Models that are given on the command line instead of those that a benchmark brings along."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from placer.common.shapes import parse_shape
from placer.model import Model, load_model


def add_option(parser: argparse.ArgumentParser) -> None:
    """``--model``."""
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="FILE[,INPUT=SHAPE...]",
        help="instead of the benchmark's own, e.g. net.onnx,images=1x3x320x320; repeatable",
    )


def given_models(
    arguments: argparse.Namespace, bodies: bool = False
) -> Iterator[tuple[str, Callable[[], Model]]]:
    """What loads each model of ``--model``, by its file's name without the suffix.

    ``bodies``: whether nodes in the bodies of If, Loop and Scan are nodes as others.
    """
    for text in arguments.model:
        file, *texts = text.split(",")
        path, shapes = Path(file), dict(map(parse_shape, texts))
        yield path.stem, partial(load_model, path, shapes, bodies=bodies)
