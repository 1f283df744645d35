"""Files that a recipe imports: found, checked, unpacked."""

import gzip
import hashlib
import io
import tarfile

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.errors import InputError
from gnnretrieval.recipes.recipe import DataSettings, read_toml
from gnnretrieval.recipes.source_files import dataset_of_files, folder_of

TEXTS = {
    "collection.tsv": "1\tone\n2\ttwo\n",
    "queries.train.tsv": "7\twhat?\n",
    "qrels.train.tsv": "7\t0\t1\t1\n",
}
FILES = ["msmarco-collection=collection.tsv", "msmarco-queries=queries.train.tsv", "trec-qrels@train=qrels.train.tsv"]


def archive(texts: dict[str, str]) -> bytes:
    with io.BytesIO() as raw:
        with tarfile.open(fileobj=raw, mode="w:gz") as file:
            for name, text in texts.items():
                member = tarfile.TarInfo(f"./inside/{name}")
                member.size = len(text)
                file.addfile(member, io.BytesIO(text.encode()))
        return raw.getvalue()


def settings(data: bytes, **sums) -> DataSettings:
    download = {"url": "https://x.org/all.tar.gz", "bytes": len(data), "holds": tuple(TEXTS), **sums}
    return DataSettings.parse({"files": FILES, "download": [download]})


def made(place, its: DataSettings) -> Dataset:
    return Dataset.open(dataset_of_files(its, place / "folder", place / "out"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def test_an_archive_is_checked_and_unpacked_once(folder, tmp_path, said):
    data = archive({**TEXTS, "other.tsv": "not wanted"})
    (folder / "all.tar.gz").write_bytes(data)
    its = settings(data, md5=hashlib.md5(data).hexdigest())
    assert made(tmp_path, its).split("train") == {"7": {"1": 1}}
    assert "all.tar.gz: md5 is the published one" in said
    assert sorted(file.name for file in (tmp_path / "out" / "files").iterdir()) == sorted(TEXTS)
    said.clear()
    assert made(tmp_path, its).passage_ids == ["1", "2"]
    assert [line for line in said if "md5" in line or "unpacking" in line] == []
    assert any("already made" in line for line in said)


def test_what_lies_in_the_folder_is_taken_gzipped_or_not(folder, tmp_path):
    for name, text in TEXTS.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert made(tmp_path, settings(b"0", md5="0" * 32)).passage_ids == ["1", "2"]
    assert not (tmp_path / "out" / "files").exists()


@pytest.mark.parametrize(
    ("change", "sums", "said"),
    [
        (lambda data: data[:-5], {}, r"all.tar.gz: found .* bytes, and https://x.org/all.tar.gz has .*: it is cut off"),
        (lambda data: data + b"0", {}, "it is another file"),
        (lambda data: data, {"md5": "0" * 32}, r"its md5 is [0-9a-f]{32}, and that of .* is 0{32}: download it again"),
        (lambda data: data, {"sha256": "0" * 64}, r"its sha256 is [0-9a-f]{64}"),
        (lambda data: data[:60], {"bytes": None}, "this archive cannot be read"),
        (
            lambda data: archive({"collection.tsv": "1\tone\n"}),
            {"bytes": None},
            "qrels.train.tsv, queries.train.tsv is",
        ),
    ],
)
def test_a_download_that_is_not_the_published_one_is_refused(change, sums, said, folder, tmp_path):
    data = archive(TEXTS)
    (folder / "all.tar.gz").write_bytes(change(data))
    with pytest.raises(InputError, match=said):
        made(tmp_path, settings(data, **sums))
    assert not (tmp_path / "out" / "dataset").exists()


def test_what_is_missing_is_named_with_where_to_get_it(folder, tmp_path):
    (folder / "collection.tsv").write_text(TEXTS["collection.tsv"])
    with pytest.raises(InputError) as refused:
        made(tmp_path, settings(b"", bytes=2_500_000_000))
    assert str(refused.value) == (
        f"{folder}: queries.train.tsv, qrels.train.tsv are missing here (--data FOLDER). To get what is missing, in "
        "this folder: curl -L -O https://x.org/all.tar.gz (2.50 GB)"
    )


def test_an_id_of_ir_datasets_is_no_file(folder, tmp_path):
    pytest.importorskip("ir_datasets")
    its = DataSettings.parse({"files": ["ir-datasets@train=no/such/id"]})
    with pytest.raises(InputError, match=r"no/such/id: ir_datasets .* has no dataset with this id"):
        made(tmp_path, its)


def test_downloads_without_files_are_refused():
    with pytest.raises(InputError, match=r"download, columns and skip_unknown need files"):
        DataSettings.parse({"download": [{"url": "https://x.org/a.tsv"}]})
    with pytest.raises(InputError, match=r"download\.0\.url"):
        DataSettings.parse({"files": ["a"], "download": [{"url": "x.org/"}]})


@pytest.mark.parametrize("name", ["../secret.tsv", "link.tsv", "{tmp}/secret.tsv", "inside/../../secret.tsv"])
def test_a_recipes_file_may_not_leave_its_folder_and_nothing_of_it_is_shown(name, folder, tmp_path):
    (tmp_path / "secret.tsv").write_text("root:password")
    (folder / "link.tsv").symlink_to(tmp_path / "secret.tsv")
    its = DataSettings.parse({"files": [f"msmarco-collection={name.format(tmp=tmp_path)}"]})
    with pytest.raises(InputError, match="lies outside of this folder") as refused:
        made(tmp_path, its)
    assert "password" not in str(refused.value)


def test_a_gzipped_link_out_of_the_folder_is_no_file_of_it(folder, tmp_path):
    (tmp_path / "secret.tsv").write_text("root:password")
    (folder / "collection.tsv.gz").symlink_to(tmp_path / "secret.tsv")
    with pytest.raises(InputError, match="lies outside"):
        made(tmp_path, DataSettings.parse({"files": FILES[:1]}))


def test_a_recipe_names_no_folder_of_files_elsewhere(tmp_path):
    its = DataSettings.parse({"files": FILES, "source": "/etc"})
    with pytest.raises(InputError, match="Name that by --data"):
        folder_of(its, tmp_path / "recipe.toml", None)
    assert folder_of(its, tmp_path / "recipe.toml", "/etc").as_posix() == "/etc"
    assert folder_of(DataSettings.parse({"files": FILES, "source": "of/it"}), tmp_path / "r.toml", None)


@pytest.mark.parametrize("target", ["../../secret.tsv", "/etc/passwd", "nowhere"])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_in_an_archive_is_not_followed(target, kind, folder, tmp_path):
    (tmp_path / "secret.tsv").write_text("root:password")
    with tarfile.open(folder / "all.tar.gz", "w:gz") as file:
        member = tarfile.TarInfo("inside/collection.tsv")
        member.type, member.linkname = kind, target
        file.addfile(member)
    its = settings((folder / "all.tar.gz").read_bytes())
    with pytest.raises(InputError, match="is a link in this archive"):
        made(tmp_path, its)


def test_an_archive_that_is_damaged_within_is_a_sentence(folder, tmp_path):
    data = bytearray(archive({**TEXTS, "z": "".join(map(str, range(9999)))}))
    data[40:200] = bytes(160)
    (folder / "all.tar.gz").write_bytes(data)
    with pytest.raises(InputError, match="cannot be read"):
        made(tmp_path, settings(bytes(data)))


def test_a_recipe_nested_deeply_is_a_sentence(tmp_path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 50_000)
    with pytest.raises(InputError, match="nested too deeply"):
        read_toml(tmp_path / "deep.toml")
