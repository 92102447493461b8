"""watchdog/api."""
