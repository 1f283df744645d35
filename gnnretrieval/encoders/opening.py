"""Opens encoders by their settings: a checkpoint's weights or an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.encoders.canary import require_same_canary
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.function_encoder import Encode, as_recorded
from gnnretrieval.encoders.settings import ENDPOINT, FUNCTION, EncoderSettings
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import ArtifactError, GnnRetrievalError


def open_encoder(settings: EncoderSettings, device: str = "cpu") -> TextEncoder:
    """The encoder that ``settings`` describe, ready to encode.

    Raises:
        GnnRetrievalError: It is a Python function or imported vectors, or a checkpoint that is missing or damaged.
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
    given: TextEncoder | Encode | None = None,
    endpoint: str | None = None,
) -> TextEncoder:
    """The encoder that made an artifact's vectors, checked to be unchanged.

    Args:
        meta: The artifact's ``meta.json``.
        path: The artifact.
        device: Device of a checkpoint's weights.
        given: The open encoder, or the function that made the vectors; None: it is opened by the settings in ``meta``.
        endpoint: Address of the endpoint, if it has moved or is not allowed by default (see
            :func:`gnnretrieval.encoders.endpoint.allowed`).

    Raises:
        ArtifactError: It is another encoder, or its weights or vectors have changed.
        GnnRetrievalError: It cannot be opened.
    """
    settings = EncoderSettings.parse(meta["encoder"], path / "meta.json")
    was = settings.checkpoint
    refuse_endpoint(endpoint, settings, is_given=given is not None)
    if given is None:
        if settings.checkpoint.startswith(ENDPOINT):
            from gnnretrieval.encoders.endpoint import allowed

            settings = allowed(settings, endpoint)
        encoder = open_encoder(settings, device)
    else:
        encoder = as_recorded(given, settings)
    if encoder.fingerprint != meta["checkpoint_hash"]:
        now = encoder.settings.checkpoint
        what = "which has other weights now" if was == now else f"and this is {now}"
        raise ArtifactError(
            f"{path}: encoded by {was}, {what}. Encode and build again, or give back the encoder it had."
        )
    require_same_canary(encoder, meta, path)
    return encoder


def refuse_endpoint(endpoint: str | None, settings: EncoderSettings, *, is_given: bool = False) -> None:
    """Check that an encoder is an endpoint's, if an address of one is given.

    Raises:
        GnnRetrievalError: Nothing would be asked at the address.
    """
    if endpoint is not None and (is_given or not settings.checkpoint.startswith(ENDPOINT)):
        what = "an encoder that was given" if is_given else f"{settings.checkpoint}, which is no endpoint"
        raise GnnRetrievalError(f"questions are encoded by {what}: leave out the address {endpoint} (--endpoint).")


def fingerprint_of(settings: EncoderSettings) -> tuple[dict[str, str], str]:
    """Hashes by side and source of an encoder, without opening it.

    Raises:
        GnnRetrievalError: Its checkpoint is not found, or it is a Python function or imported vectors.
    """
    if settings.checkpoint.startswith(ENDPOINT):
        from gnnretrieval.encoders.endpoint import endpoint_fingerprint

        return endpoint_fingerprint(settings), str(settings.api.endpoint)
    passage = find_checkpoint(settings.checkpoint)
    query = find_checkpoint(settings.query_checkpoint) if settings.query_checkpoint else passage
    return {"query": query.hash, "passage": passage.hash}, passage.source
