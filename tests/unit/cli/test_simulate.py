import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eldr_runtime.cli.simulate import parse_policies, simulate_command
from eldr_runtime.errors import InvalidConfig, InvalidValue
from eldr_runtime.policies.choice import PolicyName

SMALL = [
    *("--preset", "gpt-oss-20b-mi300x", "--workers", "4", "--rate", "80", "--requests", "500"),
    *("--prompt-tokens", "100", "--output-tokens", "40", "--seeds", "2", "--calibration-requests", "120"),
]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(simulate_command, [*SMALL, *arguments])


@pytest.fixture(scope="module")
def document() -> dict[str, object]:
    result = run("--json")
    assert result.exit_code == 0
    return json.loads(result.stdout)


class TestOutput:
    def test_json_has_every_policy_with_its_interval(self, document):
        names = [row["policy"] for row in document["policies"]]
        assert names == ["eldr", "eldr_capped", "join_shortest_queue", "round_robin"]
        for row in document["policies"]:
            change = row["tpot_median_change"]
            low, high = change["interval"]
            assert low <= change["mean_percent"] <= high
            assert len(change["by_seed"]) == 2
        assert (document["interval_method"], document["confidence"]) == ("paired over seeds, Student t", 0.95)

    def test_json_says_what_it_rests_on(self, document):
        assert document["calibration"]["n_requests"] == 120
        assert document["calibration"]["n_centroids"] == 4
        assert document["calibration"]["seed"] not in document["seeds"]
        assert "assumed, not measured" in document["preset"]["source"]
        assert document["workload"]["same_topic_reduction_percent_at_batch_16"] > 0

    def test_the_table_is_on_stdout_and_the_notes_on_stderr(self):
        result = run("--policies", "round_robin", "--seeds", "1")
        assert "round_robin" in result.stdout
        assert "join_shortest_queue" in result.stdout  # the baseline is always compared
        assert "no interval" in result.stderr
        assert "assumed" in result.stderr

    def test_the_report_is_written_whole(self, tmp_path: Path):
        path = tmp_path / "report.html"
        assert run("--policies", "random", "--seeds", "1", "--report", str(path), "--json").exit_code == 0
        html = path.read_text()
        assert "Balanced traffic, 80 requests/s" in html
        assert "What this rests on" in html


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--policies", "eldr,fastest"], "policies is 'fastest'; must be among eldr, eldr_capped"),
            (["--rate", "0"], "rate_per_second is 0.0; must be a number above 0"),
            (["--rate", "nan"], "rate_per_second is nan; must be a number above 0"),
            (["--workers", "0"], "n_decode_workers is 0; must be an integer from 1"),
            (["--prefill-workers", "0"], "n_prefill_workers is 0; must be an integer from 1"),
            (["--requests", "10"], "n_requests is 10; must be at least 100"),
            (["--seeds", "0"], "n_seeds is 0; must be an integer from 1"),
            (
                ["--calibration-requests", "3"],
                "calibration_requests is 3; must be at least one for each of 4",
            ),
            (["--topics", "0"], "n_topics is 0; must be an integer from 1"),
            (["--prompt-tokens", "0"], "prompt_tokens is 0; must be an integer from 1"),
            (
                ["--policies", "eldr", "--load-cap", "1.5"],
                "load_cap is 1.5; must be absent unless eldr_capped",
            ),
            (["--tau", "3"], "tau is 3.0; must be from 0 to 2"),
        ],
    )
    def test_field_value_and_limit(self, arguments, message):
        error = run(*arguments).exception
        assert isinstance(error, InvalidValue)
        assert message in str(error)

    @pytest.mark.parametrize("option", ["--workload", "--preset"])
    def test_unknown_names_list_the_known(self, option):
        result = run(option, "nothing")
        assert result.exit_code == 2
        assert "'nothing' is not one of" in result.stderr

    def test_a_load_cap_below_one(self):
        with pytest.raises(InvalidConfig, match=r"load_cap is 0\.5"):
            parse_policies("eldr_capped", tau=0.1, load_cap=0.5)


def test_the_cap_reaches_the_policy_that_has_one():
    policies = parse_policies(" eldr, eldr_capped", tau=0.3, load_cap=2.0)
    assert [settings.policy for settings in policies] == [
        PolicyName.ELDR,
        PolicyName.ELDR_CAPPED,
        PolicyName.JOIN_SHORTEST_QUEUE,
    ]
    assert [settings.load_cap for settings in policies] == [None, 2.0, None]
    assert policies[0].tau == 0.3
