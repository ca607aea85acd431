"""junit.xml: one test case per model, for continuous integration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from placer.results.gate_values import gate_value
from placer.results.onboarding import DONE, MISSED, ModelSummary, Summary

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(summary: Summary) -> bytes:
    """The document: a missed gate is a failure, a model without a result an error.

    Each model is a suite of one case, as only suites have properties in JUnit's schema.
    """
    document = JUnitXml("placer onboard")
    for model in summary.models:
        document.add_testsuite(_suite(model, summary.started))
    written = BytesIO()
    document.write(written, pretty=True)
    return written.getvalue()


def _suite(model: ModelSummary, started: str) -> TestSuite:
    suite = TestSuite(model.name)
    suite.timestamp = started.removesuffix("+00:00")
    for name, value in _properties(model):
        suite.add_property(name, _clean(value))
    case = TestCase(model.name, "placer.onboard", model.seconds or 0.0)
    message = _clean(model.reason or model.state)
    if model.state == MISSED:
        case.result = Failure(message, model.state)
    elif model.state not in DONE:
        case.result = Error(message, model.state)
    suite.add_testcase(case)
    return suite


def _properties(model: ModelSummary) -> Iterator[tuple[str, str]]:
    yield "model", model.model
    yield "state", model.state_text
    yield "why", model.why
    if model.result is not None:
        yield "result", model.result
        if model.float_per_second is None:
            yield "latencies", "estimated" if model.estimated else "measured"
    kind = "estimated " if model.estimated else ""
    if model.float_ms is not None:
        yield f"{kind}float ms", f"{model.float_ms:.6g}"
    if model.best_ms is not None:
        yield f"{kind}best ms", f"{model.best_ms:.6g}"
    if model.float_per_second is not None:
        yield "float inferences per second", f"{model.float_per_second:.6g}"
    if model.best_per_second is not None:
        yield "best inferences per second", f"{model.best_per_second:.6g}"
    if model.speedup is not None and model.speedup_interval is not None:
        low, high = model.speedup_interval
        yield f"{kind}speedup", f"{model.speedup:.4f}"
        yield f"{kind}speedup interval", f"{low:.4f} to {high:.4f}"
    for gate in model.gates:
        yield f"gate {gate.gate}", gate_value(gate.value, passed=gate.passed, digits=6)


def _clean(text: str) -> str:
    """``text`` without what XML cannot hold."""
    return _NOT_IN_XML.sub("?", text)
