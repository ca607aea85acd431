"""What to try next: the space, models of latency and noise, samplers, the study.

On its way through the search a placement has two encodings. *Choices*, a layout by group and, where
a group is split, by site, are what proposals and trials hold, what Optuna stores and samples, and
what a person can read; they stay valid while the sites of a model keep their names. A *state*, the
number of each decided site's layout, is what the search computes with: it is hashable, and a change
of it is a change of few numbers. ``Landscape.state`` and ``Landscape.choices`` lead from one to the
other, ``Space.placement`` to the placement, which is a set of edges and knows nothing of sites.
"""
