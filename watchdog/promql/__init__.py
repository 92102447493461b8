"""watchdog/promql."""
