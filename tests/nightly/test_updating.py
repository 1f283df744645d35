"""The nightly update: what is promoted and what is not, after kills too, and while it is served."""

import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from gnnretrieval import Retriever
from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.feedback.thumb_log import ThumbLog
from gnnretrieval.graph.build import build_graph
from gnnretrieval.nightly import Versions, end_rollback, forget_events, making, roll_back, update_search, updating
from gnnretrieval.nightly.making import Version
from gnnretrieval.recipes.recipe import read_recipe
from gnnretrieval.serve import ServeSettings, create_app
from gnnretrieval.serve.served import open_version
from tests.killed_runs import Killed
from tests.nightly.conftest import Search


def served(run: Versions) -> Retriever:
    """What a server opens, with all of its files of one version."""
    return open_version(lambda: Retriever.open(run.path), 0)


def version_of(run: Versions, number: int) -> Version:
    return Version.open(run.place(number))


def test_the_first_night_serves_the_dual_encoder_until_clicks_show_more(first_night):
    search, report = first_night
    assert (report.outcome, report.version, report.training) == ("first version", 1, "none")
    assert report.reasons[0] == "It ranks as the dual-encoder, until clicks show more."
    with_before = served(search.run)
    question = next(iter(Dataset.open(search.run.place(1) / "dataset").queries())).text
    assert [hit.id for hit in with_before.search(question)] == [
        hit.id for hit in with_before.search(question, system="dual-encoder")
    ]


def test_a_true_gain_is_promoted_and_signed_in_the_ledger(two_nights):
    search, report = two_nights
    assert (report.outcome, report.version, report.before, report.training) == ("new model", 2, 1, "from scratch")
    assert report.gate.promotes
    assert report.gate.gain > 0.2
    line = search.run.ledger()[-1]
    assert (line["action"], line["version"], line["outcome"]) == ("update", 2, "new model")
    assert line["gate"]["gain"] == report.gate.gain
    assert {"who", "when"} <= line.keys()
    assert "Version 2 is promoted: a new model." in report.to_text()
    assert "Nightly update" in report.to_html()
    assert json.loads((search.run.path / "reports" / "00002.json").read_text())["version"] == 2


def test_the_graph_of_a_night_is_that_of_a_build_from_nothing(two_nights, tmp_path):
    search, report = two_nights
    assert 0 < report.encoded < 40  # texts of new questions only
    its = version_of(search.run, 2)
    again = build_graph(its.dataset, its.features, read_recipe(search.recipe).graph, tmp_path / "graph")
    assert its.graph.hash == again.hash


def test_nothing_new_changes_nothing(search):
    ledger = search.run.ledger()
    report = search.update()
    assert (report.outcome, report.version, report.events.added) == ("nothing", 2, 0)
    assert search.run.ledger() == ledger


def test_a_dry_run_counts_what_is_new_and_writes_nothing(first_night, tmp_path):
    search = first_night[0].copied(tmp_path / "search")
    search.set_passages(new="zu zu", p00="ba bu", p01="")
    before = files(search.run.path)
    report = search.update(dry_run=True)
    assert (report.outcome, report.events.added) == ("dry run", len(search.log) - round(0.5 * len(search.log)))
    assert report.passages.model_dump() == {
        "passages": 40,
        "new": 1,
        "changed": 1,
        "removed": 1,
        "in_other_order": False,
    }
    assert files(search.run.path) == before


def test_new_passages_are_served_by_the_old_model_and_the_others_rank_as_before(search):
    before = version_of(search.run, 2)
    search.set_passages(new="zu zu zu", p39="")
    report = search.update()
    assert (report.outcome, report.version, report.gate.promotes) == ("passages only", 3, False)
    now = version_of(search.run, 3)
    assert now.model.hash == before.model.hash
    rows = {id_: row for row, id_ in enumerate(now.dataset.passage_ids)}
    assert "new" in rows
    assert "p39" not in rows
    kept = [id_ for id_ in before.dataset.passage_ids if id_ in rows]
    old = before.embeddings.passages[[before.dataset.passage_ids.index(id_) for id_ in kept]]
    assert np.array_equal(old, now.embeddings.passages[[rows[id_] for id_ in kept]])
    assert served(search.run).search("zu zu zu", k=3)[0].id == "new"


