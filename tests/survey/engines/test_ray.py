"""The Ray engine runs the same items on a cluster of two machines, and records the same bytes."""

import pytest
import ray
from ray.cluster_utils import Cluster

from survey.test_survey_models import named
from torchport.errors import SurveyError
from torchport.survey import SurveySettings, run_survey
from torchport.survey.engines import LocalEngine, RayEngine

NAMES = named("works", "raises", "kills_itself", "branches")


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes on this machine."""
    # Ray's workers have a raised niceness by default: next to other tests they would wait for minutes.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    small = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=small)
    made.add_node(num_cpus=1, object_store_memory=100_000_000)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def records(output):
    return {path.name: path.read_bytes() for path in (output / "raw").iterdir()}


def without_measures(rows):
    return [(row.model, row.status, row.error, row.forward_ops, row.backward_ops, row.raw) for row in rows]


def test_a_cluster_of_two_nodes_gives_what_this_machine_gives(cluster, tmp_path, request):
    engine = RayEngine(address=cluster.address)
    there = run_survey(NAMES, output=tmp_path / "ray", settings=SurveySettings(backward=True), engine=engine)
    request.getfixturevalue("forked_python")  # only here: Ray starts its own processes
    here = run_survey(
        NAMES, output=tmp_path / "local", settings=SurveySettings(backward=True), engine=LocalEngine(1)
    )
    assert [row.status for row in there] == ["ok", "raised", "crashed", "ok"]
    assert without_measures(there) == without_measures(here)
    assert records(tmp_path / "ray") == records(tmp_path / "local")
    assert len(records(tmp_path / "ray")) == 2
    assert not ray.is_initialized()


def test_a_cluster_that_cannot_be_reached_is_one_message(tmp_path):
    with pytest.raises(SurveyError, match="the Ray cluster cannot be reached"):
        run_survey(NAMES, output=tmp_path, engine=RayEngine(address="localhost:1"))
