"""Shards and inputs in an S3 bucket, for benchmarks/scale_out.py: a server on one of the two hosts, by moto."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scale_out_trials import RAY
from two_hosts import BIN, ENVIRONMENT, HOSTS, call, on_host, processes

PORT = 5000
STORED = (*RAY, "--storage", "s3://shards/work")
BUCKET = "import boto3; boto3.client('s3').create_bucket(Bucket='shards')"


def s3_environment(cache: Path) -> dict[str, str]:
    """Variables of programs that use the server, and whose cache directory is ``cache``."""
    return {
        "AWS_ENDPOINT_URL": f"http://{HOSTS[0]}:{PORT}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(cache),
    }


@contextmanager
def s3_server() -> Iterator[None]:
    """A server with an empty bucket on the first host, while the block runs."""
    words = on_host(0, BIN / "moto_server", "--host", HOSTS[0], "--port", PORT)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as server:
        try:
            while call(*on_host(0, BIN / "python", "-c", BUCKET)).returncode:  # not yet listening
                if server.poll() is not None:
                    raise SystemExit("moto_server has ended: pip install 'moto[s3]' flask flask-cors")
                time.sleep(1)
            yield
        finally:
            server.terminate()


def seen_on_second_host(cache: Path) -> int:
    """Number of inputs that the second host's workers have copied to their cache directory."""
    of_that_host = Path(f"/proc/{processes(1)[0]}/root")  # its files, as its processes see them
    return len(list((of_that_host / cache.relative_to("/") / "gnnretrieval").iterdir()))
