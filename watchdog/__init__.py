"""The daemon: its loop, its judgement, its outlets and its command line."""
