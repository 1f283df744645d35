import json
import re
import shutil

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.learned_from import read_learned_from
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.recipes.encoder_recipe import METHODS, read_encoder_recipe
from gnnretrieval.recipes.run_encoder import run_encoder_recipe
from gnnretrieval.training.encoder.loop import EncoderLoop
from gnnretrieval.training.encoder.pair_data import in_share

ENCODERS = {
    "dpr": ["dpr"],
    "rocketqa": ["step-1", "step-3", "step-4"],
    "pair": ["dpr", "pre-trained", "pair"],
    "dcsr": ["dcsr", "dcsr-adversarial"],
    "adore": ["dpr", "adore"],
    "ance": ["warm-up", "ance"],
    "coil": ["coil"],
    "me-bert": ["me-bert"],
    "rocketqav2": ["step-1", "rocketqav2"],
    "splade": ["splade"],
    "term-weights": ["term-weights"],
    "retromae": ["retromae"],
    "cocondenser": ["condenser", "cocondenser"],
    "splade-distilled": ["splade", "splade-distilled"],
}


@pytest.fixture(scope="module")
def unlabelled_dataset(tiny_dataset, tmp_path_factory):
    """The tiny dataset, with answers, and without the labels of half of the training queries."""
    place = tmp_path_factory.mktemp("unlabelled") / "dataset"
    shutil.copytree(tiny_dataset, place)
    train = place / "qrels" / "train.tsv"
    header, *lines = train.read_text().splitlines(keepends=True)
    train.write_text(header + "".join(line for line in lines if int(line[6:8]) % 2))
    queries = [json.loads(line) for line in (place / "queries.jsonl").read_text().splitlines()]
    for query in queries:
        query["metadata"] = {"answers": query["text"].rstrip("?").split()}
    (place / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    return place


def shrunk(method, checkpoint, place):
    """A method's recipe for the tiny checkpoint: fewer epochs and tokens, thresholds that an untrained judge meets."""
    text = (METHODS / f"{method}.toml").read_text(encoding="utf-8")
    text = text.replace("sentence-transformers/all-MiniLM-L6-v2", str(checkpoint))
    for key, value in {
        "epochs": 1,
        "batch_size": 16,
        "max_tokens": 48,
        "pair_tokens": 48,
        "top_k": 6,
        "learning_rate": 1e-3,
        "positive_threshold": 0.16,
        "negative_threshold": 0.15,
        "refresh_every": 1,
    }.items():
        text = re.sub(rf"(?m)(\b{key} = )[^,\s}}]+", rf"\g<1>{value}", text)
    file = place / f"{method}.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("method", sorted(ENCODERS))
def test_a_method_makes_its_encoders_and_compares_them(
    method, unlabelled_dataset, tiny_checkpoint, tmp_path, monkeypatch
):
    recipe = shrunk(method, tiny_checkpoint, tmp_path)
    made = run_encoder_recipe(recipe, tmp_path / "out", data=unlabelled_dataset)
    systems = [system.name for system in made.comparison.systems]
    assert systems == ["bm25", "start", *ENCODERS[method]]
    assert all((tmp_path / "out" / name / "passage").is_dir() for name in ENCODERS[method])
    assert list(made.made) == [stage.name for stage in read_encoder_recipe(recipe).stages]
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["baseline"] == "start"

    def trained_again(self):
        raise AssertionError("trained again")

    monkeypatch.setattr(EncoderLoop, "run", trained_again)
    again = run_encoder_recipe(recipe, tmp_path / "out", data=unlabelled_dataset)
    assert {name: artifact.hash for name, artifact in again.made.items()} == {
        name: artifact.hash for name, artifact in made.made.items()
    }


def test_vectors_of_tokens_are_stored_as_the_recipe_says(tiny_dataset, tiny_checkpoint, tmp_path):
    recipe = shrunk("me-bert", tiny_checkpoint, tmp_path)
    text = recipe.read_text("utf-8").replace("[encoder]", '[encoder]\ntoken_storage = "int8"')
    recipe.write_text(text, encoding="utf-8")
    run_encoder_recipe(recipe, tmp_path / "out", data=tiny_dataset)
    assert Features.open(tmp_path / "out" / "me-bert-features").tokens.dtype == "int8"


def test_a_reader_is_trained_on_what_the_start_retrieves(answered_dataset, tiny_checkpoint, tmp_path):
    recipe = shrunk("reader", tiny_checkpoint, tmp_path)
    recipe.write_text(recipe.read_text().replace("[reader]", "[reader]\nmax_tokens = 48"), encoding="utf-8")
    made = run_encoder_recipe(recipe, tmp_path / "out", data=answered_dataset)
    assert list(made.made) == ["negatives", "dev-negatives", "reader"]
    assert made.made["reader"].meta["kind"] == "reader"
    assert [system.name for system in made.comparison.systems] == ["bm25", "start"]


def test_a_reader_of_questions_without_answers_is_refused_before_any_work(tiny_dataset, tiny_checkpoint, tmp_path):
    recipe = shrunk("reader", tiny_checkpoint, tmp_path)
    with pytest.raises(InputError, match="no query of split 'train' has answers"):
        run_encoder_recipe(recipe, tmp_path / "out", data=tiny_dataset)
    assert not (tmp_path / "out" / "negatives").exists()


def test_a_dev_split_without_a_relevant_passage_is_refused_before_any_work(tiny_dataset, tiny_checkpoint, tmp_path):
    place = shutil.copytree(tiny_dataset, tmp_path / "dataset")
    dev = place / "qrels" / "dev.tsv"
    dev.write_text(re.sub(r"(?m)\t1$", "\t0", dev.read_text("utf-8")), encoding="utf-8")
    recipe = shrunk("dpr", tiny_checkpoint, tmp_path)
    with pytest.raises(GnnRetrievalError, match="no query of split 'dev', which chooses the epoch, has a relevant"):
        run_encoder_recipe(recipe, tmp_path / "out", data=place)
    assert not (tmp_path / "out").exists()


def test_sentences_of_questions_without_answers_are_refused_before_any_work(tiny_dataset, tiny_checkpoint, tmp_path):
    recipe = shrunk("dcsr", tiny_checkpoint, tmp_path)
    with pytest.raises(InputError, match=r"'dcsr' learns from the sentences .* set without_answer = \"overlap\""):
        run_encoder_recipe(recipe, tmp_path / "out", data=tiny_dataset)
    assert not (tmp_path / "out").exists()


def test_pair_on_small_data_is_pre_trained_even_if_its_teacher_is_never_sure(
    unlabelled_dataset, tiny_checkpoint, tmp_path
):
    recipe = shrunk("pair", tiny_checkpoint, tmp_path)
    text = re.sub(r"(?m)^positive_threshold = .*$", "positive_threshold = 0.9999", recipe.read_text("utf-8"))
    recipe.write_text(text, encoding="utf-8")
    with pytest.raises(GnnRetrievalError, match="nothing to train on"):
        run_encoder_recipe(recipe, tmp_path / "out", data=unlabelled_dataset)
    made = run_encoder_recipe(recipe, tmp_path / "small", data=unlabelled_dataset, small=True)
    assert made.made["pseudo-labels"].meta["figures"]["positives"] == {}
    assert made.made["pre-trained"].meta["examples"]["queries"] > 0


def test_only_what_is_wanted_and_what_it_builds_on_is_made(unlabelled_dataset, tiny_checkpoint, tmp_path):
    recipe = shrunk("rocketqa", tiny_checkpoint, tmp_path)
    made = run_encoder_recipe(recipe, tmp_path / "out", data=unlabelled_dataset, only=["step-3"])
    assert list(made.made) == ["step-1", "negatives", "dev-negatives", "cross-encoder", "denoised", "step-3"]
    with pytest.raises(InputError, match=r"no stage 'step-5'\. Did you mean 'step-"):
        read_encoder_recipe(recipe).only(["step-5"])


def test_a_share_of_the_queries_can_be_left_for_what_comes_after(tiny_dataset, tiny_checkpoint, tmp_path):
    recipe = shrunk("dpr", tiny_checkpoint, tmp_path)
    for small in (False, True):
        out = tmp_path / f"out-{small}"
        run_encoder_recipe(recipe, out, data=tiny_dataset, small=small, query_share=0.4)
        known = read_learned_from(out / "dpr")
        assert known == {query for query in Dataset.open(tiny_dataset).split("train") if in_share(query, 0.4)}
        assert read_learned_from(out / "dpr-features") == known
    with pytest.raises(InputError, match="query_share"):
        run_encoder_recipe(recipe, tmp_path / "none", data=tiny_dataset, query_share=0.0)


def test_a_share_of_the_queries_replaces_that_of_every_stage(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(
        'name = "w"\n[[stages]]\nname = "a"\nkind = "encoder"\nexamples = ["labels"]\n'
        "settings = { query_share = 0.5 }\nsmall = { query_share = 0.6 }\n",
        encoding="utf-8",
    )
    recipe = read_encoder_recipe(file)
    assert [recipe.settings_of(recipe.stages[0], small).query_share for small in (False, True)] == [0.5, 0.6]
    shared = recipe.learning_from(0.4)
    assert [shared.settings_of(shared.stages[0], small).query_share for small in (False, True)] == [0.4, 0.4]


@pytest.mark.parametrize("method", sorted(ENCODERS))
def test_a_methods_recipe_is_whole_with_and_without_its_settings_for_small_data(method):
    recipe = read_encoder_recipe(method)
    encoders = [stage for stage in recipe.stages if stage.kind == "encoder"]
    for small in (False, True):
        assert all(recipe.settings_of(stage, small).epochs >= 1 for stage in encoders)
    assert all(recipe.settings_of(stage, True).epochs < 10 for stage in encoders)


def test_the_papers_numbers_are_the_defaults():
    rocketqa, pair, dcsr = (read_encoder_recipe(name) for name in ("rocketqa", "pair", "dcsr"))
    stage = {stage.name: stage for recipe in (rocketqa, pair, dcsr) for stage in recipe.stages}
    third = rocketqa.settings_of(stage["step-3"], False)
    assert (third.learning_rate, third.warmup, third.shared, third.pooling) == (3e-5, 0.1, False, "cls")
    pretraining = pair.settings_of(stage["pre-trained"], False)
    assert (pretraining.loss, pretraining.alpha, pretraining.shared, pretraining.hard_negatives) == (
        "pair",
        0.1,
        True,
        4,
    )
    assert pair.settings_of(stage["pair"], False).loss == "contrastive"
    sentences = dcsr.settings_of(stage["dcsr"], False)
    assert (sentences.learning_rate, sentences.epochs, sentences.in_passage) == (2e-5, 40, 1)
    assert dcsr.encoder_settings(False).sentences == "token"


_LATE = "[encoder]\nlate_interaction = 8\n"
_ONE = '[[stages]]\nname = "a"\nkind = "encoder"\nexamples = ["labels"]\n'
_NEXT = '[[stages]]\nname = "b"\nkind = "encoder"\nexamples = ["labels"]\nstart = "a"\n'


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('[[stages]]\nname = "a"\nkind = "encoder"\nexamples = ["b"]', "examples names 'b'"),
        ('[[stages]]\nname = "a"\nkind = "encoder"', "needs examples"),
        (
            '[[stages]]\nname = "a"\nkind = "encoder"\nexamples = ["labels"]\nencoder = { sparse = true }\n'
            '[[stages]]\nname = "b"\nkind = "encoder"\nexamples = ["labels"]\nstart = "a"\n'
            '[[stages]]\nname = "c"\nkind = "negatives"\nby = "b"',
            "'b' is a sparse encoder, and by needs vectors",
        ),
        (f"{_LATE}{_ONE}{_NEXT}settings = {{ loss = 'pair' }}", "'b': late interaction has several vectors per text"),
        (f"{_ONE}settings = {{ loss = 'kl' }}", "'a': loss = kl needs the cross-encoder's probabilities"),
        (f"[train]\nshared = false\n{_ONE}{_NEXT}settings = {{ shared = true }}", "'b' shares weights, and 'a'"),
        ('[[stages]]\nname = "a"\nkind = "denoise"\nexamples = ["a"]\ncross_encoder = "x"', "is no earlier stage"),
        ('[[stages]]\nname = "labels"\nkind = "negatives"', "'labels': the name is taken"),
        ('[[stages]]\nname = "a"\nkind = "negatives"\nsettings = { topk = 3 }', "unknown key 'topk'. Did you mean"),
        ('[train]\nepoch = 3\n[[stages]]\nname = "a"\nkind = "encoder"\nexamples = ["labels"]', "unknown key 'epoch'"),
        (
            '[compare]\nfuse = "rrf"\nbaselines = false\n[[stages]]\nname = "a"\nkind = "negatives"',
            "does not use baselines, fuse: leave it out",
        ),
        (
            '[denoise]\npositive_threshold = 0.1\nnegative_threshold = 0.9\n[[stages]]\nname = "a"\n'
            'kind = "negatives"\n[[stages]]\nname = "b"\nkind = "denoise"\nexamples = ["a"]\ncross_encoder = "x"',
            "negative_threshold = 0.9 must be below",
        ),
    ],
)
def test_a_recipe_that_cannot_be_run_is_refused_before_anything_runs(wrong, said, tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(f'name = "wrong"\n{wrong}\n', encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read_encoder_recipe(file)
    assert said in str(refused.value)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"compare": '[compare]\nsplit = "dev"\n'}, "split 'dev' is the dev split"),
        ({"compare": '[compare]\nsplit = "train"\n'}, "split 'train' trains the encoders"),
        ({"settings": '{ split = "test" }'}, "mines split 'test': give 'train' or 'dev'"),
        ({"compare": '[compare]\nmeasures = ["RR10"]\n'}, "measure 'RR10'"),
        ({"kind": "pseudo-label", "more": 'cross_encoder = "start-of-none"'}, "every query of queries.jsonl is judged"),
    ],
)
def test_what_would_stop_it_after_hours_is_said_before_it_begins(change, said, tiny_dataset, tiny_checkpoint, tmp_path):
    stage = f'[[stages]]\nname = "a"\nkind = "{change.get("kind", "negatives")}"\n{change.get("more", "")}\n'
    encoder = f'[encoder]\ncheckpoint = "{tiny_checkpoint}"\n'
    text = f'name = "wrong"\n{change.get("compare", "")}{encoder}{stage}'
    if "settings" in change:
        text += f"settings = {change['settings']}\n"
    file = tmp_path / "recipe.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        run_encoder_recipe(file, tmp_path / "out", data=tiny_dataset)
    assert said in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("named", ["checkpoint", "query_checkpoint"])
