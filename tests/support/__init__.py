"""Builders and doubles for tests."""
