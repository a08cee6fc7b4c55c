"""Upkeep: what keeps a gallery as fast and as small after thousands of writes as after one."""
