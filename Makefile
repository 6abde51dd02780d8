.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV ?= .venv-vllm
TINY_MOE := $(VLLM_VENV)/bin/python -m assets.tiny_moe
SHARED_DATA := $(or $(ELDR_SHARED_DATA),../shared/data)
RECORDED := assets/tiny_moe/trace.safetensors $(wildcard $(SHARED_DATA)/gpt-oss-20b)
# Where this is set, every start of every command compiles all its libraries anew: 10 s instead of 1.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo tour test test-vllm e2e e2e-vllm check docs bench tiny-moe clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

install: $(VENV)/.installed ## make the environment in .venv

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: install ## run control plane, router, dashboard and a simulated fleet under traffic; Ctrl-C ends all
	$(BIN)/eldr up --demo

tour: install ## from a trace to a prediction, on generated and recorded data; report in out/report.html
	$(BIN)/eldr demo --output out $(addprefix --trace ,$(RECORDED))

test: install ## run every test but the full story, warnings as errors
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 12 --ignore tests/e2e
	$(BIN)/pytest tests/e2e --durations 12  # by themselves: they run in real time

test-vllm: install ## run the plugin's tests inside real vLLM, in an environment of its own: 3.4 GB to fetch once
	.ci/make-vllm-env $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pytest tests/vllm --durations 6

e2e: install ## play the demo's whole story, 8 pairs, and hold it to its figures; wants two idle cores
	$(BIN)/pytest tests/e2e/test_story.py -m full_story -s

e2e-vllm: install ## real vLLM workers against one instance, whole; an environment of 3.4 GB, half an hour
	.ci/make-vllm-env $(VLLM_VENV)
	$(BIN)/pytest tests/e2e/real_vllm -m "full_vllm or not full_vllm" -s

check: install ## style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install ## write docs/cli.md from the commands
	$(BIN)/python -m controlplane.cli.reference > docs/cli.md

bench: install ## measure what fitting and routing cost, beside their targets
	$(BIN)/eldr bench fit --large
	$(BIN)/eldr bench route

tiny-moe: ## train the tiny real model anew, two seeds, and evaluate it: over an hour on two idle cores, never in CI
	.ci/make-vllm-env $(VLLM_VENV)
	$(TINY_MOE).build_corpus
	$(TINY_MOE).train --seed 1
	$(TINY_MOE).train --seed 2
	$(TINY_MOE).export out/tiny_moe/seed-1 assets/tiny_moe/checkpoint
	$(TINY_MOE).export out/tiny_moe/seed-2 out/tiny_moe/seed-2/checkpoint
	$(TINY_MOE).evaluate assets/tiny_moe/checkpoint out/tiny_moe/seed-2/checkpoint --output assets/tiny_moe/evaluation.json

clean: ## remove the environment and all output
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
