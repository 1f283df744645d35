"""What the GNN-encoder's page begins with: its gain over baselines that saw the same labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from papers_rows import NONE, SIGNIFICANT, Table, difference, grid, p_value, page_link, percent, result

DUAL, GNN, BM25 = "dual-encoder", "gnn-encoder", "bm25"
Figures = Mapping[str, Any]


def _sets() -> Mapping[str, Figures]:
    sets: Mapping[str, Figures] = result("same_labels")["sets"]
    return sets


def _gain(figures: Figures) -> Figures:
    """The test against the strongest baseline."""
    test: Figures = figures["groups"]["all"]["against"][figures["strongest"]]
    return test


def _strongest(figures: Figures) -> float:
    return float(figures["groups"]["all"]["RR@10"][figures["strongest"]])


def over_same_labels() -> str:
    """The gain on every set in a sentence, and where BM25 is ahead."""
    gains = {name: _gain(figures) for name, figures in _sets().items()}
    shown = ", ".join(f"{difference(gain['difference'], gain['p'])} on {name}" for name, gain in gains.items())
    significant = sum(gain["p"] < SIGNIFICANT and gain["difference"] > 0 for gain in gains.values())
    values = [figures["groups"]["all"]["RR@10"] for figures in _sets().values()]
    ahead = sum(of_set[BM25] > of_set[GNN] for of_set in values)
    seeds = sorted({figures["seeds"] for figures in _sets().values()})
    of_seeds = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
    return (
        "Over the strongest baseline that saw the same labels, our GNN-encoder's RR@10, by a default training without "
        f"attention (and with several vectors a passage where dev kept them), is {shown}: significant on {significant} "
        f"of {len(gains)} sets ({of_seeds} seeds, frozen MiniLM); BM25 is ahead of it on {ahead}."
    )


def attention_alone() -> str:
    """Where the paper's attention is beside the strongest baseline."""
    alone = [figures for figures in _sets().values() if "gat" in figures["layers"]]
    behind = sum(figures["layers"]["gat"]["RR@10"] < _strongest(figures) for figures in alone)
    seeds = min(figures["layers"]["gat"]["seeds"] for figures in alone)
    return f"it is behind that baseline on {behind} of {len(alone)} sets ({seeds} seeds, not tested against it)"


def same_labels(_: Table) -> list[str]:
    """A row for every set, and the same with the query encoder trained."""
    on_top = result("attention_over_ladder")["sets"]
    rows = []
    for name, figures in _sets().items():
        values, test, added = figures["groups"]["all"]["RR@10"], _gain(figures), on_top[name]["gat"]
        alone = figures["layers"].get("gat")
        low, high = (100 * bound for bound in test["interval"])
        rows.append(
            [
                name,
                *(percent(values[system]) for system in (BM25, DUAL)),
                f"{percent(_strongest(figures))} ({figures['strongest']})",
                percent(values[GNN]),
                f"{difference(test['difference'])} [{low:+.1f}, {high:+.1f}], {p_value(test['p'])}",
                percent(alone["RR@10"]) if alone else NONE,
                difference(added["difference"], added["p"]),
            ]
        )
    head = ["set", "BM25", "dual-encoder", "strongest baseline", "GNN-encoder", "gain over that baseline"]
    pages = f"{page_link('same_labels', 'The whole table')}, {page_link('attention_over_ladder', 'attention on top')}."
    return [*grid([*head, "attention alone", "attention on top"], rows), "", f"{pages} {_trained_too()}"]


def _trained_too() -> str:
    """The same with trained encoders, as in the paper."""
    said = []
    for name, of_set in result("trained_encoder")["sets"].items():
        best = of_set["over_dpr"]
        said.append(
            f"{name} {best['mean']:.1f}, {difference(best['difference'], best['p'])} to the strongest baseline "
            f"({best['strongest']})"
        )
    return f"Over {page_link('trained_encoder', 'a DPR of the same labels')}, trained jointly: {'; '.join(said)}."
