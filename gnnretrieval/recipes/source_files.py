"""The files that a recipe's dataset is imported from: found, checked against their publisher's sums, unpacked."""

from __future__ import annotations

import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gnnretrieval.data.dataset import CORPUS
from gnnretrieval.data.importing import import_dataset
from gnnretrieval.data.sources import Source, source_of
from gnnretrieval.errors import InputError
from gnnretrieval.progress import progress, say
from gnnretrieval.recipes.recipe import DataSettings, Download
from gnnretrieval.storage.artifacts import whole_file

_BLOCK = 1 << 22  # bytes read at once
_OF_IDS = "ir-datasets"


def is_dataset(place: Path) -> bool:
    """Whether a directory is a dataset, and no folder of files to import."""
    return (place / CORPUS).is_file()


def folder_of(settings: DataSettings, path: Path, data: str | Path | None) -> Path:
    """The folder of the files of the recipe at ``path``: given, or its own, or one in it that it names.

    Raises:
        InputError: the recipe names files in a folder elsewhere, which only the user may do.
    """
    if data is not None:
        return Path(data)
    folder = path.parent / (settings.source or ".")
    if settings.files and not folder.resolve().is_relative_to(path.parent.resolve()):
        raise InputError(f"its files are in {settings.source!r}, outside of its folder. Name that by --data.", path)
    return folder


def dataset_of_files(settings: DataSettings, folder: Path, directory: Path) -> Path:
    """Import the recipe's files, of the folder they were downloaded to, into ``directory/dataset``; returns it.

    A file may be gzipped or not. In place of an archive, the folder may have its files; otherwise they are unpacked to
    ``directory/files``. Sums are checked before the first import, and not when the dataset is there: it knows its files
    by their sha256.

    Raises:
        InputError: a file is missing (the message says where to get it) or is not the published one, or the import
            fails.
    """
    require_files(settings, folder)
    target, unpacked = directory / "dataset", directory / "files"
    for download in settings.download:
        file = folder / download.name
        if not file.is_file() or (download.holds and not _lacks(download, folder, unpacked)):
            continue
        if download.holds or not (target / "meta.json").is_file():
            _check(download, file)
        if download.holds:
            _unpack(download, file, unpacked)
    sources = [source for text in settings.files for source in _sources(text, folder, unpacked)]
    return import_dataset(
        sources, target, columns=settings.columns, skip_unknown=settings.skip_unknown, overwrite=True
    ).path


def _lacks(archive: Download, *folders: Path) -> bool:
    return any(_file_named(name, *folders) is None for name in archive.holds)


def require_files(settings: DataSettings, folder: Path) -> None:
    """Refuse a folder that lacks a file.

    Raises:
        InputError: a file is missing (the message says where to get it), or a name leads out of the folder.
    """
    for name in {*_names(settings), *(name for file in settings.download for name in (file.name, *file.holds))}:
        _require_inside(name, folder)
    missing = [name for name in _names(settings) if not is_there(name, settings, folder)]
    if not missing:
        return
    wanted = [file for file in settings.download if {file.name, *file.holds} & set(missing)]
    get = "; ".join(f"curl -L -O {file.url}{f' ({file.bytes / 1e9:,.2f} GB)' if file.bytes else ''}" for file in wanted)
    raise InputError(
        f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing here (--data FOLDER)."
        + (f" To get what is missing, in this folder: {get}" if get else ""),
        folder,
    )


def _require_inside(name: str, folder: Path) -> None:
    """Refuse a name that leads out of the folder: a recipe may come from anyone, and errors show what is read."""
    inside = folder.resolve()
    names = (name, f"{name}.gz", name.removesuffix(".gz"))  # a file may be gzipped or not
    if not all((folder / file).resolve().is_relative_to(inside) for file in names):
        raise InputError(
            f"the recipe's file {name!r} lies outside of this folder. Put the file itself into it.", folder
        )


def is_there(name: str, settings: DataSettings, folder: Path) -> bool:
    """Whether a file is in the folder, or in an archive that is."""
    if _file_named(name, folder) is not None:
        return True
    return any(name in file.holds and (folder / file.name).is_file() for file in settings.download)


def _names(settings: DataSettings) -> Iterator[str]:
    for text in settings.files:
        kind, _, name = text.rpartition("=")
        if kind.partition("@")[0] != _OF_IDS:
            yield name


def _file_named(name: str, *folders: Path) -> Path | None:
    """A file by its name, gzipped or not."""
    other = name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"
    places = (folder / file for folder in folders for file in (name, other))
    return next((place for place in places if place.is_file()), None)


def _sources(text: str, folder: Path, unpacked: Path) -> list[Source]:
    kind, sign, name = text.rpartition("=")
    if kind.partition("@")[0] == _OF_IDS:
        return source_of(text)
    return source_of(f"{kind}{sign}{_file_named(name, folder, unpacked)}")


def _check(download: Download, file: Path) -> None:
    size = file.stat().st_size
    if download.bytes is not None and size != download.bytes:
        cut = "it is cut off" if size < download.bytes else "it is another file"
        raise InputError(
            f"found {size:,} bytes, and {download.url} has {download.bytes:,}: {cut}. Download it again.", file
        )
    kind = "sha256" if download.sha256 else "md5"
    wanted = download.sha256 or download.md5
    if wanted is None:
        return
    digest = hashlib.new(kind, usedforsecurity=False)
    with file.open("rb") as opened, progress(f"{kind} of {file.name}", size, "bytes") as meter:
        while block := opened.read(_BLOCK):
            digest.update(block)
            meter.advance(len(block))
    if digest.hexdigest() != wanted:
        raise InputError(
            f"its {kind} is {digest.hexdigest()}, and that of {download.url} is {wanted}: download it again.", file
        )
    say(f"{file.name}: {kind} is the published one")


def _unpack(download: Download, archive: Path, into: Path) -> None:
    """The files that a tar archive holds, by their names."""
    into.mkdir(parents=True, exist_ok=True)
    left = {name for name in download.holds if not (into / name).is_file()}
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                name = Path(member.name).name
                if name in left and not member.isreg():
                    raise InputError(f"{name} is a link in this archive: download it again.", archive)
                if name in left and (source := opened.extractfile(member)) is not None:
                    say(f"{archive.name}: unpacking {name}")
                    _write(source, into / name, member.size)
                    left.discard(name)
                if not left:
                    return
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"this archive cannot be read ({error}): download it again.", archive) from None
    raise InputError(f"{', '.join(sorted(left))} is not in this archive: is it the right one?", archive)


def _write(source: IO[bytes], target: Path, size: int) -> None:
    with (
        whole_file(target) as partial,
        partial.open("wb") as file,
        progress(f"unpacking {target.name}", size, "bytes") as meter,
    ):
        while block := source.read(_BLOCK):
            file.write(block)
            meter.advance(len(block))
