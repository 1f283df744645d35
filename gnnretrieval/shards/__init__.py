"""Stages in shards: independent parts, run by processes of this machine, by a Ray cluster, or one at a time."""

from gnnretrieval.shards.engines import ENGINES, Sharding, run_stage
from gnnretrieval.shards.stage import OneShard, Shard, Stage, discard_shards, parts, shard_directory

__all__ = [
    "ENGINES",
    "OneShard",
    "Shard",
    "Sharding",
    "Stage",
    "discard_shards",
    "parts",
    "run_stage",
    "shard_directory",
]
