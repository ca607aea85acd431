"""What an engine runs, actual or predicted, in one form: read, compared, written."""

from placer.plan.plan import Kind, Layer, Plan, Port

__all__ = ["Kind", "Layer", "Plan", "Port"]
