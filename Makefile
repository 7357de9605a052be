# The whole project is driven from here; every target builds what it needs, in a fresh clone too.
# Needed beforehand: make, a Python that pyproject.toml allows as python3 (or PYTHON=/path/to/one), and a package index
# that pip can reach.

PYTHON ?= python3
OLDEST := $(shell sed -n 's/^requires-python = ">=\(.*\)"$$/\1/p' pyproject.toml)
COMMA := ,
# Another Python has an environment of its own: make VENV=.venv-3.13 PYTHON=python3.13 test
VENV := .venv
BIN := $(VENV)/bin
# Newer than everything it depends on exactly when the environment is complete: an install that broke off is redone.
READY := $(VENV)/.ready

DOCUMENTS ?= $(wildcard docs/tutorial.md docs/how-to/*.md)

PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready

PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip

# Every file that pip installs has a hash in REQUIREMENTS, except torch: which of its files is right depends on the
# machine. From the default index, Linux gets the one for CUDA, with 3 GB of libraries. Without a GPU, name the index
# of the wheels for CPUs, which torch's installation page shows: make TORCH_OPTIONS='--index-url ADDRESS'
REQUIREMENTS := requirements-dev.txt
TORCH := torch==2.13.0
TORCH_OPTIONS ?=
CUDA := bindings pathfinder toolkit
NVIDIA := cublas cuda-cupti cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 \
	nccl-cu13 nvjitlink nvshmem-cu13 nvtx

# The tests start many processes of kvproof: without compiled modules, each of them compiles every module again.
unexport PYTHONDONTWRITEBYTECODE
# A machine may set it, and most do not: what waits in a buffer must not be lost, or end up elsewhere.
unexport PYTHONUNBUFFERED

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: verify test soak soak-memory faults corpus proofs-accept proofs-record docs docs-commands docs-reference pictures browser-test check-certificates lint format typecheck bench engines-matrix false-alarms engines-test engines-check ray-test everything lock install-test peers clean help .venv

help: ## list the targets
	@awk -F ':.*## ' '/^[.a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

verify: $(READY) ## prove, explore, walk and report on kvproof's own block manager
	@mkdir -p build/verify
	$(BIN)/kvproof verify --out build/verify --json build/verify/result.json

# mypy runs beside the tests, and its report comes after theirs. The order of the files is that of tests/conftest.py. On
# two cores three processes are faster than two: some tests wait for a time limit.
test: $(READY) ## lint, types and the test suite: what CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build
	$(BIN)/mypy >build/mypy.log 2>&1 & types=$$!; \
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder; code=$$?; \
	wait $$types || code=1; cat build/mypy.log; exit $$code

soak: $(READY) ## what takes minutes: two solvers, every seed, every fault of the rules
	$(BIN)/kvproof prove --second-solver
	$(BIN)/pytest -m long

SOAK ?= kvproof
soak-memory: $(READY) ## an hour of hunting each subject of SOAK: no finding, no growth of memory
	for subject in $(SOAK); do $(BIN)/python -m tests.attacks.soak "$$subject" --out "build/soak/$$subject" || exit 1; done

faults: $(READY) ## plant the catalogue of faults in block managers; continues a run that was stopped
	@mkdir -p build
	$(BIN)/kvproof faults --of impl --out build/faults.sqlite --resume

corpus: $(READY) ## show each fault of the corpus both ways, then hunt all of them; continues a run that was stopped
	$(BIN)/kvproof corpus reproduce --workers 2
	$(BIN)/kvproof corpus run --workers 2 --out build/corpus --json build/corpus/score.json

proofs-accept: $(READY) ## pin what kvproof prove proves and assumes today; review the diff
	$(BIN)/python -m kvproof.models.pin

docs: $(READY) ## build the documentation site in build/site, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-commands: $(READY) ## run what the documents show, and print what they print otherwise
	$(BIN)/python -m docs.generate.commands $(DOCUMENTS)

docs-reference: $(READY) ## write docs/adapter-reference.md from the protocol, and docs/reference/python.md
	$(BIN)/python -m kvproof.check.protocol.reference >docs/adapter-reference.md
	$(BIN)/python -m docs.generate.reference >docs/reference/python.md

pictures: $(READY) ## draw docs/pictures from runs of today; needs Chromium
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m docs.pictures.draw docs/pictures

browser-test: $(READY) ## look at the pages in Chromium
	$(BIN)/pytest -m browser

proofs-record: $(READY) ## prove everything with both solvers, and write the record that a release carries
	$(BIN)/kvproof prove --second-solver --record

CERTIFICATES := build/certificates
check-certificates: $(READY) ## have ethos check the proofs of kvproof prove --certificates build/certificates
	$(BIN)/python -m kvproof.models.certificates $(CERTIFICATES)

lint: $(READY) ## ruff, nothing changed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## ruff, files changed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(READY) ## mypy, strict; and the types of z3 and triton against the packages themselves
	$(BIN)/mypy
	$(BIN)/stubtest z3 triton --ignore-missing-stub --concise \
		--mypy-config-file typings/stubtest.ini --allowlist typings/stubtest-allowlist.txt

bench: $(READY) ## side-by-side speed; prints ratios
	$(BIN)/python -m benchmarks

engines-matrix: $(READY) ## run every engine release that docs/engines.md claims, and put their rows into docs/engine-runs.md; can be resumed
	$(BIN)/python -m benchmarks.engines_matrix $(MATRIX)

false-alarms: $(READY) ## 20,000,000 operations on subjects that are believed to be correct; can be resumed
	$(BIN)/python -m benchmarks.false_alarms

# Neither needs kvproof's environment: a GPU machine without a network has its own Python with torch.
GPU ?= cuda
gpu: ## check the data plane on a GPU, in less than nine minutes; GPU=simulated tries it without one; RESUME=1
	$(PYTHON) -m benchmarks.gpu --device $(GPU) $(if $(RESUME),--resume) $(if $(ENGINES),--engines $(ENGINES)) $(if $(ARCHIVE),--archive $(ARCHIVE))

gpu-carry: ## fetch the packages that `make gpu` needs on a machine without a network; PYTHONS="3.13" for another Python
	$(PYTHON) -m benchmarks.gpu carry $(if $(PYTHONS),--python $(PYTHONS))

engines-check: $(READY) ## hunt newer releases of engines beside those that were judged; build/ageing/ageing.md says what differs
	$(BIN)/kvproof engines check --out build/ageing

# A process can import one release, so each file has its own.
engines-test: $(READY) ## the tests that download engine releases
	grep -rlE 'mark\.engine' tests --include='test_*.py' | sort | xargs -n 1 $(BIN)/pytest -q -m engine

RAY := 'ray[default]>=2.40'
ray-test: $(READY) ## workers on Ray, also with nodes that are killed; installs the extra `ray`
	$(PIP) install --quiet $(RAY)
	$(BIN)/pytest -m ray

everything: $(READY) ## every marked suite to its end, and one table; goes on where it was stopped; SUITES="long ray" SECONDS=3000 WORKERS=3
	$(PIP) install --quiet $(RAY)
	$(BIN)/python -m tests.everything $(SUITES) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(ONLY),--only $(ONLY))

install-test: $(READY) ## install the wheel in an empty environment, and do there what the README does
	$(BIN)/pytest -m install -rP tests/test_install.py

peers: $(READY) $(PEERS_READY) ## vLLM 0.9.2's own unit tests, on vLLM and on kvproof's block manager
	$(BIN)/python tests/peers/run.py --python $(PEERS)/bin/python

lock: ## renew requirements-dev.txt, for every Python that kvproof supports; needs uv
	echo '$(TORCH)' | uv pip compile --universal --python-version $(OLDEST) --generate-hashes --no-annotate --upgrade \
		--custom-compile-command 'make lock' --extra dev --constraint - $(addprefix --no-emit-package=,torch \
		$(CUDA:%=cuda-%) $(NVIDIA:%=nvidia-%)) pyproject.toml --output-file $(REQUIREMENTS)

clean: ## remove the environment and everything a run leaves behind
	rm -rf .venv .venv-* build dist .hypothesis .kvproof .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv: $(READY) ## make the virtual environment

$(READY): pyproject.toml $(REQUIREMENTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < ($(subst .,$(COMMA),$(OLDEST))))' || { \
		echo "kvproof needs Python $(OLDEST) or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=python$(OLDEST) $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --require-hashes --requirement $(REQUIREMENTS)
	$(PIP) install --quiet $(TORCH_OPTIONS) $(TORCH)
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# vLLM's dependencies would not go with ours: an environment of its own.
$(PEERS_READY): tests/peers/requirements.txt tests/peers/constraints.txt
	$(PYTHON) -m venv $(PEERS)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(PEERS)/bin/python -m pip install --quiet \
		--constraint tests/peers/constraints.txt --requirement tests/peers/requirements.txt
	@touch $@
