"""Late interaction (ColBERT) beside the GNN-encoder, over the whole corpus and as a re-ranker with adaptive retrieval."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.mining import mine_negatives
from gnnretrieval.progress import show_progress
from gnnretrieval.recipes.encoder_recipe import read_encoder_recipe
from gnnretrieval.recipes.recipe import DOCSTRINGS
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

SAMPLE = "squad-open-sample"
SIZES = {"train": 4000, "dev": 500, "test": 1000}  # queries of the sample


class OneSet(NamedTuple):
    """A dataset, and where what is made of it goes."""

    name: str
    place: Path
    dataset: Dataset

    @classmethod
    def of(cls, name: str, data: Path, work: Path) -> OneSet:
        """Make the set under ``work``, or reuse what is there."""
        where = work / "datasets" / name
        if name in DOCSTRINGS:
            make_docstring_corpus(where, DOCSTRINGS[name], overwrite=True)
        elif not (where / "corpus.jsonl").is_file():
            _sample(data / name.removesuffix("-sample"), where)
        return cls(name, work / name, Dataset.open(where))

    def late(self, seed: int) -> Features:
        """Features by late interaction, trained from this seed by ``encoder train colbert --small``."""
        recipe = read_encoder_recipe("colbert")
        negatives, stage = recipe.stages
        common: dict[str, Any] = {"overwrite": True}
        mined = mine_negatives(
            self.dataset, recipe.settings_of(negatives, True), self.place / negatives.name, features=None, **common
        )
        settings = recipe.settings_of(stage, True, seed=seed)
        encoder = recipe.encoder_settings(True)
        trained = train_dual_encoder(self.dataset, [mined], encoder, settings, self.place / f"colbert-{seed}", **common)
        its = EncoderSettings(checkpoint=str(trained.path))
        return encode_dataset(self.dataset, its, self.place / f"late-{seed}", **common)


def _sample(source: Path, place: Path) -> None:
    """Write a dataset with all passages and a sample of the queries of each split."""
    place.mkdir(parents=True, exist_ok=True)
    kept = set[str]()
    (place / "qrels").mkdir(exist_ok=True)
    for split, size in SIZES.items():
        head, *lines = (source / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines()
        ids = sorted({line.split("\t")[0] for line in lines})
        chosen = set(random.Random(0).sample(ids, size))
        kept |= chosen
        some = [line for line in lines if line.split("\t")[0] in chosen]
        (place / "qrels" / f"{split}.tsv").write_text("\n".join([head, *some]) + "\n", "utf-8")
    queries = (source / "queries.jsonl").read_text("utf-8").splitlines()
    some = [line for line in queries if json.loads(line)["_id"] in kept]
    (place / "queries.jsonl").write_text("\n".join(some) + "\n", "utf-8")
    (place / "corpus.jsonl").write_bytes((source / "corpus.jsonl").read_bytes())


if __name__ == "__main__":
    import sys

    show_progress()
    one = OneSet.of(sys.argv[1], Path("/work/shared/data"), Path(sys.argv[2]))
    print(one.late(int(sys.argv[3])))
