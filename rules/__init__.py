"""Rule files and fault tables that are shipped with the daemon (YAML only)."""
