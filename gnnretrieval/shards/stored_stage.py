"""A stage whose shards are in an object store: workers need no file system in common with the command."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

from gnnretrieval.shards.object_store import ObjectStore
from gnnretrieval.shards.stage import ShardedStage, Together
from gnnretrieval.storage.provenance import sha256_of_json


@dataclass(frozen=True)
class StoredStage:
    """A stage whose shards are written to an object store, by workers that may read its inputs there.

    Attributes:
        stage: The stage, with the paths of the machine of the command.
        url: URL of the store.
        inputs: Group in the store of each input, and the name in it of a file, by the input's path. Empty: workers have
            the inputs at their paths.
    """

    stage: ShardedStage
    url: str
    inputs: Mapping[Path, tuple[str, str]]

    @property
    def name(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.name`."""
        return self.stage.name

    @property
    def unit(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.unit`."""
        return self.stage.unit

    @property
    def device(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.device`."""
        return self.stage.device

    @property
    def directory(self) -> Path:
        """Where the command copies the shards to."""
        return self.stage.directory

    @property
    def parts(self) -> Sequence[slice]:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.parts`."""
        return self.stage.parts

    def with_inputs(self) -> Self:
        """The stage with its inputs in the store; those that are not there are written."""
        store, paths = ObjectStore(self.url), list[Path]()

        def noted(path: Path) -> Path:
            paths.append(path)
            return path

        self.stage.moved(noted, self.directory)
        inputs = {path: store.put_input(path) for path in dict.fromkeys(paths)}
        return type(self)(self.stage, self.url, inputs)

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        """As :meth:`gnnretrieval.shards.stage.ShardedStage.moved`."""
        return type(self)(self.stage.moved(input_at, directory), self.url, self.inputs)

    def path(self, number: int) -> Path:
        """The file that the command has when it has copied the shard."""
        return self.stage.path(number)

    def run(self, number: int) -> None:
        """Compute a shard, unless it is in the store, and write it there.

        Raises:
            GnnRetrievalError: It cannot be computed, or the store cannot be reached.
        """
        store = ObjectStore(self.url)
        if (group := self.group(number)) in store:
            return

        def input_at(path: Path) -> Path:
            if path not in self.inputs:
                return path
            group, name = self.inputs[path]
            return store.local_copy(group) / name

        directory = _own_directory()
        shutil.rmtree(directory, ignore_errors=True)  # of a shard that failed
        directory.mkdir(parents=True)
        moved = self.stage.moved(input_at, directory)
        moved.run(number)
        last = moved.path(number)  # where it is, the others must be
        files = sorted(file for file in directory.rglob("*") if file.is_file() and file != last)
        store.put(group, directory, [*files, last])
        shutil.rmtree(directory)

    def group(self, number: int) -> str:
        """The shard's group in the store."""
        stage = self.stage
        if isinstance(stage, Together):
            stage, number = stage.members[number]
        return f"{self._folder_of(stage)}/{stage.path(number).name}"

    def begin(self) -> None:
        """Write the stage's name to the store, so that a store that refuses files is noticed before any work.

        Raises:
            GnnRetrievalError: The store cannot be written to.
        """
        for folder in self._folders():
            ObjectStore(self.url).put_note(f"{folder}/stage.txt", self.name)

    def present(self, numbers: Iterable[int]) -> set[int]:
        """Those of the shards that are in the store."""
        store = ObjectStore(self.url)
        there = set().union(*(store.groups(folder) for folder in self._folders()))
        return {number for number in numbers if self.group(number) in there}

    def copy(self, numbers: Iterable[int]) -> None:
        """Copy shards that are in the store to :attr:`directory`."""
        store = ObjectStore(self.url)
        for number in numbers:
            store.get(self.group(number), self.directory)

    def delete(self) -> None:
        """Delete the shards in the store."""
        for folder in self._folders():
            ObjectStore(self.url).delete(folder)

    def _folders(self) -> list[str]:
        stages = [stage for stage, _ in self.stage.members] if isinstance(self.stage, Together) else [self.stage]
        return [self._folder_of(stage) for stage in dict.fromkeys(stages)]

    def _folder_of(self, stage: ShardedStage) -> str:
        decides = repr(stage.moved(lambda path: Path(), Path()))  # without paths, which do not decide what is computed
        return f"shards/{sha256_of_json([stage.directory.name, decides])[:16]}"


@lru_cache(maxsize=1)
def _own_directory() -> Path:
    """A directory of this process, so that stages are moved to the same place for every shard."""
    directory = tempfile.TemporaryDirectory(prefix="gnnretrieval-")
    atexit.register(directory.cleanup)
    return Path(directory.name) / "shard"
