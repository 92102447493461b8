"""Remediations: one file an act, each a plan of steps; adapters speak to managers and fronts."""
