"""The recipes of the big public sets, run over small files under their publishers' names, with small checkpoints."""

import json
import re
import tarfile
from functools import partial
from pathlib import Path

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.converting import convert_dataset

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"


def shrunk(file: Path, checkpoint: Path, cross_encoder: Path) -> str:
    """A recipe with other checkpoints, no sums, and fewer edges and queries at once."""
    text = file.read_text(encoding="utf-8")
    text = re.sub(r"^(bytes|md5) = .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r'^(query_)?checkpoint = ".*"', rf'\1checkpoint = "{checkpoint}"', text, flags=re.MULTILINE)
    text = re.sub(r"^pair_tokens = .*\n", "", text, flags=re.MULTILINE)
    pairs = f'cross_encoder = "{cross_encoder}"\npair_tokens = 32'
    text = re.sub(r'^cross_encoder = ".*"', pairs, text, flags=re.MULTILINE)
    for key, value in (("k", 5), ("epochs", 1), ("batch_size", 2), ("(?:query_)?max_tokens", 32)):
        text = re.sub(rf"^({key}) = \d+", rf"\g<1> = {value}", text, flags=re.MULTILINE)
    return text


def msmarco(dataset: Dataset, place: Path, folder: Path) -> None:
    """MS MARCO's archive."""
    files = convert_dataset(dataset, "msmarco", place).path
    with tarfile.open(folder / "collectionandqueries.tar.gz", "w:gz") as archive:
        for name, split in (("train", "train"), ("dev.small", "test")):
            for kind in ("queries", "qrels"):
                archive.add(files / f"{kind}.{split}.tsv", f"{kind}.{name}.tsv")
        archive.add(files / "collection.tsv", "collection.tsv")


def dpr(name: str, dataset: Dataset, place: Path, folder: Path) -> None:
    """DPR's files, unzipped by the user; the first words of a passage answer a test question."""
    files = convert_dataset(dataset, "dpr", place).path
    names = {"psgs.tsv": "psgs_w100.tsv", "biencoder-train.json": f"biencoder-{name}-train.json"}
    for ours, theirs in {**names, "biencoder-dev.json": f"biencoder-{name}-dev.json"}.items():
        (folder / theirs).write_bytes((files / ours).read_bytes())
    texts = {passage.id: passage.text for passage in dataset.passages()}
    rows = []
    for query in dataset.queries_of("test"):
        words = texts[next(iter(dataset.split("test")[query.id]))].split()
        rows.append(f"{query.text}\t{[' '.join(words[:3])]!r}\n")
    (folder / f"{name}-test.qa.csv").write_text("".join(rows), encoding="utf-8")


def squad(dataset: Dataset, place: Path, folder: Path) -> None:
    """SQuAD's files, with the first word of a passage as the answer."""
    asked = {query.id: query.text for query in dataset.queries()}
    for split, name in (("train", "train"), ("test", "dev")):
        labels = {query: next(iter(judged)) for query, judged in dataset.split(split).items()}
        paragraphs = []
        for passage in dataset.passages():
            answer = {"text": passage.text.split()[0], "answer_start": 0}
            mine = [query for query, label in labels.items() if label == passage.id]
            questions = [{"id": query, "question": asked[query], "answers": [answer]} for query in mine]
            paragraphs.append({"context": passage.text, "qas": questions})
        file = {"version": "1.1", "data": [{"title": "All", "paragraphs": paragraphs}]}
        (folder / f"{name}-v1.1.json").write_text(json.dumps(file), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "lay_out"),
    [
        ("msmarco-paper", msmarco),
        ("nq", partial(dpr, "nq")),
        ("triviaqa-paper", partial(dpr, "trivia")),
        ("squad", squad),
    ],
)
def test_a_public_recipe_goes_the_whole_way_from_its_publishers_files(
    name, lay_out, tiny_dataset, tiny_checkpoint, tiny_cross_encoder, succeeds, tmp_path
):
    (folder := tmp_path / "downloads").mkdir()
    lay_out(Dataset.open(tiny_dataset), tmp_path / "files", folder)
    for file in GRAPHS.glob(f"{name.removesuffix('-paper')}*.toml"):
        (tmp_path / file.name).write_text(shrunk(file, tiny_checkpoint, tiny_cross_encoder), "utf-8")
    recipe = tmp_path / f"{name}.toml"
    before = succeeds("run", recipe, "--data", folder, "--dry-run", "--json")
    assert all(one["there"] for one in json.loads(before.out)["downloads"])
    succeeds("run", recipe, "--data", folder)
    comparison = json.loads((tmp_path / name / "comparison.json").read_text(encoding="utf-8"))
    judged = {"dev": 10} if name in ("nq", "triviaqa-paper") else {"test": 10}
    assert comparison["provenance"]["dataset"]["splits"] == {"train": 60, **judged}
    assert comparison["queries"] == 10
    assert all(value > 0 for system in comparison["systems"] for value in list(system["measures"].values())[-1:])
    found = json.loads(succeeds("run", recipe, "--data", folder, "--dry-run", "--json").out)
    assert all(stage["made"] for stage in found["stages"])
    assert found["disk_bytes"] == 0
    assert found["sizes"]["from"] == "dataset"
    assert (found["sizes"]["dimension"], found["sizes"]["passages"]) == (32, 40)
    again = succeeds("run", recipe, "--data", folder)
    assert again.err.count("already made from these inputs, reused") >= 8
