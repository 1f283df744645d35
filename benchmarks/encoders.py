"""The papers' encoders from the same start: DPR, RocketQA, PAIR, DCSR and ANCE, compared with BM25 and untuned MiniLM.

    .venv/bin/python benchmarks/encoders.py --data DIRECTORY --work WORK

DIRECTORY holds squad-open (SQuAD v1.1 and SQuADShifts paragraphs in the BEIR layout); the script generates the
docstring corpus. Stages and settings are in encoders.toml. All systems share one sample of training questions. The
labels of half of them are hidden from every system; methods that use unlabelled questions learn from these. Epochs are
chosen on dev; tables are on test. It runs for hours; after an interruption, the same command continues with what WORK
holds. Writes results/encoders-SET.json and .md for each set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from encoders_page import LARGE_TOKENS, markdown
from numpy.typing import NDArray
from result_files import without_texts
from sampling import sample_dataset

from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import Run, rank_rows, read_run
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features, encode_dataset, open_features
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.evaluation import compare, holm, markdown_comparison, paired_test, per_query
from gnnretrieval.index.search import bm25_run
from gnnretrieval.index.sentence_search import features_run, has_answer, sentences_looked_at
from gnnretrieval.mining.examples import open_examples
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import show_progress
from gnnretrieval.recipes.run_encoder import run_encoder_recipe
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

ROOT = Path(__file__).resolve().parent
RECIPE, RESULTS = ROOT / "encoders.toml", ROOT / "results"
SEED = 0
DEV = 400  # dev questions
MEASURES = ("RR@10", "nDCG@10", "R@1", "R@5", "R@20", "R@100")
START, BM25_NAME = "start", "bm25"
METHODS = ("dpr", "rocketqa-1", "rocketqa-3", "rocketqa-4", "pair", "dcsr", "dcsr-adversarial", "ance")
# On the docstring corpus the cross-encoder is never sure enough for a pseudo-label: step 4 of RocketQA then has the
# examples of step 3, and PAIR is pre-trained on labels.
ON_DOCSTRINGS = (
    *(method for method in METHODS if method != "pair"),
    *("pair-without-distillation", "rocketqa-3-undenoised"),
)
# The best method of squad and wiki at scale: all training questions, and room for whole passages.
LARGE = ("dcsr",)
ELSEWHERE = ("dpr", "rocketqa-4", "pair", "dcsr", "ance")  # measured on other domains too
SHARES = (0.1, 0.3, 1.0)  # of the corpus, DCSR table 7
TOP = 100  # passages of a question in PAIR's figure 4

# (comparison, the better system in the paper, the other system, the paper's values)
FINDINGS = (
    ("RocketQA table 3: denoised hard negatives against none", "rocketqa-3", "rocketqa-1", "36.4 : 33.3 MRR@10"),
    ("RocketQA table 3: denoised against undenoised", "rocketqa-3", "rocketqa-3-undenoised", "36.4 : 26.0 MRR@10"),
    ("RocketQA table 3: undenoised against none", "rocketqa-3-undenoised", "rocketqa-1", "26.0 : 33.3 MRR@10"),
    ("RocketQA table 3: with pseudo-labels against without", "rocketqa-4", "rocketqa-3", "37.0 : 36.4 MRR@10"),
    ("PAIR table 3: with the passage loss against without", "pair", "pair-without-passage-loss", "74.9 : 73.6 R@5"),
    ("PAIR table 3: with distillation against without", "pair", "pair-without-distillation", "74.9 : 70.9 R@5"),
    (
        "PAIR table 3: passage loss in pre-training alone against in both",
        "pair",
        "pair-passage-loss-in-fine-tuning",
        "74.9 : 74.6 R@5",
    ),
    ("PAIR table 3: shared against separate encoders", "pair", "pair-separate", "74.9 : 74.0 R@5"),
    ("PAIR table 3: with pre-training against without", "pair", "rocketqa-3", "74.9 : 73.0 R@5"),
    (
        "PAIR table 5: strict thresholds against loose (calibrated 0.7/0.1, 0.4/0.3; in the paper 0.9/0.1, 0.6/0.4)",
        "pair",
        "pair-loose",
        "74.9 : 73.5 R@5",
    ),
    ("DCSR table 2: against DPR", "dcsr", "dpr", "63.7 : 52.8 Top-20 (SQuAD)"),
    (
        "DCSR table 4: in-passage negatives against none",
        "dcsr",
        "dcsr-without-in-passage",
        "54.5 : 51.1 Top-20 (SQuAD)",
    ),
    (
        "DCSR table 5: its own hard negatives against BM25's",
        "dcsr-adversarial",
        "dcsr",
        "81.4 : 78.9 Top-20 (NQ; tables 3 and 2)",
    ),
    ("the sentence's mean against its token (ours)", "dcsr", "dcsr-token", "–"),
)


def sample(source: Path, out: Path, questions: int | None, domains: Sequence[str] = ()) -> Path:
    """Write a sample of a dataset in which half of the training questions have no labels; returns its path."""
    return sample_dataset(source, out, questions=questions, dev=DEV, labelled=0.5, domains=domains, seed=SEED)


def findings(qrels: Mapping[str, Any], runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """The papers' comparisons that these runs allow: RR@10 and R@20, each with a paired t-test, Holm-corrected."""
    rows: list[dict[str, Any]] = []
    for what, system, baseline, paper in FINDINGS:
        if system in runs and baseline in runs:
            for measure in ("RR@10", "R@20"):
                first, second = (per_query(qrels, runs[name], [measure])[measure] for name in (system, baseline))
                test = paired_test(first, second)
                means = [float(np.mean(list(values.values()))) for values in (first, second)]
                rows.append(
                    {"what": what, "systems": [system, baseline], "measure": measure, "means": means, "p": test.p}
                    | {"difference": test.difference, "paper": paper}
                )
    for row, corrected in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = corrected
    return rows


