"""From the trials to the result: finalists, files as they were judged, the summary."""
