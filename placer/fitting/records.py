"""What was measured, a file for each network, so that a fit can be repeated without measuring.

The files lie in a folder for each set of options that decide a measurement. They name nodes and
stay on the user's machine; only the fit file is made to be passed on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic import Field, NonNegativeFloat, ValidationError

from placer.common.files import make_output_folder, read_text, write_text
from placer.errors import InputError
from placer.graph import Edge
from placer.plan import Layer, Plan, Port
from placer.plan.plan import Kind
from placer.prediction.times.costs import Document
from placer.quantization import Placement

FLOAT, DEFAULT = "float", "default"
_OPTIONS = "options.json"


class PortRecord(Document):
    """See ``placer.plan.Port``."""

    dtype: str
    tensor: str


class LayerRecord(Document):
    """A layer that the engine built; see ``placer.plan.Layer``."""

    name: str
    op: str
    nodes: tuple[str, ...]
    inputs: tuple[PortRecord, ...]
    outputs: tuple[PortRecord, ...]
    kind: Kind
    us: NonNegativeFloat | None

    @staticmethod
    def of(layer: Layer) -> LayerRecord:
        """What is kept of ``layer``."""
        inputs, outputs = (
            tuple(PortRecord(dtype=port.dtype, tensor=port.tensor) for port in ports)
            for ports in (layer.inputs, layer.outputs)
        )
        return LayerRecord(
            name=layer.name,
            op=layer.op,
            nodes=layer.nodes,
            inputs=inputs,
            outputs=outputs,
            kind=layer.kind,
            us=layer.time_us,
        )

    def layer(self) -> Layer:
        """The layer again."""
        inputs, outputs = (
            tuple(Port(port.dtype, tensor=port.tensor) for port in ports)
            for ports in (self.inputs, self.outputs)
        )
        return Layer(self.name, self.op, self.nodes, inputs, outputs, self.kind, time_us=self.us)


class BuildRecord(Document):
    """One build of a network.

    ``groups``: quantized edges as tensor, node and input, by scale group. ``seconds``: of each
    round, the builds of a network in turn. ``layers``: what the engine built, empty if it does not
    tell.
    """

    label: str
    groups: tuple[tuple[tuple[str, str, int], ...], ...]
    seconds: tuple[float, ...] = Field(min_length=3)
    layers: tuple[LayerRecord, ...]
    removed: tuple[str, ...] = ()

    @cached_property
    def placement(self) -> Placement:
        """What was quantized."""
        return Placement.of_groups((Edge(*edge) for edge in group) for group in self.groups)

    @property
    def plan(self) -> Plan:
        """The layers that were built, with times by the engine's profiler."""
        layers = tuple(layer.layer() for layer in self.layers)
        return Plan(layers, "built", removed=self.removed)


class NetworkRecord(Document):
    """The builds of one network; the float build is the first.

    ``fingerprint``: of the model. ``copy_seconds``: of another build of the float model, measured
    in the same rounds. ``refused``: what the engine said of builds that it refused.
    """

    network: str
    fingerprint: str
    copy_seconds: tuple[float, ...]
    builds: tuple[BuildRecord, ...]
    refused: tuple[str, ...] = ()

    @property
    def seconds(self) -> np.ndarray:
        """Of the builds, shape (rounds, builds)."""
        rounds = list(zip(*(build.seconds for build in self.builds), strict=True))
        return np.array(rounds)


class Records:
    """The records of one set of ``options`` below ``folder``."""

    def __init__(self, folder: Path, options: Mapping[str, object]) -> None:
        self._folder = folder
        text = json.dumps(options, sort_keys=True, indent=1)
        self._options = text + "\n"
        self._own = folder / hashlib.sha256(text.encode()).hexdigest()[:12]

    def load(self, network: str, fingerprint: str) -> NetworkRecord | None:
        """What was measured of ``network``; None if nothing was, or the model has changed since.

        Raises InputError for a damaged file.
        """
        path = self._path(network)
        if not path.exists():
            return None
        text = read_text(path, "measured builds", "json_bytes")
        try:
            record = NetworkRecord.model_validate_json(text)
        except ValidationError as error:
            raise InputError(
                f"{path} is damaged; remove it, and its network is measured again"
            ) from error
        return record if record.fingerprint == fingerprint else None

    def keep(self, record: NetworkRecord) -> None:
        """Write what was measured."""
        make_output_folder(self._own)
        if not (self._own / _OPTIONS).exists():
            write_text(self._own / _OPTIONS, self._options)
        write_text(self._path(record.network), record.model_dump_json() + "\n")

    def others(self) -> list[Path]:
        """Folders of builds that were measured with other options."""
        folders = self._folder.glob(f"*/{_OPTIONS}")
        return sorted(path.parent for path in folders if path.parent != self._own)

    @property
    def folder(self) -> Path:
        """Where these records lie."""
        return self._own

    def _path(self, network: str) -> Path:
        return self._own / f"{network}.json"
