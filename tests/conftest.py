"""Small shared inputs, made here: nothing is downloaded, and every byte follows from a seed.

``tiny_checkpoint`` is a random BERT whose word embeddings dominate, so that texts that share words have similar
vectors; the words are made up. In ``tiny_dataset`` the questions of a passage also share *nicknames* that the passage
itself lacks: what a graph can learn and a dual-encoder cannot know.
"""

import json
import logging
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random

import hypothesis
import pytest
import torch
from few_steps import shorten

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.storage.artifacts import Artifact

os.environ["HF_HUB_OFFLINE"] = "1"  # the hub's client is imported after this, when a checkpoint is looked for
os.environ["TOKENIZERS_PARALLELISM"] = "false"
torch.set_num_threads(1)  # tensors are tiny here: threads would only wait for one another
os.environ["OMP_NUM_THREADS"] = "1"  # the same in the processes that tests start
# To wait for the disk would take most of the time; the tests of durability follow the calls themselves.
os.fsync = lambda descriptor: None
# A shared machine is slow at times, and a failure must be found again by the next run.
hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much],
)
hypothesis.settings.load_profile("repeatable")

SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
WORDS = [a + b for a, b in Random(0).sample([(a, b) for a in SYLLABLES for b in SYLLABLES], 400)]
COMMON, NICKNAMES, TOPICAL = WORDS[:20], WORDS[20:100], WORDS[100:]
PASSAGES, ASKED = 40, 20  # passages 0…19 have questions, the others only fill the corpus


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The lines that the user was told so far in this test."""
    logger, handler = logging.getLogger("gnnretrieval"), _Lines()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler.lines
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture(scope="session", autouse=True)
def few_steps() -> Iterator[pytest.MonkeyPatch]:
    """Few steps train the heads of datasets this small."""
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch.setattr, patch.setitem)
        yield patch


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a sentence-transformers checkpoint: a random BERT (width 32, 2 layers), mean pooling, cosine."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny-bert")


def write_checkpoint(directory: Path, seed: int = 0, hidden_size: int = 32) -> Path:
    """Write such a checkpoint; another seed gives other weights of the same shape."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,?!"
    pieces = [*letters, *(f"##{letter}" for letter in letters)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *WORDS]
    bert = directory.with_name(f"{directory.name}-bert")
    bert.mkdir(parents=True)
    (bert / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    tokenizer = BertTokenizerFast(
        vocab={piece: row for row, piece in enumerate(vocabulary)}, do_lower_case=True, model_max_length=64
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=hidden_size,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=64,
    )
    model = BertModel(config).eval()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.mul_(50)
    model.save_pretrained(bert)
    tokenizer.save_pretrained(bert)
    transformer = Transformer(str(bert), max_seq_length=64)
    pooling = Pooling(hidden_size, pooling_mode="mean")
    SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu").save(str(directory))
    return directory


@pytest.fixture(scope="session")
def tiny_cross_encoder(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a cross-encoder: the tiny BERT with a random head of one label."""
    bert = tiny_checkpoint.with_name("tiny-bert-bert")
    return write_cross_encoder(tmp_path_factory.mktemp("cross-encoder") / "tiny-cross-encoder", bert)


def write_cross_encoder(directory: Path, bert: Path) -> Path:
    """Write such a cross-encoder over a BERT."""
    from transformers import AutoTokenizer, BertForSequenceClassification

    torch.manual_seed(1)
    BertForSequenceClassification.from_pretrained(bert, num_labels=1).save_pretrained(directory)
    AutoTokenizer.from_pretrained(bert).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def tiny_reader(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a reader: the tiny BERT with a random head for the first and last token of an answer."""
    from transformers import AutoTokenizer, BertForQuestionAnswering

    bert, directory = tiny_checkpoint.with_name("tiny-bert-bert"), tmp_path_factory.mktemp("reader") / "tiny-reader"
    torch.manual_seed(2)
    BertForQuestionAnswering.from_pretrained(bert).save_pretrained(directory)
    AutoTokenizer.from_pretrained(bert).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def answered_dataset(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny dataset with an answer for each question: the third and fourth word of its first relevant passage."""
    place = tmp_path_factory.mktemp("answered") / "answered"
    shutil.copytree(tiny_dataset, place)
    passages = {one["_id"]: one["text"] for one in map(json.loads, (place / "corpus.jsonl").read_text().splitlines())}
    relevant: dict[str, str] = {}
    for split in ("train", "dev", "test"):
        for line in (place / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]:
            relevant.setdefault(*line.split("\t")[:2])
    lines = []
    for query in map(json.loads, (place / "queries.jsonl").read_text().splitlines()):
        answer = " ".join(passages[relevant[query["_id"]]].rstrip(".").split()[2:4])
        lines.append(json.dumps({**query, "metadata": {"answers": [answer]}}) + "\n")
    (place / "queries.jsonl").write_text("".join(lines), encoding="utf-8")
    return place


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset directory (BEIR layout): 40 passages and 60 train, 10 dev and 10 test questions on half of them."""
    return write_dataset(tmp_path_factory.mktemp("dataset") / "tiny")


def write_dataset(directory: Path) -> Path:
    """Write that dataset."""
    directory.mkdir()
    random = Random(1)
    own = [[TOPICAL[(7 * row + offset) % len(TOPICAL)] for offset in range(8)] for row in range(PASSAGES)]
    passages = [
        {
            "_id": f"p{row:02d}",
            "title": " ".join(words[:2]) if row % 3 else "",
            "text": " ".join(random.sample([*words, *random.sample(COMMON, 2)], 10)) + ".",
        }
        for row, words in enumerate(own)
    ]
    queries, judgements = [], {"train": [], "dev": [], "test": []}
    for split, count in (("train", 60), ("dev", 10), ("test", 10)):
        for number in range(count):
            row = number % ASKED if split == "train" else (2 * number + (split == "test")) % ASKED
            nicknames = NICKNAMES[4 * row : 4 * row + 4]
            words = [*random.sample(nicknames, 3), *random.sample(own[row], 2), random.choice(COMMON)]
            queries.append({"_id": f"{split}-{number:02d}", "text": " ".join(words) + "?"})
            judgements[split].append((f"{split}-{number:02d}", f"p{row:02d}", 1))
    # One query with two relevant passages, one with a passage that is judged irrelevant.
    judgements["train"] += [("train-03", "p30", 1), ("train-04", "p31", 0)]
    for name, records in (("corpus", passages), ("queries", queries)):
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (directory / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    (directory / "qrels").mkdir()
    for split, rows in judgements.items():
        lines = "".join(f"{query}\t{passage}\t{score}\n" for query, passage, score in rows)
        (directory / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines, encoding="utf-8")
    return directory


@pytest.fixture(scope="session")
def tiny_settings(tiny_checkpoint: Path) -> EncoderSettings:
    """Settings of encoding with ``tiny_checkpoint``, in float32 on every machine."""
    return EncoderSettings(checkpoint=str(tiny_checkpoint), precision="float32")


@pytest.fixture(scope="session")
def tiny_late_encoder(tiny_checkpoint: Path, tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The tiny BERT trained for late interaction on the tiny dataset: 8 numbers a token, questions of 12 tokens."""
    from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
    from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

    encoder = EncoderSettings(checkpoint=str(tiny_checkpoint), late_interaction=8, max_tokens=32, query_max_tokens=12)
    settings = DualEncoderTrainSettings(shared=True, epochs=1, batch_size=32, hard_negatives=0, precision="float32")
    place = tmp_path_factory.mktemp("late-encoder") / "late"
    return train_dual_encoder(Dataset.open(tiny_dataset), [], encoder, settings, place)


@pytest.fixture(scope="session")
def tiny_late(tiny_late_encoder: Artifact, tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Features of the tiny dataset by late interaction."""
    settings = EncoderSettings(checkpoint=str(tiny_late_encoder.path), precision="float32")
    return encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path_factory.mktemp("late-features") / "features")


@pytest.fixture(scope="session")
def tiny_features(tiny_dataset: Path, tiny_settings: EncoderSettings, tmp_path_factory) -> Features:
    """Features of ``tiny_dataset`` by ``tiny_checkpoint``. Shared: do not change its files."""
    return encode_dataset(Dataset.open(tiny_dataset), tiny_settings, tmp_path_factory.mktemp("features") / "features")


@pytest.fixture(scope="session")
def tiny_graph(tiny_dataset: Path, tiny_features: Features, tmp_path_factory) -> Graph:
    """The graph of the 60 training queries of ``tiny_dataset``, k = 5. Shared: do not change its files."""
    out = tmp_path_factory.mktemp("graph") / "graph"
    return build_graph(Dataset.open(tiny_dataset), tiny_features, GraphSettings(k=5), out)


@pytest.fixture(scope="session")
def tiny_run(tiny_dataset: Path, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a recipe made of ``tiny_dataset``, with a GNN-encoder that moves passages. Shared: do not change it."""
    from gnnretrieval.recipes import run_recipe

    recipe = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    recipe.write_text(
        f'name = "tiny"\n[data]\nsource = "{tiny_dataset}"\n'
        f'[encoder]\ncheckpoint = "{tiny_checkpoint}"\nprecision = "float32"\n[graph]\nk = 5\n'
        "[train]\nepochs = 30\nbatch_size = 2\nlearning_rate = 0.02\nweight_averaging = 0.5\nevidence = 1.0\n",
        encoding="utf-8",
    )
    return run_recipe(recipe).directory


@pytest.fixture(scope="session")
def questions_run(tiny_run: Path, tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run with linear heads and several vectors a passage, and one beside. Do not change it."""
    from several_vectors import keep_questions

    from gnnretrieval.encoders.features import open_features
    from gnnretrieval.graph.store import open_graph
    from gnnretrieval.index import build_index
    from gnnretrieval.training import TrainSettings, embed_passages, train_gnn

    run = tmp_path_factory.mktemp("questions") / "run"
    shutil.copytree(tiny_run, run, copy_function=os.link, ignore=shutil.ignore_patterns("model", "map"))
    graph, features = open_graph(run / "graph"), open_features(run / "features")
    settings = TrainSettings(evidence=1.0)
    model = keep_questions(train_gnn(graph, Dataset.open(tiny_dataset), features, settings, run / "model"))
    for one_vector, ending in ((False, ""), (True, "-one-vector")):
        embeddings = embed_passages(model, graph, run / f"embeddings{ending}", one_vector=one_vector, overwrite=True)
        build_index(embeddings, run / f"index{ending}", overwrite=True)
    return run


def programs_of_postgres() -> Path | None:
    """Where initdb and pg_ctl are: of Debian or the PyPI package pgserver, with pgvector if there is one."""
    debian = [place / "bin" for place in sorted(Path("/usr/lib/postgresql").glob("*"), reverse=True)]
    for place in debian:
        if Path("/usr/share/postgresql", place.parent.name, "extension/vector.control").is_file():
            return place
    found = find_spec("pgserver")
    if found is not None and found.origin is not None:
        return Path(found.origin).parent / "pginstall" / "bin"
    return next(iter(debian), None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """DSN of a PostgreSQL server that only this test process uses."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'gnnretrieval[pgvector]'")
    programs = programs_of_postgres()
    if programs is None:
        pytest.skip("no PostgreSQL: apt-get install postgresql-15-pgvector, or pip install pgserver")
    # pytest's own directories are closed to other users, and deep: a socket's path has at most 107 bytes
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as made:
        place = Path(made)
        user = None
        if os.geteuid() == 0:  # PostgreSQL refuses root
            try:
                user = pwd.getpwnam("postgres").pw_name
            except KeyError:
                user = "nobody"
            place.chmod(0o755)
            os.chown(place, pwd.getpwnam(user).pw_uid, -1)
        (place / "socket").mkdir()
        if user is not None:
            os.chown(place / "socket", pwd.getpwnam(user).pw_uid, -1)

        def started(*words: object) -> tuple[bool, str]:
            done = subprocess.run(
                [programs / str(words[0]), *map(str, words[1:])], user=user, cwd=place, capture_output=True, text=True
            )
            return done.returncode == 0, done.stdout + done.stderr

        ok, said = started("initdb", "-D", place / "data", "-U", "me", "--auth=trust", "--no-sync")
        if not ok:
            pytest.skip(f"initdb: {said[-200:]}")
        options = f"-k {place / 'socket'} -h '' -F"
        ok, said = started(
            "pg_ctl", "-D", place / "data", "-l", place / "log", "-w", "-t", "60", "-o", options, "start"
        )
        if not ok:
            pytest.skip(f"pg_ctl: {said[-200:]}")
        yield f"host={place / 'socket'} user=me dbname=postgres"
        started("pg_ctl", "-D", place / "data", "-m", "immediate", "stop")
