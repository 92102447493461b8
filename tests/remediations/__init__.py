"""Tests of the acts and of their adapters."""
