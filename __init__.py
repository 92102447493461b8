"""vllm-watchdog: watches, judges and heals the vLLM servers of one inference node.

The repository root is the import package ``vllm_watchdog``; its rooms are the top-level folders.
"""
