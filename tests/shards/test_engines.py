import os
import subprocess
import sys
from pathlib import Path

import pytest
import toy_stage
from toy_stage import Squares

from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.shards import Sharding, Together, one_shard, run_stage

SQUARES = [number**2 for number in range(20)]


def test_one_worker_is_this_process_and_a_shard_with_a_file_is_not_run_again(tmp_path):
    stage = Squares(tmp_path)
    run_stage(one_shard(stage, 3), Sharding(shards=1))
    assert [path.name for path in tmp_path.glob("*.npy")] == ["squares-00004-of-00005.npy"]
    run_stage(stage, Sharding(shards=5))
    run_stage(stage, Sharding(shards=5))
    assert stage.merged() == SQUARES
    assert [stage.runs(number) for number in range(5)] == [1] * 5


def test_shards_of_two_stages_run_together(tmp_path):
    one, other = (Squares(tmp_path / name, count=2) for name in ("one", "other"))
    for stage in (one, other):
        stage.directory.mkdir()
    members = ((one, 0), (one, 1), (other, 0), (other, 1))
    run_stage(Together("squaring", "numbers", "cpu", members), Sharding(shards=2))
    assert one.merged() == other.merged() == SQUARES


def test_an_error_leaves_the_shards_that_are_done(tmp_path):
    stage = Squares(tmp_path, refused=(2,))
    with pytest.raises(InputError, match="cannot be squared"):
        run_stage(stage, Sharding(shards=5))
    assert [stage.path(number).is_file() for number in range(5)] == [True, True, False, False, False]


SCRIPT = """
import torch  # as a user's script does; each worker runs these lines before its own
from pathlib import Path
from toy_stage import Squares
from gnnretrieval.shards import Sharding, run_stage

class Threads(Squares):
    def run(self, number):
        super().run(number)
        self.directory.joinpath(f"threads-{number}").write_text(str(torch.get_num_threads()))

if __name__ == "__main__":
    run_stage(Threads(Path("."), count=2), Sharding(shards=2, workers=64))
"""


def test_workers_share_the_processors_even_if_the_script_has_imported_torch(tmp_path):
    tmp_path.joinpath("script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(toy_stage.__file__).parent), "OMP_NUM_THREADS": "5"}
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment, check=True)
    threads = max(1, (os.cpu_count() or 1) // 2)
    assert [tmp_path.joinpath(f"threads-{number}").read_text() for number in range(2)] == [str(threads)] * 2


def test_a_killed_worker_s_shard_is_run_again(tmp_path):
    stage = Squares(tmp_path, killed=(1,))
    run_stage(stage, Sharding(shards=5, workers=2))
    assert stage.merged() == SQUARES
    assert stage.runs(1) == 2
    assert sum(stage.runs(number) for number in range(5)) <= 5 + 2  # one shard a worker at most is done again


def test_a_shard_that_always_kills_its_worker_ends_in_a_sentence_and_the_others_are_kept(tmp_path):
    stage = Squares(tmp_path, count=2, always_killed=(1,))
    with pytest.raises(GnnRetrievalError, match=r"workers were killed 3 times in a row.*fewer --workers"):
        run_stage(stage, Sharding(shards=2, workers=2))
    assert stage.path(0).is_file()


def test_an_error_in_a_worker_is_the_same_sentence(tmp_path):
    with pytest.raises(GnnRetrievalError, match="this shard cannot be squared"):
        run_stage(Squares(tmp_path, refused=(0, 1, 2, 3, 4)), Sharding(shards=5, workers=2))


def test_ray_runs_shards_again_whose_worker_was_killed_and_passes_errors_on(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs ray: pip install 'gnnretrieval[ray]'")
    of_stage = str(Path(toy_stage.__file__).parent)  # for the workers, which import it
    ray.init(address="local", num_cpus=2, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": of_stage}})
    try:
        stage = Squares(tmp_path / "one", killed=(1,))
        stage.directory.mkdir()
        run_stage(stage, Sharding(shards=5, engine="ray"))
        assert (stage.merged(), stage.runs(1)) == (SQUARES, 2)
        refused = Squares(tmp_path / "two", refused=(0,))
        refused.directory.mkdir()
        with pytest.raises(GnnRetrievalError, match="this shard cannot be squared"):
            run_stage(refused, Sharding(shards=5, engine="ray", workers=1))
        assert ray.is_initialized()  # a cluster that the caller joined stays joined
    finally:
        ray.shutdown()


def test_a_ray_cluster_that_is_not_there_is_named(tmp_path):
    pytest.importorskip("ray", reason="needs ray: pip install 'gnnretrieval[ray]'")
    with pytest.raises(GnnRetrievalError, match=r"the Ray cluster auto cannot be used .*ray start --head"):
        run_stage(Squares(tmp_path), Sharding(shards=5, engine="ray", address="auto"))