def test_a_later_stages_checkpoint_that_is_nowhere_is_refused_before_any_work(
    named, tiny_dataset, tiny_checkpoint, tmp_path
):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'name = "w"\n[encoder]\ncheckpoint = "{tiny_checkpoint}"\n'
        '[[stages]]\nname = "a"\nkind = "negatives"\nby = "bm25"\n'
        f'[[stages]]\nname = "b"\nkind = "encoder"\nexamples = ["a"]\nencoder = {{ {named} = "none/of/it" }}\n',
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="none/of/it: no such directory"):
        run_encoder_recipe(recipe, tmp_path / "out", data=tiny_dataset)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("query", "split"), [("train-07", "train"), ("dev-03", "dev")])
def test_queries_that_are_learned_from_or_chosen_by_cannot_be_reported_on(
    query, split, tiny_dataset, tiny_checkpoint, tmp_path
):
    place = tmp_path / "dataset"
    shutil.copytree(tiny_dataset, place)
    with (place / "qrels" / "test.tsv").open("a") as file:
        file.write(f"{query}\tp07\t1\n")
    recipe = shrunk("dpr", tiny_checkpoint, tmp_path)
    with pytest.raises(InputError, match=f"such as '{query}', are both in split '{split}' and in 'test'"):
        run_encoder_recipe(recipe, tmp_path / "out", data=place)


