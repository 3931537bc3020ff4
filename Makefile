# make setup        creates .venv and installs torchport, compat/ and everything their tests need; with CHROMIUM=1, and
#                   as root on Debian, also the browser: without it, its tests are skipped
# make demo         ResNet-18 and BERT on the built-in targets, a results table, out/demo/index.html
# make test         every check and every test
# make conformance  the long sweeps, which take hours; resumes if interrupted (out/conformance.jsonl)
# make ttnn-table   for an hour, runs rows of docs/results/ttnn.md that are not done yet, on the ttnn target
# make ttnn-mock    Tenstorrent's library with a mock chip, for the tests; installs a linker with apt-get
# make results      measures the documents' results tables again, on every target that works here, and fills them in
# make site         the documentation as a site, in out/site
# make benchmarks   times torchport against peers, and its overhead; needs a quiet machine
# make format       formats the code with ruff, and fixes what ruff can fix

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export PYTHONDONTWRITEBYTECODE := 1
export HF_HUB_OFFLINE := 1

.PHONY: setup demo test check conformance ttnn-table ttnn-mock results site benchmarks format clean

setup: $(STAMP)

# torch comes first, pinned to an exact version: another package's open range would pull in a CUDA build.
$(STAMP): pyproject.toml constraints.txt compat/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch setuptools
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e ".[test]" -e compat
	@if [ -n "$(CHROMIUM)" ] && ! command -v chromium > /dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get install -y chromium || echo "no Chromium: the tests of the page will be skipped"; fi
	touch $@

demo: setup
	$(BIN)/torchport bench torchvision:resnet18 hf:bert-base-uncased --no-weights \
	  --target host --target openvino --target ttnn -o out/demo --html out/demo/index.html

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two processes of one thread each: two processes of two threads each would wait for one another.
test: check
	$(BIN)/python -m compileall -q src compat/src
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m "not conformance"

conformance: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --timeout 3600 -m conformance --resume out/conformance.jsonl

ttnn-table: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/ttnn_table/run.py

ttnn-mock: setup
	$(BIN)/python tests/targets/ttnn/mock_chip/environment.py

results: setup
	$(BIN)/python benchmarks/results.py --rerun

site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

benchmarks: setup
	# Run all parts; the target fails if any part fails.
	status=0; for part in inference overhead analysis simulator trace package survey aggregation report_page; do \
	  $(BIN)/python benchmarks/$$part.py || status=1; done; exit $$status

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) out build dist src/*.egg-info compat/build compat/dist compat/src/*.egg-info
