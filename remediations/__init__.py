"""Remediations: one file an act, each a plan of steps. Adapters speak to the managers and fronts."""
