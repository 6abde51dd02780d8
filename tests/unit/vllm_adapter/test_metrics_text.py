from eldr_runtime.vllm_adapter.metrics_text import read_engine_metrics

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 1.25e+03
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.5
vllm:request_success_total{finished_reason="stop",model_name="tiny"} 9.0
eldr_decode_steps_total 10
eldr_decode_batch_total 35
eldr_distinct_experts_total{layer="1"} 60
eldr_distinct_experts_total{layer="0"} 50
process_open_fds 12
"""


def test_a_page_by_hand() -> None:
    metrics = read_engine_metrics(PAGE)
    assert (metrics.n_running, metrics.n_waiting, metrics.generation_tokens) == (3.0, 1.0, 1250.0)
    assert metrics.kv_cache_usage_share == 0.5
    assert (metrics.n_steps, metrics.batch_sum, metrics.distinct_experts_sum) == (10.0, 35.0, (50.0, 60.0))


def test_engines_of_one_worker_add_up() -> None:
    page = 'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
    assert read_engine_metrics(page).n_running == 7.0


def test_what_is_missing_or_no_number_is_none_and_never_zero() -> None:
    page = "vllm:num_requests_running NaN\nvllm:num_requests_waiting soon\neldr_decode_steps_total\n"
    metrics = read_engine_metrics(page)
    assert metrics.n_running is None
    assert metrics.n_waiting is None
    assert metrics.n_steps is None
    assert read_engine_metrics("").distinct_experts_sum is None


def test_layers_with_a_gap_are_not_used() -> None:
    page = 'eldr_distinct_experts_total{layer="0"} 5\neldr_distinct_experts_total{layer="2"} 6\n'
    assert read_engine_metrics(page).distinct_experts_sum is None


def test_a_label_with_a_brace_does_not_mislead() -> None:
    assert read_engine_metrics('vllm:num_requests_running{model_name="a}b"} 2').n_running == 2.0
