"""Adapters: how an act reaches systemd, containers, fronts and cards."""
