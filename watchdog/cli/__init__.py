"""watchdog/cli."""
