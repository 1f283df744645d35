"""An encoder by its settings: a checkpoint's weights or an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.encoders.canary import require_same_canary
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.settings import ENDPOINT, FUNCTION, EncoderSettings
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import ArtifactError, GnnRetrievalError


def open_encoder(settings: EncoderSettings, device: str = "cpu") -> TextEncoder:
    """The encoder that ``settings`` name, ready to encode.

    Raises:
        GnnRetrievalError: it is not at hand: a Python function, mere vectors, or a checkpoint that cannot be loaded.
    """
    if settings.checkpoint.startswith(ENDPOINT):
        from gnnretrieval.encoders.endpoint import EndpointEncoder

        return EndpointEncoder(settings)
    if settings.checkpoint.startswith(FUNCTION):
        raise GnnRetrievalError(
            f"{settings.checkpoint}: this encoder is a Python function, which only Python can give: "
            "Retriever.open(path, encoder=FunctionEncoder(…))."
        )
    from gnnretrieval.encoders.dual_encoder import DualEncoder

    return DualEncoder(settings, device)


def encoder_of(
    meta: Mapping[str, Any],
    path: Path,
    device: str = "cpu",
    *,
    given: TextEncoder | None = None,
    endpoint: str | None = None,
) -> TextEncoder:
    """The encoder that an artifact's vectors are by, as it was when the artifact was made.

    Args:
        meta: The artifact's ``meta.json``.
        path: The artifact.
        device: Where a checkpoint's weights go.
        given: The encoder itself, where Python has it; None: it is opened by what the artifact says.
        endpoint: Address of the endpoint, where it is another than the artifact says or a stranger's.

    Raises:
        ArtifactError: it is another encoder, or has other weights now.
        GnnRetrievalError: it is not at hand.
    """
    settings = EncoderSettings.parse(meta["encoder"], path / "meta.json")
    was = settings.checkpoint
    if given is None:
        if settings.checkpoint.startswith(ENDPOINT):
            from gnnretrieval.encoders.endpoint import allowed

            settings = allowed(settings, endpoint)
        encoder = open_encoder(settings, device)
    else:
        encoder = given
    if encoder.fingerprint != meta["checkpoint_hash"]:
        now = encoder.settings.checkpoint
        what = "which has other weights now" if was == now else f"and this is {now}"
        raise ArtifactError(
            f"{path}: encoded by {was}, {what}. Encode and build again, or give back the encoder it had."
        )
    require_same_canary(encoder, meta, path)
    return encoder


def fingerprint_of(settings: EncoderSettings) -> tuple[dict[str, str], str]:
    """Hash by side and source of an encoder that is not opened yet.

    Raises:
        GnnRetrievalError: it is not at hand.
    """
    if settings.checkpoint.startswith(ENDPOINT):
        from gnnretrieval.encoders.endpoint import endpoint_fingerprint

        return endpoint_fingerprint(settings), str(settings.api.endpoint)
    passage = find_checkpoint(settings.checkpoint)
    query = find_checkpoint(settings.query_checkpoint) if settings.query_checkpoint else passage
    return {"query": query.hash, "passage": passage.hash}, passage.source
