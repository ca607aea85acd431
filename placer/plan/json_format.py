"""Plans as JSON documents of placer's own format."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from placer.errors import InputError
from placer.plan.plan import Kind, Layer, Plan, Port

FORMAT = "placer-plan/1"


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Port(_Document):
    dtype: str
    format: str = ""
    tensor: str = ""

    def read(self) -> Port:
        return Port(self.dtype, self.format, self.tensor)


class _Layer(_Document):
    name: str
    op: str
    nodes: list[str]
    inputs: list[_Port] = []
    outputs: list[_Port] = []
    kind: Kind = "compute"
    activation: str = ""
    kernel: str = ""
    time_us: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    def read(self) -> Layer:
        return Layer(
            name=self.name,
            op=self.op,
            nodes=tuple(self.nodes),
            inputs=tuple(port.read() for port in self.inputs),
            outputs=tuple(port.read() for port in self.outputs),
            kind=self.kind,
            activation=self.activation,
            kernel=self.kernel,
            time_us=self.time_us,
        )


class _Plan(_Document):
    format: Literal["placer-plan/1"]
    source: str
    estimated: bool
    layers: list[_Layer]
    removed: list[str] = []
    estimated_times: bool = False


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return ``plan`` as a document for ``json.dumps``; what an engine does not say is left out.

    ``parse_plan`` returns an equal plan. Times are in microseconds.
    """
    document = {
        "format": FORMAT,
        "source": plan.source,
        "estimated": plan.estimated,
        "layers": [_layer_json(layer) for layer in plan.layers],
    }
    optional = {"removed": list(plan.removed), "estimated_times": plan.estimated_times}
    return document | {key: value for key, value in optional.items() if value}


def _layer_json(layer: Layer) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": layer.name,
        "op": layer.op,
        "nodes": list(layer.nodes),
        "inputs": [_port_json(port) for port in layer.inputs],
        "outputs": [_port_json(port) for port in layer.outputs],
        "kind": layer.kind,
    }
    if layer.activation:
        document["activation"] = layer.activation
    if layer.kernel:
        document["kernel"] = layer.kernel
    if layer.time_us is not None:
        document["time_us"] = layer.time_us
    return document


def _port_json(port: Port) -> dict[str, str]:
    optional = {"format": port.format, "tensor": port.tensor}
    return {"dtype": port.dtype} | {key: value for key, value in optional.items() if value}


def parse_plan(document: object, origin: str) -> Plan:
    """Return the plan of a document of ``plan_json``.

    ``origin`` names the file in errors. Raises InputError that names the first wrong field.
    """
    try:
        read = _Plan.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the document"
        raise InputError(f"{origin}: {field}: {first['msg']}; write it as {FORMAT} does") from error
    layers = tuple(layer.read() for layer in read.layers)
    return Plan(layers, read.source, read.estimated, tuple(read.removed), read.estimated_times)
