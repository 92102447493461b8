"""Collectors: one file a source. They read and parse; scheduling and deadlines belong to the host."""
