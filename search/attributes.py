"""Names of what a study keeps with each of its trials."""

CLAIM, KIND, OUTCOME, WITHDRAWN = "placement", "kind", "outcome", "withdrawn"
DEATHS = "deaths"
SKIPPED = "skipped"
