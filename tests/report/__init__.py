"""Reports on incidents."""
