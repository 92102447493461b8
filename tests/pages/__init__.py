"""The status page: what it shows, and how it fares in a real browser."""
