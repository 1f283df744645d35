"""Artifacts from which passages were purged: they still serve their index, but nothing new is made from them."""

from __future__ import annotations

from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.artifacts import Artifact

PURGED = "purged"  # in the record of an update


def is_purged(artifact: Artifact) -> bool:
    """Whether passages were purged from ``artifact``."""
    return any(PURGED in record["change"] for record in artifact.meta.get("updates", []))


def require_unpurged(*artifacts: Artifact) -> None:
    """Refuse to make something from purged artifacts: their purged passages are empty texts with vectors of zeros.

    Raises:
        ArtifactError: Passages were purged from one of the artifacts.
    """
    for artifact in artifacts:
        if is_purged(artifact):
            raise ArtifactError(
                f"{artifact.path}: passages were purged from it, and it only serves the index that it was made for. "
                f"Make the {artifact.meta['kind']} again from a dataset without them."
            )