def ask_something_new(search):
    """Clicks on a question that nobody has asked."""
    lists = [json.loads(line) for line in search.log[-40:]]
    for number, one in enumerate(lists):
        one |= {"query": "a question of tomorrow", "session": f"new {number}", "clicked": one["shown"][:1]}
        one["shown"] = lists[0]["shown"]
    search.log = [*search.log, *(json.dumps(one) + "\n" for one in lists)]


def test_where_all_events_are_too_old_the_old_model_serves_new_passages(search):
    search.recipe.write_text(search.recipe.read_text() + "keep_days = 30\n")
    search.set_passages(new="zu zu zu")
    report = search.update(now=datetime(2030, 1, 1, tzinfo=UTC))
    assert (report.outcome, report.version, report.events.stored) == ("passages only", 3, 0)
    assert report.reasons == [
        "There is nothing to train on: the store has no event: give a log with some that are not older than "
        "keep_days = 30 (--events)."
    ]


@pytest.mark.parametrize("begun", ["", '{"time": "2026-0'])
def test_a_log_without_an_event_yet_is_left_out_and_new_passages_are_served(search, said, begun):
    log = ThumbLog(search.place / "thumbs.jsonl").path  # a server makes the file when it starts
    log.write_text(begun)
    search.set_passages(new="zu zu zu")
    report = update_search(search.recipe, [log, search.events()])
    assert (report.outcome, report.events.read) == ("passages only", len(search.log))
    assert f"{log}: no event is in this log yet: it is left out." in said
    assert update_search(search.recipe, [log]).outcome == "nothing"


def test_passages_that_all_have_other_ids_are_refused_in_a_sentence(search):
    lines = [json.loads(line) for line in search.data.read_text().splitlines()]
    search.data.write_text("".join(json.dumps(one | {"_id": f"new {one['_id']}"}) + "\n" for one in lines))
    with pytest.raises(InputError, match=r"passages.jsonl: no passage with a label is among these passages. Give them"):
        search.update()
    assert search.run.promoted == 2


def test_a_warm_start_goes_on_from_the_promoted_model(search):
    ask_something_new(search)
    report = search.update()
    assert report.training == "warm start"
    assert report.outcome in ("new model", "nothing")


def test_where_memory_does_not_hold_the_graph_training_begins_from_scratch(search, monkeypatch):
    monkeypatch.setattr(updating, "fits_memory", lambda graph: False)
    ask_something_new(search)
    assert search.update().training == "from scratch"


def test_versions_are_pruned_and_the_promoted_one_stays(search):
    search.recipe.write_text(search.recipe.read_text() + "versions = 1\n")
    search.set_passages(new="zu zu zu")
    assert search.update().deleted == [1, 2]
    assert search.run.numbers() == [3]
    assert served(search.run).num_passages == 41


