"""Shards and their inputs in an object store such as ``s3://bucket/work``, for machines that share no file system.

Files are kept in groups: the files of a shard, or those of an input. A group's listing, names and sizes, is written
last, so that a group with a listing is whole. Object stores are reached by fsspec, and so are other URLs that it knows.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.pages.quantities import in_bytes
from gnnretrieval.progress import progress
from gnnretrieval.storage.artifacts import whole_file
from gnnretrieval.storage.meta import is_inside
from gnnretrieval.storage.provenance import sha256_of_json


class ObjectStore:
    """Groups of files below a URL.

    Args:
        url: A URL that fsspec knows, such as ``s3://bucket/work``. Keys are those of the environment.

    Raises:
        GnnRetrievalError: The package for this kind of URL is not installed. Methods raise it if the store cannot be
            reached.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url.rstrip("/")
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise GnnRetrievalError(f"{url}: this storage cannot be opened ({_first_line(error)}).") from None

    def __contains__(self, group: str) -> bool:
        """Whether a group is whole."""
        return self._listing(group) is not None

    def groups(self, folder: str) -> set[str]:
        """Names of the groups of a folder that have a listing."""
        with _errors_of(self.url), suppress(FileNotFoundError):
            names = [PurePosixPath(name).name for name in self._files.ls(self._place(folder), detail=False)]
            return {f"{folder}/{name.removesuffix('.json')}" for name in names if name.endswith(".json")}
        return set()

    def put_note(self, name: str, note: str) -> None:
        """Write a short text file, for people who browse the store."""
        with _errors_of(self.url):
            self._files.pipe_file(self._new(name), f"{note}\n".encode())

    def put(
        self, group: str, root: Path, files: Iterable[Path], advance: Callable[[int], None] = lambda size: None
    ) -> None:
        """Write the files, which lie below ``root``, as a group. :meth:`get` copies them in the same order.

        Args:
            group: The group.
            root: Directory that its files' names begin at.
            files: The files.
            advance: Called with the bytes of each file that is written.
        """
        sizes = {}
        with _errors_of(self.url):
            for file in files:
                name = file.relative_to(root).as_posix()
                self._files.put_file(str(file), self._new(f"{group}/{name}"))
                sizes[name] = file.stat().st_size
                advance(sizes[name])
            self._files.pipe_file(self._place(f"{group}.json"), json.dumps(sizes).encode())

    def get(self, group: str, root: Path) -> None:
        """Copy the files of a group below ``root``, each under a temporary name until it is whole.

        Raises:
            GnnRetrievalError: The group is not whole.
        """
        listing = self._listing(group)
        if listing is None:
            raise GnnRetrievalError(f"{self.url}/{group}: no whole group of files is there. Run the command again.")
        for name, size in listing.items():
            if not is_inside(name):
                raise GnnRetrievalError(f"{self.url}/{group}.json: damaged; it names the file {name!r}. Delete it.")
            with whole_file(root / name, shared=True) as partial:
                with _errors_of(self.url):
                    self._files.get_file(self._place(f"{group}/{name}"), str(partial))
                if partial.stat().st_size != size:
                    raise GnnRetrievalError(
                        f"{self.url}/{group}/{name}: {partial.stat().st_size:,} bytes are there, of {size:,}. Delete "
                        f"{group}.json there, and run the command again."
                    )

    def delete(self, folder: str) -> None:
        """Delete the groups of a folder."""
        with _errors_of(self.url), suppress(FileNotFoundError):
            self._files.rm(self._place(folder), recursive=True)

    def put_input(self, path: Path) -> tuple[str, str]:
        """Write a file or a directory, unless it is there; returns its group, and the name of a file in it."""
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        root = path if path.is_dir() else path.parent
        stats = {file.relative_to(root).as_posix(): file.stat() for file in files}
        version = {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
        group = f"inputs/{sha256_of_json({'path': str(path), 'version': version})[:16]}"
        if group not in self:
            total = sum(stat.st_size for stat in stats.values())
            with progress(f"sending {path.name}, {in_bytes(total)}", total, "bytes") as meter:
                self.put(group, root, files, meter.advance)
        return group, "" if path.is_dir() else path.name

    def local_copy(self, group: str) -> Path:
        """Directory of a copy of a group on this machine, made once, in ``gnnretrieval`` of the user's cache."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gnnretrieval"
        place = cache / sha256_of_json([self.url, group])[:16]
        if place.is_dir():
            return place
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f".{place.name}.lock").open("w") as lock:
            with suppress(OSError):  # a file system without locks: several processes may copy
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.is_dir():
                with tempfile.TemporaryDirectory(dir=cache, prefix=f".{place.name}-") as partial:
                    self.get(group, Path(partial) / place.name)
                    (Path(partial) / place.name).rename(place)
        return place

    def _listing(self, group: str) -> dict[str, int] | None:
        with _errors_of(self.url), suppress(FileNotFoundError, json.JSONDecodeError):
            return dict(json.loads(self._files.cat_file(self._place(f"{group}.json"))))
        return None

    def _new(self, name: str) -> str:
        """The place of a file that will be written."""
        place = self._place(name)
        if self._files.root_marker == "/":  # not of s3fs, which has no directories, and would make a missing bucket
            self._files.makedirs(place.rpartition("/")[0], exist_ok=True)
        return place

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"


@contextmanager
def _errors_of(url: str) -> Iterator[None]:
    """Report any error of the storage's client as one sentence; each client has its own error classes."""
    try:
        yield
    except GnnRetrievalError:
        raise
    except Exception as error:
        raise GnnRetrievalError(f"{url}: this storage cannot be used ({_first_line(error)}).") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
