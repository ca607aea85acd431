"""Pages: what a text says is shown, whatever characters it holds."""

import plotly.graph_objects as go

from placer.report.page import figure_data


def test_direction_marks_in_figures_are_shown_as_codes():
    data = figure_data(go.Figure(go.Bar(x=["conv\u202evnoc"], y=[1])))
    assert data["data"][0]["x"] == ["conv[U+202E]vnoc"]