def similarities(dataset: Dataset, features: Features) -> dict[str, float]:
    """PAIR's figure 4 on test: mean and deviation of ``s(p⁺, q)``, and of ``s(p⁺, p⁻)`` over the top passages."""
    passages = features.similarity.prepare_array(np.asarray(features.passages, dtype=np.float32))
    judged = dataset.split("test")
    queries = features.similarity.prepare_array(np.asarray(features.queries[features.rows_of(judged)], np.float32))
    row_of = {id_: row for row, id_ in enumerate(dataset.passage_ids)}
    to_query, to_negatives = [], []
    for vector, labels in zip(queries, judged.values(), strict=True):
        positive = row_of[next(iter(labels))]
        best = np.argsort(-(passages @ vector), kind="stable")[: TOP + 1]
        negatives = best[best != positive][:TOP]
        to_query.append(float(passages[positive] @ vector))
        to_negatives.append(float((passages[negatives] @ passages[positive]).mean()))
    return {
        "s(p+,q)": float(np.mean(to_query)),
        "deviation of s(p+,q)": float(np.std(to_query)),
        "s(p+,p-)": float(np.mean(to_negatives)),
        "deviation of s(p+,p-)": float(np.std(to_negatives)),
    }


def corpus_sizes(dataset: Dataset, features: Mapping[str, Features]) -> list[dict[str, Any]]:
    """DCSR's table 7: DPR and DCSR over parts of the corpus, for the questions whose passage is in the part."""
    order = np.random.default_rng(SEED).permutation(len(dataset.passage_ids))
    rows = []
    for share in SHARES:
        part = np.sort(order[: round(share * len(order))])
        ids = [dataset.passage_ids[row] for row in part.tolist()]
        qrels = {query: judged for query, judged in dataset.split("test").items() if judged.keys() <= set(ids)}
        row: dict[str, Any] = {"passages": len(ids), "questions": len(qrels)}
        values = {}
        for name, encoded in features.items():
            measured = per_query(qrels, _run_over(encoded, part, ids, list(qrels)), ["RR@10", "R@20"])
            values[name] = {str(measure): value for measure, value in measured.items()}
            row[name] = {measure: float(np.mean(list(value.values()))) for measure, value in values[name].items()}
        row["p"] = {
            measure: paired_test(values["dcsr"][measure], of_dpr).p for measure, of_dpr in values["dpr"].items()
        }
        rows.append(row)
    return rows


