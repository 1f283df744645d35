"""The server's metrics in Prometheus' text format, for ``/metrics``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Measurements:
    """Counters and histograms of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "gnnretrieval_requests", "Requests answered.", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "gnnretrieval_request_seconds",
            "From a request's head to its last byte.",
            ["path"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._batches = Histogram(
            "gnnretrieval_batch_size", "Questions answered together.", buckets=_SIZES, registry=self._registry
        )

        self._reloads = Counter(
            "gnnretrieval_reloads",
            "New versions that were loaded, or failed to be.",
            ["outcome"],
            registry=self._registry,
        )
        for outcome in ("done", "failed"):
            self._reloads.labels(outcome)
        self._failed = Gauge(
            "gnnretrieval_last_reload_failed", "1: the version before is served still.", registry=self._registry
        )
        self._version = Gauge(
            "gnnretrieval_index_version", "1 for the version that is served.", ["version"], registry=self._registry
        )

    def serves(self, version: str) -> None:
        """Note the version that is served from now on."""
        self._version.clear()
        self._version.labels(version).set(1)

    def reload(self, version: str, failed: bool) -> None:
        """Count a reload that ended; ``version`` is served now."""
        self._reloads.labels("failed" if failed else "done").inc()
        self._failed.set(failed)
        self.serves(version)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request; ``path`` is that of its route, so that there are few different ones."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, size: int) -> None:
        """Count a batch of this size."""
        self._batches.observe(size)

    def text(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self._registry)
