"""What NVIDIA's builder made of models that it has built before, in files named by content."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import onnx

from placer.common.files import write_bytes
from placer.errors import PlacerError
from placer.graph.edit import all_tensors
from placer.graph.external_data import content_digest
from placer.graph.shapes import ShapeRange

log = logging.getLogger(__name__)


class BuildCache:
    """Logged layers by model, builder and GPU; they are the same in every build.

    ``builder``: title with version. A file that cannot be read or written costs a build, no more.
    """

    def __init__(
        self, folder: Path, builder: str, gpu: str, shapes: Mapping[str, ShapeRange]
    ) -> None:
        given = sorted((name, shape_range.text) for name, shape_range in shapes.items())
        self._folder = folder
        self._settings = f"{builder} {gpu} {given}"

    def lines(
        self, model: onnx.ModelProto, base_dir: Path, build: Callable[[], str]
    ) -> tuple[str, ...]:
        """The lines kept of ``model``; else those of ``build()``, which raises what it raises."""
        content = content_digest(model, all_tensors(model.graph), base_dir)
        name = sha256(f"{self._settings} {content}".encode()).hexdigest()
        path = self._folder / f"{name}.log.gz"
        text = _read(path)
        if text is None:
            text = build()
            self._keep(path, text)
        return tuple(text.splitlines())

    def _keep(self, path: Path, text: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, gzip.compress(text.encode(), mtime=0))
        except (OSError, PlacerError) as error:
            log.warning("a build is not kept in %s: %s", path.parent, error)


def _read(path: Path) -> str | None:
    try:
        text = gzip.decompress(path.read_bytes()).decode()
        if not text:  # A file of no bytes, as a crash of the machine leaves it, passes as gzip.
            raise EOFError("it is empty")
        return text
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        log.warning("%s is damaged, so the candidate is built again: %s", path, error)
        return None
