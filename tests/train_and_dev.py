"""A dataset with queries in both train and dev."""

import shutil
from pathlib import Path

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph


def with_training_queries_in_dev(
    source: Path, settings: EncoderSettings, place: Path
) -> tuple[Graph, Dataset, Features]:
    """The tiny dataset's graph, with two of its training queries in dev too."""
    shutil.copytree(source, place / "data")
    dev = place / "data" / "qrels" / "dev.tsv"
    dev.write_text(dev.read_text() + "train-07\tp07\t1\ntrain-08\tp08\t1\n")
    dataset = Dataset.open(place / "data")
    features = encode_dataset(dataset, settings, place / "features")
    return build_graph(dataset, features, GraphSettings(k=3), place / "graph"), dataset, features
