# make setup        creates .venv and installs torchport with everything its tests need
# make demo         ResNet-18 and BERT on the built-in targets, a results table, out/demo/index.html
# make test         every check and every test
# make conformance  the long sweeps
# make benchmarks   times against peers, and what torchport adds; wants a quiet machine
# make format       lets ruff format and mend the code

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export PYTHONDONTWRITEBYTECODE := 1
export HF_HUB_OFFLINE := 1

.PHONY: setup demo test check conformance benchmarks format clean

setup: $(STAMP)

# torch comes first and by exact version: another package's open range would take a CUDA build.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch setuptools
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e ".[test]"
	touch $@

demo: setup
	$(BIN)/torchport bench torchvision:resnet18 hf:bert-base-uncased --no-weights \
	  --target host --target openvino -o out/demo
	$(BIN)/torchport report out/demo --html out/demo/index.html

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/pytest -n 2 --dist worksteal -m "not conformance"

conformance: setup
	$(BIN)/pytest -n 2 --dist worksteal -m conformance

benchmarks: setup
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e ".[benchmarks]"
	# All run, and any one's failure is the target's.
	status=0; for part in inference overhead trace; do $(BIN)/python benchmarks/$$part.py || status=1; done; exit $$status

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) out build dist src/*.egg-info
