"""watchdog/outlets."""
