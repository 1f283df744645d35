"""The page of benchmarks/same_labels.py."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from gnnretrieval.baselines import EXPANSION, LEXICAL
from gnnretrieval.baselines.dense import CHOICES
from gnnretrieval.index.faiss_index import ONE_VECTOR
from gnnretrieval.recipes.hybrid import WITH, WITHOUT
from gnnretrieval.recipes.same_labels import COLD, WARM

BM25_PLAIN, DUAL, GNN = "bm25", "dual-encoder", "gnn-encoder"
DENSE = (DUAL, *CHOICES, EXPANSION)
SMALL = tuple(name for name in DENSE if "question-index" not in name)  # with one vector for each passage
MINILM, E5 = "minilm", "e5"
DEBIAN = ("debian-tags", "debian-suggests", "debian-sources", "debian-sections")
COPY = 0.5  # least Jaccard of a near copy's words with those of a training question of the same passage

OVER = {MINILM: "", E5: ", over another encoder"}
FROZEN = {MINILM: "MiniLM", E5: "multilingual-e5-small (4 bits)"}
COMMAND = {MINILM: "", E5: " --encoder e5"}
OF_DEBIAN = ", on sets from outside"
ABOUT_DEBIAN = (
    "debian-tags has 10,000 of Debian's packages as passages, each its name and its description in a line, and 4,000",
    "queries of two or three of Debian's tags in words, such as `interface x11 game strategy`. The 2 to 20 packages",
    "with all of these tags are relevant; tags are no part of the passages (`benchmarks/debian_sets.py`, from the",
    "lists of Debian 12 for amd64).",
    "",
    "Seen on test before: the first measurement, when no setting had been chosen on this set. The GNN-encoder had",
    "57.1 ± 1.3 and the strongest baseline 51.5 ± 0.2 (five seeds). Then training questions that were left out, of",
    "this set and of others, showed what heads should be trained against ([head_candidates.md](head_candidates.md)).",
    "Both are better for it. It then had 65.2 ± 0.2, and the strongest baseline 62.3 ± 0.4 (five seeds): heads with an",
    "index of the training questions were not among the baselines. Training and dev questions of this set showed that",
    "they are stronger, and that several vectors a passage help the GNN-encoder too. Training chose only their weight",
    "at first, and the GNN-encoder had 71.7 here and 38.6 on debian-suggests so (three seeds). Since then it also",
    "chooses heads and messages for them, as dev questions of both sets showed that it should.",
    "",
    "debian-suggests has 9,018 packages as passages, and 5,000 descriptions of other packages as queries. The packages",
    "of other sources that a package recommends, suggests or enhances are relevant for its description, one to dozens.",
    "A few packages, such as `libjs-mathjax`, are relevant for many. At first, when nothing had been chosen on it, the",
    "GNN-encoder had 40.4 and the strongest baseline 40.7 (five seeds), without the rows of the question index.",
    "",
    "debian-sources has 34,169 packages as passages, one of each source, and 6,000 descriptions of other packages as",
    "queries. The package of the same source is relevant. debian-sections has the names of 58 sections of the archive",
    "as passages, such as `gnu r`, and 5,500 descriptions as queries: it is a classification, with 69 training",
    "questions for each passage on average. At first the GNN-encoder had 80.4 and 71.8 on these two, and the strongest",
    "baseline 80.1 and 71.8 (five seeds, an earlier point release of the lists), without the rows of the question",
    "index.",
)
HISTORY = {  # what a reader must know of figures that were seen before
    MINILM: (
        "Seen on test before: docstrings (five seeds, 62.3 ± 0.5), when the ladder tried only heads trained beside the",
        "label mean. The linear head, which is trained without it, was better, on dev too (by 2 points).",
        "Since then the ladder tries both, so that it contains that baseline. It then had 63.1 ± 0.2, and the",
        "strongest baseline 63.5. Since then heads over fewer than 4,096 labels take fewer steps, which was chosen",
        "on training questions of docstrings-cut and fairytaleqa ([few_labels.md](few_labels.md)).",
        "Before local scaling was a rung, the GNN-encoder had 62.7, 65.6, 52.6, 60.5 and 38.9; local scaling was found",
        "and chosen on dev alone, with one seed. Before separate heads were tried, it had 62.7, 65.7, 52.9, 60.4 and",
        "39.7. They were the strongest baseline on docstrings, and the ladder must contain it; dev found them better.",
        "Fusions were accepted at p ≤ 0.05 before: with any baseline in",
        "the pipeline without the graph, chance on 122 dev questions decided which one was fused, and docstrings had",
        "-1.9 for the graph. Then at p ≤ 0.3, where docstrings-cut had -0.9. The mean of the best weights was found",
        "on dev questions of squad-open and fairytaleqa ([fusion_choice.md](fusion_choice.md)).",
        "Before heads were trained against random labelled passages too, the GNN-encoder had 63.4, 66.4, 53.3, 60.3",
        "and 39.9, and the strongest baseline 62.9, 65.2, 51.7, 59.9 and 38.3 (five seeds). This was found on training",
        "questions that were left out ([head_candidates.md](head_candidates.md)).",
        "No baseline joined separate heads to the label mean and the prior before, as training does, and the",
        "strongest had 63.0, 65.2, 51.8, 59.9 and 39.0. The one that joins all three is now the strongest, on one",
        "set with another. On docstrings it had 64.3 and the GNN-encoder 63.5 ± 0.7 (five seeds) while the prior was",
        "chosen by dev and cross-validated questions together. Since then dev's alone choose it: a prior is about",
        "the mix of later questions, which only dev shows. Settings were chosen by RR@10 alone until then, and the",
        "GNN-encoder had 63.9, 66.9, 53.6, 60.6 and 40.3, the strongest baseline 64.3, 65.4, 52.1, 60.1 and 40.1 (five",
        "seeds). Log rank was found better on dev questions that do not choose",
        "([choice_on_dev.md](choice_on_dev.md)). By log rank alone, docstrings had 63.5 ± 1.1. Dev questions of",
        "squad-open and fairytaleqa then found a gain in either of the two a little better than log rank alone.",
        "Heads with an index of the training questions were no baseline before. On squad-open the strongest had 52.2",
        "then, and the GNN-encoder was 1.5 ahead of it. Training questions that were left out, of docstrings-cut,",
        "squad-open and debian-tags, showed that this baseline is stronger where a passage has several questions.",
        "Before training chose heads and messages of their own for several vectors a passage, as dev questions of",
        "debian-tags and debian-suggests showed that it should, squad-open had 54.7 with them too (p = 5e-11).",
        "While passage updates came in an order that one label less changed, with at most 8 passes and a step size of",
        "0.2, the GNN-encoder had 64.1, 66.8, 54.3, 60.5 and 40.3, with several vectors 55.1 on squad-open, and 80.4",
        "and 40.8 on debian-tags and debian-suggests. The new steps were chosen on dev. With them, but with the prior",
        "tried after updates, fairytaleqa had 38.8, which was seen on test. Dev showed the cause: it has 41.5 with the",
        "prior first, and 40.2 with it last.",
        "Until then one vector a passage was the default. Several became it after their figures had been seen here;",
        "whether a passage gets them is dev's choice alone.",
    ),
    E5: (
        "All defaults were chosen over MiniLM, without a look at this encoder. This was measured before training tried",
        "updates and several vectors a passage, and before updates were among the baselines.",
    ),
}


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    sets = results["sets"]
    encoder, of_debian = results.get("encoder", MINILM), [name for name in DEBIAN if name in sets]
    command = "".join(f" --only {name}" for name in of_debian) + COMMAND[encoder]
    lines = ["# What the graph adds to the same labels" + (OF_DEBIAN if of_debian else OVER[encoder]), ""]
    lines += [
        f"RR@10 × 100 on test, mean over seeds. Every dense system is over one frozen {FROZEN[encoder]} and sees the",
        "labels of the graph's training questions; each is chosen on dev. `gnn-encoder` is `gnnretrieval train` and",
        "`embed` by their defaults: a passage has one vector more for each of its training questions, where training",
        f"kept these; so have the baselines with a question index. `{ONE_VECTOR}` is `embed --one-vector`.",
        "Δ is the difference from the dense baseline that is strongest *on test*, with a 95 % bootstrap interval and",
        "the p of a paired t-test by question.",
        f"`python benchmarks/same_labels.py{command}` makes this page.",
        "",
        *(ABOUT_DEBIAN if of_debian else HISTORY[encoder]),
        "",
    ]
    lines += _of_systems(sets)
    seeds = ", ".join(f"{name} {figures['seeds']}" for name, figures in sets.items())
    lines += [
        "",
        f"Seeds: {seeds}.",
        "Bold: the strongest dense baseline and the GNN-encoder. ± is the standard deviation over",
        "seeds. The pipelines are what dev finds best of BM25 or bm25+questions and a dense system, alone or joined;",
        "without the graph this is any of the dense systems above.",
    ]
    lines += [*_of_groups(sets), *_of_rungs(sets), *_of_layers(sets), *_of_choices(sets)]
    named = {name: figures["revision"] for name, figures in sets.items() if figures["revision"]}
    revisions = ", ".join(f"{name} {one if ',' in one else one[:7]}" for name, one in named.items())
    devices: dict[str, list[str]] = {}
    for name, figures in sets.items():
        devices.setdefault(figures.get("device", "cpu"), []).append(name)
    trained = "; ".join(f"{', '.join(names)} on {device}" for device, names in devices.items())
    return "\n".join([*lines, "", f"Revisions: {revisions}. Trained: {trained}.", ""])


def _of_systems(sets: Mapping[str, Any]) -> list[str]:
    """The table of all systems."""
    names = [BM25_PLAIN, *DENSE, LEXICAL, GNN, ONE_VECTOR, f"{BM25_PLAIN}+{DUAL}", WITHOUT, WITH]
    names = [name for name in names if any(name in figures["groups"]["all"]["RR@10"] for figures in sets.values())]
    lines = ["|  | " + " | ".join(sets) + " |", "|---|" + "---:|" * len(sets)]
    for name in names:
        cells = []
        for figures in sets.values():
            whole = figures["groups"]["all"]
            if name not in whole["RR@10"]:  # measured before there was this baseline
                cells.append("–")
                continue
            value = spread(whole["RR@10"][name], whole["deviation"][name])
            cells.append(f"**{value}**" if name in (figures["strongest"], GNN) else value)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for label, gain in (
        ("Δ to the strongest dense baseline", _gain),
        ("Δ with one vector to the same", _gain_of_one),
        ("Δ with one vector to the strongest with one vector", _gain_of_one_over_small),
    ):
        cells = [gain(figures) for figures in sets.values()]
        if set(cells) != {"–"}:
            lines.append(f"| **{label}** | {' | '.join(cells)} |")
    lines.append(
        "| **Δ of the pipelines** | " + " | ".join(difference(figures["pipelines"]) for figures in sets.values()) + " |"
    )
    return lines


def _of_groups(sets: Mapping[str, Any]) -> list[str]:
    """Tables of two groups of questions each."""
    lines = []
    for title, groups in (
        ("Where passages have training questions, and where not", (WARM, COLD)),
        (
            f"Questions with a near copy among the training questions (Jaccard ≥ {COPY:g}), and without",
            ("near copies", "no near copies"),
        ),
    ):
        lines += ["", f"## {title}", ""]
        lines += [
            "| set | questions about | n | dual-encoder | strongest baseline | gnn-encoder | Δ | with one vector |"
        ]
        lines += ["|---|---|---:|---:|---:|---:|---:|---:|"]
        for name, figures in sets.items():
            for group in groups:
                if (part := figures["groups"].get(group)) is None:
                    continue
                values = [part["RR@10"].get(system) for system in (DUAL, figures["strongest"], GNN, ONE_VECTOR)]
                *shown, of_one = ["–" if value is None else f"{100 * value:.1f}" for value in values]
                gain = difference(part["against"][figures["strongest"]])
                cells = [name, group, f"{part['questions']:,}", *shown, gain, of_one]
                lines.append(f"| {' | '.join(cells)} |")
    return lines


def _of_rungs(sets: Mapping[str, Any]) -> list[str]:
    """The table of each rung's gain on dev, where it was kept."""
    lines = ["", "## What each rung of the ladder gained on dev", ""]
    lines += ["RR@10 × 100 over the rung below, mean over the seeds that kept it; in brackets how many did.", ""]
    per_set = {name: [chosen["rungs"] for chosen in figures["chosen"].values()] for name, figures in sets.items()}
    rungs = dict.fromkeys(rung for seeds in per_set.values() for kept in seeds for rung in kept)  # in their order
    names = [rung for rung in rungs if any(kept.get(rung) is not None for seeds in per_set.values() for kept in seeds)]
    lines += ["| set | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for name, seeds in per_set.items():
        gains = [[gain for kept in seeds if (gain := kept.get(rung)) is not None] for rung in names]
        cells = [f"{100 * fmean(values):+.1f} ({len(values)} of {len(seeds)})" if values else "–" for values in gains]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _of_layers(sets: Mapping[str, Any]) -> list[str]:
    """The table of other layers, on the sets that have any."""
    measured = {name: figures for name, figures in sets.items() if figures.get("layers")}
    if not measured:
        return []
    lines = ["", "## Other layers", ""]
    lines += [
        "`gnnretrieval train --layer NAME` by its defaults, over the same graph; Δ is to `--layer linear` by the same",
        "seeds with one vector a passage, which these layers have; without Δ the layer was measured against an",
        "earlier `linear`. These layers work on the dual-encoder's",
        "vectors, without heads; on top of what the ladder keeps, attention has [its own",
        "page](attention_over_ladder.md).",
        "",
    ]
    lines += ["|  | " + " | ".join(measured) + " |", "|---|" + "---|" * len(measured)]
    layers = dict.fromkeys(layer for figures in measured.values() for layer in figures["layers"])
    for layer in layers:
        cells = []
        for figures in measured.values():
            row = figures["layers"].get(layer)
            cells.append("–" if row is None else spread(row["RR@10"], row["deviation"]))
            if row is not None and row["against"] is not None:
                cells[-1] += f": {difference(row['against'])}"
        lines.append(f"| {layer} | " + " | ".join(cells) + " |")
    made = []
    for name, figures in measured.items():
        rows = figures["layers"].values()
        seeds, devices, revisions = (
            ", ".join(dict.fromkeys(one for row in rows for one in str(row[entry]).split(", ")))
            for entry in ("seeds", "device", "revision")
        )
        made.append(f"{name} on {devices}, seeds {seeds}, revisions {revisions}")
    return [*lines, "", f"Trained: {'; '.join(made)}."]


def _of_choices(sets: Mapping[str, Any]) -> list[str]:
    """The table of what dev chose."""
    lines = ["", "## What dev chose", ""]
    lines += ["| set | seed | gnn-encoder | p | weight of questions | best without the graph | best with it |"]
    lines += ["|---|---:|---|---:|---:|---|---|"]
    for name, figures in sets.items():
        for seed, chosen in figures["chosen"].items():
            choices = chosen["said"]
            questions = f"{chosen['questions']:g}" if "questions" in chosen else "–"
            cells = [choices[GNN], f"{chosen['p']:.2g}", questions, choices[WITHOUT], choices[WITH]]
            lines.append(f"| {name} | {seed} | {' | '.join(cells)} |")
    return lines


def spread(mean: float, deviation: float) -> str:
    """A mean over seeds, with its deviation if there is any."""
    return f"{100 * mean:.1f}" + (f" ± {100 * deviation:.1f}" if deviation else "")


def _gain(figures: Mapping[str, Any]) -> str:
    return difference(figures["groups"]["all"]["against"][figures["strongest"]]) + f" to {figures['strongest']}"


def _gain_of_one(figures: Mapping[str, Any]) -> str:
    return difference(figures["one_vector"]["against"][figures["strongest"]]) if "one_vector" in figures else "–"


def _gain_of_one_over_small(figures: Mapping[str, Any]) -> str:
    if "one_vector" not in figures:  # measured before there were stronger ones
        return "–"
    name = figures["one_vector"]["strongest"]
    return f"{difference(figures['one_vector']['against'][name])} to {name}"


def difference(test: Mapping[str, Any]) -> str:
    """The difference of a test with its interval and p, × 100."""
    low, high = (100 * bound for bound in test["interval"])
    return f"{100 * test['difference']:+.1f} [{low:+.1f}, {high:+.1f}], p = {test['p']:.1g}"