def test_what_a_killed_update_did_not_delete_is_deleted_when_nothing_is_new(search, monkeypatch):
    forget_events(search.run.path, questions=[json.loads(search.log[0])["query"]])
    with monkeypatch.context() as patch:
        patch.setattr(Versions, "prune", lambda run, keep: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            search.update()
    assert search.run.is_forgotten(1)
    report = search.update()
    assert (report.outcome, report.deleted) == ("nothing", [1, 2])
    assert not any(search.run.is_forgotten(number) for number in search.run.numbers())


def test_a_retriever_stays_at_its_version_when_another_is_promoted(search):
    retriever, before = Retriever.open(search.run.path), served(search.run)
    search.set_passages(p00="", p01="", p02="")
    assert search.update().version == 3
    for system in ("dual-encoder", "gnn-encoder"):
        assert retriever.search("zu zu", 5, system) == before.search("zu zu", 5, system)


def test_rollback_is_one_step_and_is_signed(search):
    assert roll_back(search.run.path) == 1
    assert search.run.promoted == 1
    assert Path(served(search.run).index.made_from("embeddings")).parent.name == "0001"
    line = search.run.ledger()[-1]
    assert (line["action"], line["to"], line["promoted"]) == ("rollback", 1, 2)
    assert roll_back(search.run.path, 2) == 2
    for wrong, sentence in ((9, "there is no version 9. There are: 1, 2"),):
        with pytest.raises(ArtifactError, match=sentence):
            roll_back(search.run.path, wrong)
    roll_back(search.run.path, 1)
    with pytest.raises(ArtifactError, match="there is no version before 1"):
        roll_back(search.run.path)


def test_after_a_rollback_updates_judge_and_promote_nothing_until_a_person_ends_it(search, monkeypatch):
    better = version_of(search.run, 2).model

    def trained(maker, dataset, features, graph, out):
        shutil.copytree(better.path, out / "model", dirs_exist_ok=True)
        return better

    monkeypatch.setattr(making.Maker, "train", trained)
    monkeypatch.setattr(updating, "grew_enough", lambda *_: True)
    roll_back(search.run.path)
    report = search.update(from_scratch=True)
    sentence = (
        "The search was rolled back: no new model is promoted until a person ends that "
        f"(gnnretrieval rollback {search.run.path} --end)."
    )
    assert (report.outcome, report.version, report.gate.promotes) == ("nothing", 1, True)
    assert sentence in report.to_text()
    assert search.run.ledger()[-1]["rolled_back"] is True
    again = search.update()
    assert (again.outcome, again.reasons[-1]) == ("nothing", sentence)
    ended = CliRunner().invoke(cli, ["rollback", str(search.run.path), "--end"])
    assert (ended.exit_code, search.run.ledger()[-1]["action"]) == (0, "end of rollback"), ended.output
    promoted = search.update()  # without any new event
    assert (promoted.outcome, promoted.version) == ("new model", 3)
    with pytest.raises(ArtifactError, match="there is no rollback to end"):
        end_rollback(search.run.path)


# Where a night ends: a step, and whether it has done its work.
KILLS = [
    (making, "import_feedback", True),
    (making, "encode_dataset", False),
    (making, "build_graph", True),
    (making, "train_gnn", True),
    (making, "build_index", False),
    (updating, "compare_versions", False),
    (Versions, "put", False),
    (Versions, "promote", False),
    (Versions, "promote", True),
    (Versions, "sign", True),
]


def ending(real: Callable[..., object], after: bool) -> Callable[..., object]:
    """A function that ends its process, before or after it has done its work."""

    def ends(*args: object, **how: object) -> object:
        if after:
            real(*args, **how)
        raise Killed

    return ends


def test_after_a_kill_at_any_step_the_same_command_goes_on_and_a_whole_version_is_served(
    first_night, two_nights, tmp_path
):
    search = first_night[0].copied(tmp_path / "search")
    killed = 0
    for where, name, after in KILLS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, ending(getattr(where, name), after))
            try:
                search.update()
            except Killed:
                killed += 1
        assert served(search.run).search("zu", k=3)
    assert killed >= 9  # what was promoted by the next night is not made again
    search.update()
    assert (search.run.promoted, search.run.numbers()) == (2, [1, 2])
    lines = [line for line in search.run.ledger() if line["version"] == 2]
    assert len(lines) == 1
    assert not search.run.making("candidate").exists()
    unbroken = version_of(two_nights[0].run, 2)
    assert version_of(search.run, 2).embeddings.hash == unbroken.embeddings.hash


@pytest.mark.parametrize("left", ["half of the version", "a version of other passages"])
def test_what_a_killed_update_left_of_the_old_model_is_not_served_as_tonights(search, monkeypatch, left):
    search.recipe.write_text(search.recipe.read_text().replace("least = 5", "least = 5000"))
    search.set_passages(new="zu zu zu")
    real = making.build_index

    def first_index(made, out, **how):
        if out.name == "index-dual-encoder":
            raise Killed
        return real(made, out, **how)

    with monkeypatch.context() as patch:
        if left == "half of the version":
            patch.setattr(making, "build_index", first_index)
        else:
            patch.setattr(Versions, "put", ending(Versions.put, False))
        with pytest.raises(Killed):
            search.update()
    search.set_passages(newer="ba bu zu")
    report = search.update()
    assert (report.outcome, report.version) == ("passages only", 3)
    assert {"new", "newer"} < {*version_of(search.run, 3).dataset.passage_ids}  # and all its artifacts are there


