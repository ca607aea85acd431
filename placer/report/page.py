"""Pages from templates: everything inline, nothing loaded, scripts allowed by their hashes."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from importlib import resources
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from placer.common.display import printable
from placer.report.style import CONFIG


def figure_data(figure: go.Figure, *, zoom: bool = False) -> dict[str, Any]:
    """A figure as the page's script draws it; ``zoom``: by the mouse wheel."""
    document: dict[str, Any] = shown(json.loads(figure.to_json()))
    document["layout"].pop("template", None)
    return {
        "data": document["data"],
        "layout": document["layout"],
        "config": {**CONFIG, "scrollZoom": zoom},
    }


def shown(value: Any) -> Any:
    """Return ``value`` with hidden characters of its texts, such as names, as codes; markup stays.

    The page's templates do so by themselves; data that its scripts read has to pass through here.
    """
    if isinstance(value, str):
        return value if isinstance(value, Markup) else printable(value)
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value


def render(template: str, **values: Any) -> str:
    """Return the page; ``figures`` among the values makes plotly part of it."""
    scripts = [_asset("graph.js"), _asset("report.js")]
    if values.get("figures"):
        scripts.insert(0, _plotly())
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(_hash(script) for script in scripts)}",
            "style-src 'unsafe-inline'",  # Plotly writes style attributes.
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return (
        _environment()
        .get_template(template)
        .render(
            # Our own and plotly's text: nothing of the model is in them.
            scripts=[Markup(script) for script in scripts],
            style=Markup(_asset("report.css")),
            policy=policy,
            **values,
        )
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("placer.report", "."),
        finalize=shown,
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache(maxsize=1)
def _plotly() -> str:
    script: str = get_plotlyjs()
    # A browser reads one newline for each of these, and hashes what it has read.
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _asset(name: str) -> str:
    return (resources.files("placer.report") / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
