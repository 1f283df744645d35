"""Artifacts that passages were purged from serve their index, and nothing new is made of them."""

from __future__ import annotations

from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.artifacts import Artifact

PURGED = "purged"  # in the record of an update


def is_purged(artifact: Artifact) -> bool:
    """Whether passages were purged from ``artifact``."""
    return any(PURGED in record["change"] for record in artifact.meta.get("updates", []))


def require_unpurged(*artifacts: Artifact) -> None:
    """Refuse to make something of purged artifacts, in which the passages are empty texts with vectors of zeros.

    Raises:
        ArtifactError: passages were purged from one of them.
    """
    for artifact in artifacts:
        if is_purged(artifact):
            raise ArtifactError(
                f"{artifact.path}: passages were purged from it, and it only serves the index that it was made for. "
                f"Make the {artifact.meta['kind']} again from a dataset without them."
            )