def test_the_command_says_that_a_rollback_stays_until_its_end(search):
    path = str(search.run.path)
    said = CliRunner().invoke(cli, ["rollback", path])
    assert f"{path}: version 1 is promoted" in said.output
    assert f"No update promotes a new model until: gnnretrieval rollback {path} --end" in said.output
    assert CliRunner().invoke(cli, ["rollback", path, "1", "--end"]).exit_code == 2
    assert search.run.is_rolled_back


def test_no_update_promotes_a_new_model_either_where_the_promoted_version_is_named(search):
    path = str(search.run.path)
    for _ in range(2):  # once is enough
        said = CliRunner().invoke(cli, ["rollback", path, "2"])
        assert "No update promotes a new model until" in said.output
        assert (search.run.promoted, search.run.is_rolled_back) == (2, True)
    assert [line["action"] for line in search.run.ledger()].count("rollback") == 1
    end_rollback(path)
    assert not search.run.is_rolled_back


def test_after_a_rollback_to_other_passages_the_next_update_serves_tonights_by_the_promoted_model(search):
    search.set_passages(new="zu zu zu")
    assert search.update().version == 3
    model = version_of(search.run, 2).model
    assert roll_back(search.run.path) == 2
    report = search.update()  # nothing but the rollback is new
    assert (report.outcome, report.version, report.passages.new) == ("passages only", 4, 1)
    assert version_of(search.run, 4).model.hash == model.hash
    assert search.update().outcome == "nothing"


def test_a_second_rollback_does_not_return_to_the_version_that_the_first_gave_up(search):
    assert roll_back(search.run.path) == 1
    search.set_passages(new="zu zu zu")
    assert search.update().version == 3  # by the model of 1
    assert roll_back(search.run.path) == 1
    with pytest.raises(ArtifactError, match=r"there is no version before 1\."):
        roll_back(search.run.path)
    search.set_passages(newer="zu ba")
    assert search.update().version == 4
    assert roll_back(search.run.path, 2) == 2  # a version that was given up can be named
    end_rollback(search.run.path)
    assert roll_back(search.run.path) == 1


def test_a_server_loses_no_request_while_versions_are_promoted(search):
    run = search.run

    def load(before):
        return open_version(lambda: Retriever.open(run.path, older=before.retriever), 0, is_patient=True)

    app = create_app(served(run), ServeSettings(watch=0.02), load=load)
    with TestClient(app) as client:

        def asked() -> str:
            answer = client.post("/search", json={"question": "zu zu", "k": 3})
            assert answer.status_code == 200
            assert len(answer.json()["hits"]) == 3
            return str(answer.headers["index-version"])

        seen = [asked()]
        for number in (1, 2, 1):
            roll_back(run.path, number)
            until = time.monotonic() + 60
            while asked() == seen[-1]:
                assert time.monotonic() < until
            seen.append(asked())
    assert seen == [seen[0], seen[1]] * 2


def test_forgotten_events_leave_the_bytes_of_never_having_had_them(new_search, tmp_path, tiny_dataset, tiny_checkpoint):
    lists = [json.loads(line) for line in new_search.log]
    secret, session = "the secret question", lists[3]["session"]
    more = [{**one, "query": secret, "session": f"other {number}"} for number, one in enumerate(lists[:60])]
    never = [one for one in lists if one["session"] != session]
    new_search.log = [json.dumps(one) + "\n" for one in [*lists, *more]]
    new_search.update()
    without = Search(tmp_path / "without", tiny_dataset, tiny_checkpoint, [json.dumps(one) + "\n" for one in never])
    without.update()
    assert forget_events(new_search.run.path, [session], ["The SECRET question?"]) > 60
    with pytest.raises(InputError, match="Nothing was forgotten"):
        forget_events(new_search.run.path, [session])
    report = update_search(new_search.recipe, [new_search.place / "log.jsonl"])  # the log still has them
    assert (report.outcome, report.version, report.deleted) == ("without forgotten events", 2, [1])
    assert report.events.forgotten > 60
    assert not [name for name, text in files(new_search.run.path).items() if b"secret" in text.lower()]
    here, there = version_of(new_search.run, 2), version_of(without.run, 1)
    assert here.dataset.hash == there.dataset.hash
    for name in ("features", "graph"):
        assert getattr(here, name).hash == getattr(there, name).hash
    trained = without.update(from_scratch=True)  # the first version may have kept the dual-encoder
    if trained.outcome == "new model" or there.model.load_messages().messages.steps:
        there = version_of(without.run, without.run.promoted)
        assert here.embeddings.hash == there.embeddings.hash


