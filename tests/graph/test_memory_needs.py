from gnnretrieval.graph.inspection.memory_needs import TrainingShape, memory_needs
from gnnretrieval.training.gnn import embedding
from gnnretrieval.training.gnn.settings import TrainSettings

SHAPE = {"num_passages": 100_000, "num_queries": 50_000, "k": 5, "dimension": 384, "edge_dim": 3}


def needs(**changes):
    return memory_needs(**{"queries_per_candidate": 10.0, **SHAPE, **changes})


def test_the_defaults_are_those_of_training_and_embedding():
    shape, settings = TrainingShape(), TrainSettings()
    assert shape.batch_size == settings.batch_size
    assert shape.hard_negatives == settings.hard_negatives
    assert shape.mask_ratio == settings.mask_ratio
    assert (shape.block, shape.budget) == (embedding._BLOCK, embedding.MEMORY)


def test_scoring_against_every_passage_holds_its_vectors_many_times_over():
    assert needs().training_corpus > 24 * 100_000 * 384 * 4
    assert needs(num_passages=200_000).training_corpus > 1.6 * needs().training_corpus
    assert needs().training_batch < needs().training_corpus / 5


def test_a_batch_s_memory_follows_its_size_and_its_neighbourhood_not_the_corpus():
    large = needs(num_passages=10_000_000, num_queries=500_000).training_batch
    assert large < 3 * 2**30
    bigger = memory_needs(**SHAPE, queries_per_candidate=10.0, shape=TrainingShape(batch_size=1024))
    assert bigger.training_batch > needs().training_batch
    assert needs(queries_per_candidate=400.0).training_batch > needs().training_batch


def test_embedding_keeps_to_its_budget_whatever_the_scale():
    whole = needs(num_passages=8_841_823, num_queries=502_939, k=25, dimension=768, edge_dim=768)
    assert whole.embedding <= 2**30
    assert needs().embedding > 4 * 50_000 * 384  # the interactive queries are in memory


def test_every_figure_grows_with_the_width():
    assert all(wide > narrow for wide, narrow in zip(needs(dimension=768), needs(), strict=True))
    assert needs(edge_dim=768).training_batch > needs().training_batch
