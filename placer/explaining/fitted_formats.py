"""What an explanation says of formats that the costs of a fit were not measured in."""

from __future__ import annotations

from placer.common.listed import listed
from placer.explaining.placed_model import PlacedModel
from placer.prediction.times.fitted import Fit
from placer.quantization.scheme import INT8_OR_UINT8, Scheme
from placer.rules.pack import Pack


def fitted_formats(placed: PlacedModel, fit: Fit, pack: Pack) -> str:
    """A sentence if ``placed`` has other formats than the fit's networks; empty if it has not.

    A placement is compared with the scheme of ``pack``, which the fit was measured with, the pairs
    of a file by the types of activations: other parts of a scheme are not told in a file.
    """
    scheme = pack.manifest.scheme
    if placed.made_for is not None:
        given = _formats(placed.made_for)
        other = given if given != _formats(scheme) else ""
    else:
        known = _types(scheme)
        if pack.manifest.behaviour.signed == "converted":  # ONNX Runtime makes them uint8.
            known |= {"int8", "uint8"}
        types = {placed.quantized_to[tensor] for tensor in _read(placed)}
        other = listed([f"activations in {dtype}" for dtype in sorted(types - known)])
    if not other:
        return ""
    return (
        f"the costs of {fit.name} were measured with {_formats(scheme)}, not with {other} as in "
        f"{placed.source}, which may take another time: measure it by placer bench"
    )


def _read(placed: PlacedModel) -> set[str]:
    """Activations with pairs that a kernel may take."""
    edges = frozenset() if placed.placement is None else placed.placement.edges
    return {edge.tensor for edge in edges} & placed.quantized_to.keys()


def _types(scheme: Scheme) -> set[str]:
    return {"int8", "uint8"} if scheme.activation == INT8_OR_UINT8 else {scheme.activation}


def _formats(scheme: Scheme) -> str:
    kind = "symmetric" if scheme.symmetric else "asymmetric"
    return f"{kind} activations in {scheme.activation} and weights in {scheme.weight}"
