"""Galleries that are upgraded as one: a table for each tenant, or for each day.

A shard is a gallery of its own, which is searched and written as before. What shards share is an upgrade: one budget,
one status, and one rule for the cutover. A shard that fails does not stop the others.
"""

from compatstore.shards.results import ShardsStatus, ShardsSwitched, ShardStatus, ShardsUpgrade, ShardUpgrade
from compatstore.shards.shards import Shards

__all__ = ["ShardStatus", "ShardUpgrade", "Shards", "ShardsStatus", "ShardsSwitched", "ShardsUpgrade"]
