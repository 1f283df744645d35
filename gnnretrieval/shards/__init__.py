"""Stages in shards: independent parts, run by processes of this machine, by a Ray cluster, or one at a time."""

from gnnretrieval.shards.engines import ENGINES, Sharding, run_stage
from gnnretrieval.shards.stage import Shard, ShardedStage, Together, discard_shards, one_shard, parts, shard_directory

__all__ = [
    "ENGINES",
    "Shard",
    "ShardedStage",
    "Sharding",
    "Together",
    "discard_shards",
    "one_shard",
    "parts",
    "run_stage",
    "shard_directory",
]