def test_where_nothing_is_left_to_learn_from_the_versions_that_are_not_served_are_deleted(search):
    forget_events(search.run.path, sessions=[json.loads(line)["session"] for line in search.log])
    with pytest.raises(InputError, match=r"0002 still has them, and is still served: give logs with other clicks"):
        search.update()
    assert search.run.numbers() == [2]
    assert not search.run.making("candidate").exists()


@pytest.mark.parametrize("step", ["promote", "sign"])
def test_a_rollback_that_is_killed_never_lets_the_model_that_is_given_up_come_back(search, monkeypatch, step):
    with monkeypatch.context() as patch:
        patch.setattr(Versions, step, lambda run, *some, **more: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            roll_back(search.run.path)
    assert search.run.promoted == 2  # nothing happened yet, or
    assert search.run.is_rolled_back == (step == "promote")  # the rest of it is the same command again
    assert roll_back(search.run.path) == 1
    assert search.run.is_rolled_back


def test_what_was_made_from_forgotten_events_is_not_promoted_again(search):
    session = json.loads(search.log[0])["session"]
    forget_events(search.run.path, [session])
    with pytest.raises(ArtifactError, match="made from events that were to be forgotten"):
        roll_back(search.run.path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[train]\nlayer = 'gat'\n", "update trains layer = linear"),
        ("[graph]\nedges = 'run'\n", "edges = run needs a run"),
        ("[update]\nevidenc = 0.1\n", "Did you mean 'evidence'"),
    ],
)
def test_a_recipe_that_cannot_be_updated_is_a_sentence(new_search, text, sentence):
    new_search.recipe.write_text(f'name = "tiny"\n[data]\nsource = "passages.jsonl"\n{text}')
    with pytest.raises(InputError, match=sentence):
        new_search.update()
    assert not new_search.run.path.exists()


def test_bad_places_are_a_sentence(new_search, tiny_dataset):
    shutil.copytree(tiny_dataset, new_search.run.path / "dataset")
    with pytest.raises(ArtifactError, match="Update into another directory"):
        new_search.update(0.1)
    with pytest.raises(ArtifactError, match=r"no version of a search here\. gnnretrieval update makes one"):
        roll_back(new_search.place)
    with pytest.raises(InputError, match="there is nothing to forget"):
        forget_events(new_search.run.path)
    new_search.recipe.write_text('name = "tiny"\n')
    with pytest.raises(InputError, match="the recipe names no passages"):
        new_search.update()


def test_clicks_without_a_label_are_kept_for_another_night(new_search):
    new_search.log = new_search.log[:3]
    with pytest.raises(InputError):
        new_search.update()
    assert new_search.run.promoted is None
    assert sum(1 for log in new_search.run.store.logs() for _ in log.events()) == 3


def test_events_are_forgotten_before_there_is_a_version_too(new_search):
    new_search.log, log = new_search.log[:3], new_search.log
    with pytest.raises(InputError):
        new_search.update()
    assert forget_events(new_search.run.path, [json.loads(log[0])["session"]]) > 0
    new_search.log = log
    report = new_search.update(0.5)
    assert (report.outcome, report.version) == ("first version", 1)
    assert report.events.forgotten > 0
    with pytest.raises(ArtifactError, match="no version of a search here"):
        forget_events(new_search.place, ["s"])


def files(directory: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(directory.rglob("*")) if file.is_file()}


def test_an_encoder_by_late_interaction_keeps_the_vectors_of_its_tokens_every_night(
    tiny_dataset, tiny_late_encoder, tiny_late, tmp_path
):
    encoder = EncoderSettings(checkpoint=str(tiny_late_encoder.path), precision="float32")
    recipe = SimpleNamespace(encoder=encoder)
    maker = making.Maker(recipe, tiny_dataset, "cpu")
    made = maker._features(Dataset.open(tiny_dataset), tmp_path, [tiny_late], False)
    np.testing.assert_array_equal(made.tokens, tiny_late.tokens)
