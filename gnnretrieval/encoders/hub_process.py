"""Program that downloads one checkpoint from the model hub: a process can be killed, a hanging request cannot."""

import json
import sys

from huggingface_hub import constants, snapshot_download


def main(name: str, cache: str, *patterns: str) -> None:
    """Print the checkpoint's directory, or the reason of the failure, as a line of JSON."""
    constants.DOWNLOAD_CHUNK_SIZE = 2**16  # with its 10 MB a slow connection looks dead
    try:
        result = {"directory": snapshot_download(name, cache_dir=cache, allow_patterns=list(patterns), etag_timeout=10)}
    except (OSError, ValueError) as error:  # not reachable, not found, not allowed
        result = {"reason": (str(error).splitlines() or [type(error).__name__])[0]}
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
