"""What NVIDIA's tools print, read into values: pure, no I/O, no clock, no judgement on alerts.

Every format (XML, CSV, plain text, tables) is first brought to one form, a ``Card`` whose readings
bear the names of ``nvidia-smi --help-query-gpu``; only then metrics are made of it, in one place.
"""
