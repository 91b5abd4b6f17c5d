"""Scoring by actors of a Ray cluster of two nodes, which the tests start and of which they kill one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DependencyError, ScoringError
from calibudget.scoring.batches import measure_all
from calibudget.scoring.fake import FakeScorer
from calibudget.scoring.scorer import ScorerSettings
from calibudget.scoring.settings import ScorerPool, make_scorer
from calibudget.workers import _Actor
from tests.scoring.conftest import items_of

FAKE = ScorerSettings(kind="fake", device="cpu")


def test_without_ray_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DependencyError, match=r"calibudget\[ray\]"):
        ScorerPool(FAKE, workers=1, engine="ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and a second node, each with room for one worker."""
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    started.second = started.add_node(num_cpus=1)  # type: ignore[attr-defined]
    yield started
    started.shutdown()  # type: ignore[no-untyped-call]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_leftovers")
class TestCluster:
    def test_actors_give_the_same_bits_and_errors(self, cluster: Any, tiny_directory: Path, tmp_path: Path) -> None:
        settings = ScorerSettings(model=str(tiny_directory), device="cpu", batch_tokens=400)
        items, path, stop = items_of(6), tmp_path / "journal", signal.getsignal(signal.SIGTERM)
        with ScorerPool(settings, workers=2, engine="ray", address=cluster.address) as pool:
            assert len(pool.batches(items)) > 2
            found = measure_all(pool, items, journal_path=path)
            described = dict(pool.describe())
            assert signal.getsignal(signal.SIGTERM) == stop  # Ray's own would leave with another exit code
        scorer = make_scorer(settings)
        assert found == measure_all(scorer, items)
        assert described == scorer.describe()
        assert measure_all(scorer, items, journal_path=path) == found  # the journal is the single scorer's too
        wrong = ScorerSettings(model="no/such/dir", device="cpu")
        with (
            ScorerPool(wrong, workers=1, engine="ray", address=cluster.address) as pool,
            pytest.raises(ScoringError, match="no such directory"),
        ):
            pool.describe()

    def test_a_cluster_without_room_is_told(self, cluster: Any) -> None:
        import ray

        ray.init(address=cluster.address, log_to_driver=False)
        settings = ScorerSettings(kind="fake", device="cuda")
        with (
            ScorerPool(settings, workers=1, engine="ray", patience=1.0) as pool,
            pytest.raises(ScoringError, match="no room for a worker"),
        ):
            pool.describe()
        assert ray.is_initialized()  # a connection that was there before stays
        ray.shutdown()

    def test_each_actor_has_gpus_of_its_own(self, cluster: Any) -> None:
        """Ray shares out what a node says it has, here GPUs that aren't there."""
        import ray

        node = cluster.add_node(num_cpus=3, num_gpus=5)
        settings = ScorerSettings(kind="fake", device="cuda", gpus=2)
        with ScorerPool(settings, workers=3, engine="ray", address=cluster.address) as pool:
            for reply in [pool.submit(None) for _ in range(2)]:
                reply.result()
            actors = [worker._actor for worker in pool._workers.values() if worker.lacks(1000.0) == ""]  # type: ignore[union-attr]
            seen = [ray.get(one.__ray_call__.remote(lambda _: os.environ["CUDA_VISIBLE_DEVICES"])) for one in actors]
        cluster.remove_node(node)
        cards = [card for own in seen for card in own.split(",")]
        assert [len(own.split(",")) for own in seen] == [2, 2]
        assert len(set(cards)) == 4

    def test_a_killed_node_costs_its_batches_only(self, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        items, sent, ask = items_of(96), [], _Actor.ask

        def noting(self: _Actor, request: Any, folder: Path | None) -> Any:
            sent.append(request)
            return ask(self, request, folder)

        monkeypatch.setattr(_Actor, "ask", noting)
        settings = ScorerSettings(kind="fake", device="cpu", seconds=0.5)
        with ScorerPool(settings, workers=2, engine="ray", address=cluster.address) as pool:

            def kill_one(done: Any, total: Any) -> None:
                if done == 32:
                    cluster.remove_node(cluster.second, allow_graceful=False)

            assert measure_all(pool, items, progress=kill_one) == measure_all(FakeScorer(), items)
        batches = [request["items"][0]["record_id"] for request in sent if request.get("do") == "measurements"]
        assert len(set(batches)) == 12
        assert len(batches) <= 13