def _run_over(features: Features, part: NDArray[np.int64], ids: list[str], queries: list[str]) -> Run:
    """The run over some of the passages, by sentences if the features have them."""
    prepare = features.similarity.prepare_array
    query_vectors = prepare(np.asarray(features.queries[features.rows_of(queries)], dtype=np.float32))
    if not features.has_sentences:
        scores = query_vectors @ prepare(np.asarray(features.passages[part], dtype=np.float32)).T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :100]
        return dict(zip(queries, rank_rows(best, np.take_along_axis(scores, best, axis=1), ids), strict=True))
    all_starts = np.asarray(features.sentence_starts)
    sentences = np.concatenate([np.arange(all_starts[row], all_starts[row + 1]) for row in part.tolist()])
    starts = np.concatenate([[0], np.cumsum(all_starts[part + 1] - all_starts[part])])
    vectors = prepare(np.asarray(features.sentences[sentences], dtype=np.float32))
    most, run = sentences_looked_at(len(sentences), len(part)), dict[str, Sequence[ScoredPassage]]()
    for query, vector in zip(queries, query_vectors, strict=True):
        scores = vectors @ vector
        best = np.argsort(-scores, kind="stable")[:most]
        answers = has_answer(best, scores[best], starts, features.similarity.scale)
        (run[query],) = rank_rows(answers.rows[None], answers.scores[None].astype(np.float32), ids)
    return run


def elsewhere(
    source: Path, work: Path, encoders: Path, domains: Sequence[str], systems: Sequence[str]
) -> dict[str, Any]:
    """The trained encoders on domains that they were not trained on (DCSR table 6), one table a domain."""
    tables = {}
    for domain in domains:
        dataset = Dataset.open(sample(source, work / domain / "dataset", 2, [domain]))
        qrels, runs = dataset.split("test"), {}
        queries = {query.id: query.text for query in dataset.queries_of("test")}
        for name in (BM25_NAME, START, *systems):
            if name == BM25_NAME:
                bm25 = BM25((passage.full_text for passage in dataset.passages()), total=len(dataset.passage_ids))
                runs[name] = bm25_run(bm25, queries, dataset.passage_ids, 100)
            else:
                settings = open_features(encoders / f"{name}-features").meta["encoder"]
                place = work / domain / f"{name}-features"
                features = encode_dataset(dataset, EncoderSettings.parse(settings), place, overwrite=True)
                runs[name] = features_run(features, list(queries), 100)
        comparison = compare(qrels, runs, START, MEASURES, "test", {"dataset": dataset.provenance()})
        tables[domain] = {"comparison": comparison.as_json(), "table": markdown_comparison(comparison)}
    return tables


def measure(
    name: str, dataset_path: Path, work: Path, small: bool, only: Sequence[str], recipe: Path = RECIPE
) -> dict[str, Any]:
    """Train everything on one set and compare."""
    out = work / name
    recipe_run = run_encoder_recipe(recipe, out, data=dataset_path, small=small, only=only)
    assert recipe_run is not None
    dataset = Dataset.open(dataset_path)
    encoders = [stage for stage, artifact in recipe_run.made.items() if artifact.meta["kind"] == "encoder"]
    runs = {system: read_run(out / "rankings" / f"{system}.run") for system in (BM25_NAME, START, *encoders)}
    qrels = dataset.split("test")
    shown = {system: runs[system] for system in (BM25_NAME, START, *(only or METHODS)) if system in runs}
    provenance = {
        "dataset": dataset.provenance(),
        "seed": SEED,
        "small": small,
        "recipe": recipe_run.comparison.provenance["recipe"],
        "dev": recipe_run.comparison.provenance["dev"],
        "mined": {
            stage: open_examples(artifact.path).report.as_json()
            for stage, artifact in recipe_run.made.items()
            if artifact.meta["kind"] == "examples"
        },
        "versions": library_versions(),
        "git_revision": git_revision(),
        "processors": os.cpu_count(),
    }
    comparison = compare(qrels, shown, START, MEASURES, "test", provenance)
    against = compare(qrels, shown, BM25_NAME, MEASURES, "test", {})
    return {
        "comparison": comparison.as_json(),
        "table": markdown_comparison(comparison),
        "against_bm25": [test.model_dump(mode="json") for test in against.tests if test.measure == "RR@10"],
        "findings": findings(qrels, runs),
        "similarities": {
            system: similarities(dataset, open_features(out / f"{system}-features"))
            for system in (START, "dpr", "pair", "pair-without-passage-loss", "pair-pre-trained")
            if system in (START, *encoders)
        },
    }


