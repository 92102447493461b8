"""Collectors: one file a source. They read and parse; deadlines belong to the host."""
