from gnnretrieval.data import Dataset
from gnnretrieval.encoders.dry_run import forecast_encoding
from gnnretrieval.graph.dry_run import forecast_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.shards import Sharding, forecast
from gnnretrieval.shards.forecast import Forecast, StageForecast, measure, spread


def stage(**given):
    its = {"name": "squaring", "unit": "numbers", "units": 1000, "shards": 10, "rate": 10.0, "measured": 50}
    return StageForecast(**(its | {"begin": 2.0, "shard_bytes": 4000} | given))


def test_by_hand_shards_are_done_in_whole_rounds():
    both = Forecast(stages=(stage(), stage(shards=2, begin=0.0)), result_bytes=2**21, worker="one of these")
    times = both.seconds_by_workers()
    assert times == {
        1: 2 + 100 + 100,
        2: 2 + 50 + 50,
        4: 2 + 30 + 50,  # 10 shards by 4 workers are 3 rounds of 10 s
        8: 2 + 20 + 50,
        10: 2 + 10 + 50,
    }
    text = both.to_text()
    assert "squaring: 1,000 numbers in 10 shards, 10 a second by one worker (50 measured)" in text
    assert "about 2.0 MiB, and 7.8 KiB for the shards" in text
    assert text.splitlines()[-1] == "a dry run: nothing was made"


def test_a_fast_rate_is_written_out_in_digits():
    assert "in 10 shards, 18,642 a second by one worker" in stage(rate=18_641.7).to_text()
    assert "in 10 shards, 0.25 a second by one worker" in stage(rate=0.25).to_text()


def test_a_measurement_takes_more_units_until_it_takes_long_enough(monkeypatch):
    now, done = [0.0], []

    def work(units):
        done.append(units)
        now[0] += units / 100

    monkeypatch.setattr(forecast.time, "perf_counter", lambda: now[0])
    found = measure(work, 10_000)
    assert found.units / found.seconds == 100.0
    assert forecast.SECONDS / 4 < found.seconds < forecast.SECONDS
    assert done[:2] == [32, 32]
    assert measure(work, 20).units == 20, "no more than there are"


def test_a_sample_is_spread_over_all():
    assert spread(3, 5) == [0, 1, 2]
    assert spread(10, 5) == [0, 2, 4, 6, 8]


def test_the_dry_runs_make_nothing_and_know_shards_and_bytes(tiny_dataset, tiny_features, tiny_settings, monkeypatch):
    monkeypatch.setattr(forecast, "SECONDS", 0.01)
    dataset = Dataset.open(tiny_dataset)
    sharding = Sharding(shards=3)
    its = forecast_encoding(dataset, tiny_settings.model_copy(update={"window": 16}), sharding)
    assert [one.units for one in its.stages] == [len(dataset.passage_ids), len(dataset.query_ids)]
    assert [one.shards for one in its.stages] == [3, 3]
    vectors = tiny_features.passages.nbytes + tiny_features.queries.nbytes
    assert sum(one.shard_bytes for one in its.stages) == vectors < its.result_bytes < 2 * vectors + 10_000
    of_sentences = tiny_settings.model_copy(update={"sentences": "mean"})
    by_sentence = forecast_encoding(dataset, of_sentences, sharding).stages[0]
    assert by_sentence.shard_bytes > 1.5 * its.stages[0].shard_bytes, "its sentences have vectors too"
    graph = forecast_graph(dataset, tiny_features, GraphSettings(k=3), sharding)
    (search,) = graph.stages
    assert search.units == len(dataset.passage_ids)
    assert search.rate > 0
    assert search.shard_bytes == 12 * 3 * search.shards * len(dataset.split("train"))