def domains_apart(result: dict[str, Any], dataset: Dataset, out: Path) -> None:
    """Add a table for each domain of the test questions."""
    domain_of = {}
    for line in (dataset.path / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        domain_of[record["_id"]] = record["metadata"]["domain"]
    names = [system["name"] for system in result["comparison"]["systems"]]
    runs = {name: read_run(out / "rankings" / f"{name}.run") for name in names}
    result["domains"] = {}
    for domain in sorted(set(domain_of.values())):
        qrels = {query: judged for query, judged in dataset.split("test").items() if domain_of[query] == domain}
        comparison = compare(qrels, runs, START, MEASURES, "test", {})
        result["domains"][domain] = {"comparison": comparison.as_json(), "table": markdown_comparison(comparison)}


def squad_wiki(name: str, data: Path, work: Path, questions: int | None, stages: tuple[str, ...]) -> dict[str, Any]:
    """Train and compare on squad and wiki, also by domain, and on domains that were not trained on."""
    source, recipe = data / "squad-open", RECIPE
    place = sample(source, work / "datasets" / name, questions, ["squad", "wiki"])
    if name.endswith("large"):
        recipe = work / f"{name}.toml"
        text = RECIPE.read_text(encoding="utf-8").replace("max_tokens = 192", f"max_tokens = {LARGE_TOKENS}")
        recipe.write_text(text, encoding="utf-8")
    result = measure(name, place, work, False, stages, recipe)
    dataset = Dataset.open(place)
    domains_apart(result, dataset, work / name)
    if not stages or {"dpr", "dcsr"} <= set(stages):
        features = {system: open_features(work / name / f"{system}-features") for system in ("dpr", "dcsr")}
        result["corpus_sizes"] = corpus_sizes(dataset, features)
    systems = [system for system in ELSEWHERE if not stages or system in stages]
    result["elsewhere"] = elsewhere(source, work / f"elsewhere-{name}", work / name, ["amazon", "reddit"], systems)
    return result


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder with squad-open.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where everything is made and kept.")
@click.option("--only", type=click.Choice(["squad-wiki", "squad-wiki-large", "docstrings"]), help="One of the sets.")
@click.option("--questions", type=int, default=2000, show_default=True, help="Training questions, half with labels.")
@click.option("--stage", "stages", multiple=True, help="Only this encoder and what it builds on; may be repeated.")
def main(data: Path, work: Path, only: str | None, questions: int, stages: tuple[str, ...]) -> None:
    """Train and compare, and write the result files."""
    keep_freed_memory()
    for name in ("squad-wiki", "docstrings", "squad-wiki-large"):
        if only not in (None, name):
            continue
        if name == "docstrings":
            source = make_docstring_corpus(work / "docstring-corpus", summaries="question", overwrite=True).path
            place = sample(source, work / "datasets" / name, questions)
            result = measure(name, place, work, True, stages or ON_DOCSTRINGS)
        elif name == "squad-wiki":
            result = squad_wiki(name, data, work, questions, stages)
        else:
            result = squad_wiki(name, data, work, None, stages or LARGE)
        write_json(RESULTS / f"encoders-{name}.json", without_texts(result))
        page = markdown(name, result, "" if name.endswith("large") else f" --questions {questions}", stages)
        (RESULTS / f"encoders-{name}.md").write_text(page, encoding="utf-8")
        click.echo(page)


if __name__ == "__main__":
    show_progress()
    main()