def test_pseudo_labels_for_copies_of_judged_queries_alone_are_refused_before_any_work(
    tiny_dataset, tiny_checkpoint, tmp_path
):
    place = shutil.copytree(tiny_dataset, tmp_path / "dataset")
    with (place / "queries.jsonl").open("r+", encoding="utf-8") as file:
        copy = {**json.loads(file.readline()), "_id": "copy"}
        file.seek(0, 2)
        file.write(json.dumps(copy) + "\n")
    recipe = shrunk("rocketqa", tiny_checkpoint, tmp_path)
    with pytest.raises(InputError, match="is judged, or has the text of a judged one"):
        run_encoder_recipe(recipe, tmp_path / "out", data=place)
    assert not (tmp_path / "out").exists()


def test_settings_for_small_data_cannot_mine_the_reported_split(tiny_dataset, tiny_checkpoint, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'name = "w"\n[encoder]\ncheckpoint = "{tiny_checkpoint}"\n[small.negatives]\nsplit = "test"\n'
        '[[stages]]\nname = "a"\nkind = "negatives"\nby = "bm25"\n',
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="mines split 'test': give 'train' or 'dev'"):
        run_encoder_recipe(recipe, tmp_path / "out", data=tiny_dataset, small=True)


def test_negatives_are_mined_for_the_recipes_split(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('name = "w"\nsplit = "clicks"\n[[stages]]\nname = "a"\nkind = "negatives"\n', encoding="utf-8")
    recipe = read_encoder_recipe(file)
    assert recipe.settings_of(recipe.stages[0], False).split == "clicks"


def test_a_field_that_a_stage_does_not_use_is_refused(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('name = "w"\n[[stages]]\nname = "a"\nkind = "negatives"\nstart = "b"\n', encoding="utf-8")
    with pytest.raises(InputError, match="of kind negatives does not use start"):
        read_encoder_recipe(file)


def test_an_unknown_method_is_named_with_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'rocketqa'"):
        read_encoder_recipe("rocketqs")
