# Needs Python 3.11 or newer and make; no root. Everything else goes into .venv, checked against the hashes in .ci.
# PYTHON=/path/to/python chooses the interpreter that makes the environment.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# What builds packages, then all packages.
PINS := .ci/build-constraints.txt .ci/constraints.txt
SITE_PINS := .ci/site/constraints.txt
# pytest-xdist: one worker per processor.
WORKERS ?= auto
# Passed on to pytest, for example ARGS="-k journal -x".
ARGS ?=
# What `make soak` runs, examples of each property test, kills of each storage's rebuild, and of the bookie,
# seeds of the simulations: of the client and of replication (sim), or of replication alone (SOAK=replication,
# which takes an hour and a half of one processor, most of it for real auditors). SOAK=drain kills drains beside
# Java's bookies, and autorecovery on Java's and on ours. SOAK=repair damages and repairs models and real bookies
# of both kinds (SOAK_EXAMPLES seeds, SOAK_KILLS rounds); SOAK=plan damages bookies of a cluster of both kinds and
# has them repaired by plans (SOAK_PLANS seeds, three seconds each). SOAK=fuzz fuzzes for so many minutes of
# processor time, and goes on where the logs of earlier runs end.
SOAK ?= property crash bookie sim
SOAK_EXAMPLES ?= 20000
SOAK_KILLS ?= 50
SOAK_BOOKIE_KILLS ?= 100
SOAK_DRAIN_KILLS ?= 20
SOAK_SEEDS ?= 100000
SOAK_PLANS ?= 1000
SOAK_ROUNDS ?= 12
FUZZ_MINUTES ?= 240
# Names of targets; all without any.
FUZZ_TARGETS ?=
FUZZ_TOOLS := build/fuzz-tools
DEAD_TOOLS := build/dead-tools
PROFILE_TOOLS := build/profile-tools
WHEEL_TOOLS := build/wheel-tools
SITE_TOOLS := build/site-tools
# What the compiled kernels are made of.
KERNELS := bkctl/_kernels/_native.pyx $(wildcard bkctl/_kernels/*.pxi bkctl/_kernels/*.h)
KERNELS_ASAN := build/kernels-asan
# A soak of some parts keeps its log beside those of the others.
SOAK_NAME := $(if $(filter-out file,$(origin SOAK)),-$(shell echo $(SOAK) | tr ' ' -))
ifndef SEED
SEED := $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
endif

.DEFAULT_GOAL := help
.PHONY: help env demo test pure thorough soak fuzz-corpus fuzz-totals kernels-asan lint types dead bench profile data proto man conf docs site sbom \
  wheel wheel-demo spark-archive lock fmt clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(STAMP) ## Make the environment (the others do it by themselves)

$(STAMP): pyproject.toml $(PINS) $(KERNELS)
	@echo "make: making the environment in $(VENV); this takes some minutes, once" >&2
	@sh .ci/venv "$(VENV)" "$(PYTHON)"
	@sh .ci/install "$(PY)" $(PINS)
	@touch $@

demo: $(STAMP) ## Tell a story: write, kill -9, replay; break a byte, find it, mend it from the replicas
	@$(PY) tests/demo.py

# Containers often set the variable that keeps bytecode from being written. Then each process of the tests
# compiles what it imports (a bookie: 0.7 s in place of 0.3), and each worker rewrites every test (33 s in place of 12).
# Empty is not set.
test soak: export PYTHONDONTWRITEBYTECODE :=
test: export PYTEST_DEBUG_TEMPROOT ?= $(shell .ci/test_directory)

test: $(STAMP) ## Run the tests, except those that take long and have a quicker one beside them: 10 to 20 minutes
	$(PY) -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

# A soak runs whatever its folders have.
thorough soak: export BKCTL_THOROUGH := 1

pure: export BKCTL_KERNELS := python

pure: test ## Run the tests over the Python twin of the kernels, as where nothing is compiled

thorough: test ## Run all tests, as before a release: 17 to 40 minutes

soak: $(STAMP) $(if $(filter fuzz,$(SOAK)),$(FUZZ_TOOLS)/.installed kernels-asan) ## Run property tests, kills or fuzzers for long; the log with its seed goes to docs/soak
	@mkdir -p docs/soak
	@log=docs/soak/$$(date -u +%Y-%m-%d)-$$(git describe --always --dirty 2>/dev/null || echo nogit)$(SOAK_NAME).log; code=0; \
	run() { echo "$$ $$*" >>$$log; env "$$@" >>$$log 2>&1 || code=$$?; }; \
	echo "# $$($(PY) --version), $$(uname -sm), seed $(SEED), started $$(date -u +%H:%M:%SZ)" >>$$log; \
	for part in $(SOAK); do case $$part in \
	  property) run SOAK_EXAMPLES=$(SOAK_EXAMPLES) $(PY) -m pytest -n $(WORKERS) --timeout=0 -o faulthandler_timeout=0 \
	    --hypothesis-profile=soak --hypothesis-seed=$(SEED) tests/property $(ARGS);; \
	  crash) run BKCTL_SOAK=$(SOAK_KILLS) BKCTL_SOAK_SEED=$(SEED) $(PY) -m pytest -n $(WORKERS) -rP \
	    -o faulthandler_timeout=0 tests/crash --ignore-glob='*/test_bookie_*' --ignore-glob='*/test_engine_*' $(ARGS);; \
	  bookie) run BKCTL_SOAK=$(SOAK_BOOKIE_KILLS) BKCTL_SOAK_SEED=$(SEED) $(PY) -m pytest -n $(WORKERS) -rP \
	    -o faulthandler_timeout=0 --show-capture=stdout tests/crash/test_bookie_kill.py \
	    tests/crash/test_engine_crash.py tests/crash/test_bookie_pressure.py $(ARGS);; \
	  sim) run BKCTL_SIM_SEEDS=$(SOAK_SEEDS) BKCTL_SOAK_SEED=$(SEED) $(PY) -m pytest -n $(WORKERS) --timeout=0 \
	    -o faulthandler_timeout=0 tests/sim $(ARGS);; \
	  replication) run BKCTL_SIM_SEEDS=$(SOAK_SEEDS) BKCTL_SOAK_SEED=$(SEED) $(PY) -m pytest -n $(WORKERS) \
	    --timeout=0 -o faulthandler_timeout=0 tests/sim/test_replication_simulation.py \
	    tests/sim/test_auditor_simulation.py tests/sim/test_drain_simulation.py $(ARGS);; \
	  drain) run BKCTL_SOAK=$(SOAK_DRAIN_KILLS) $(PY) -m pytest --timeout=0 -o faulthandler_timeout=0 -rP \
	    tests/interop/test_drain_beside_java.py tests/interop/test_autorecovery_killed_with_java.py \
	    tests/interop/test_worker_beside_java.py tests/system/test_autorecovery_killed.py $(ARGS);; \
	  repair) run BKCTL_REPAIR_SEEDS=$(SOAK_EXAMPLES) BKCTL_SOAK_SEED=$(SEED) $(PY) -m pytest -n $(WORKERS) --timeout=0 \
	    -o faulthandler_timeout=0 tests/unit/replication/test_in_place_repair.py $(ARGS); \
	    run BKCTL_REPAIR_ROUNDS=$(SOAK_KILLS) BKCTL_SOAK_SEED=$(SEED) $(PY) -m pytest -rP --timeout=0 \
	    -o faulthandler_timeout=0 tests/interop/test_ledger_repair_with_java.py $(ARGS);; \
	  plan) run BKCTL_PLAN_SEEDS=$(SOAK_PLANS) BKCTL_SOAK_SEED=$(SEED) $(PY) -m pytest -rP --timeout=0 \
	    -o faulthandler_timeout=0 --show-capture=stdout tests/interop/test_repair_plans_by_seed.py $(ARGS);; \
	  cluster) run BKCTL_CLUSTER_ROUNDS=$(SOAK_ROUNDS) BKCTL_SOAK_SEED=$(SEED) $(PY) -m pytest -rP --timeout=0 \
	    -o faulthandler_timeout=0 --show-capture=stdout tests/spark/test_spark_standalone.py \
	    tests/spark/test_planted_losses.py tests/interop/test_pipeline_on_hadoop.py \
	    tests/interop/test_pipeline_on_s3a.py $(ARGS);; \
	  fuzz) run PYTHONPATH=.:$(FUZZ_TOOLS) $(PY) -m tests.fuzz.soak --minutes $(FUZZ_MINUTES) \
	    --seed $(SEED) $(FUZZ_TARGETS);; \
	  *) echo "make: SOAK=$$part: neither property, crash, bookie, sim, replication, drain, repair, plan, cluster nor fuzz" >&2; code=2;; esac; done; \
	echo "# ended $$(date -u +%H:%M:%SZ), exit code $$code" >>$$log; \
	sed -i -e 's#$(CURDIR)#.#g' -e 's#/[^ ]*/pytest-of-[^/ ]*/##g' $$log; \
	tail -n 50 $$log; echo "log: $$log"; exit $$code

fuzz-corpus: $(STAMP) ## Keep, of what soaks have found, what reaches more than the seeds do
	@PYTHONPATH=. $(PY) -m tests.fuzz.soak --keep

fuzz-totals: $(STAMP) ## Add up the processor time of all fuzzing logs
	@PYTHONPATH=. $(PY) -m tests.fuzz.soak --totals

# Beside the environment: only soaks need it, and it has no wheel for every platform.
$(FUZZ_TOOLS)/.installed: .ci/fuzz-constraints.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target $(FUZZ_TOOLS) \
	  --requirement $<
	@touch $@

kernels-asan: $(STAMP) $(KERNELS_ASAN)/.built ## Build the kernels once more, with the compiler's sanitizers in them

$(KERNELS_ASAN)/.built: $(STAMP) $(KERNELS)
	@PYTHONPATH=. $(PY) -m tests.fuzz.sanitized_kernels
	@mkdir -p $(@D) && touch $@

lint: $(STAMP) ## Check style, formatting and layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-logo

types: $(STAMP) ## Check types (mypy --strict)
	$(VENV)/bin/mypy

dead: $(STAMP) $(DEAD_TOOLS)/.installed ## Name the code that only tests call (vulture)
	@PYTHONPATH=$(DEAD_TOOLS):. $(PY) .ci/dead.py

$(DEAD_TOOLS)/.installed: .ci/dead-constraints.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target $(DEAD_TOOLS) \
	  --requirement $<
	@touch $@

bench: $(STAMP) ## Measure scanning speed and cold start
	$(PY) bench/scan.py
	$(PY) bench/cold.py

profile: $(STAMP) $(PROFILE_TOOLS)/.installed ## Draw where the time of an add goes, compiled and in Python: build/profile/*.svg
	$(PY) bench/flame.py --py-spy $(PROFILE_TOOLS)/bin/py-spy $(ARGS)

$(PROFILE_TOOLS)/.installed: .ci/profile-constraints.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target $(PROFILE_TOOLS) \
	  --requirement $<
	@touch $@

data: $(STAMP) ## Regenerate the test data from the corpora
	@for script in tests/data/make*.py tests/data/*/make.py; do \
	  echo "$(PY) $$script"; $(PY) $$script || exit 1; done

proto: $(STAMP) ## Regenerate the protobuf code
	@for file in $$(find bkctl -name '*.proto'); do \
	  echo "protoc $$file"; $(PY) -m grpc_tools.protoc -I . --python_out=. --pyi_out=. $$file || exit 1; done

man: $(STAMP) ## Regenerate the man pages from the commands
	$(PY) man/make.py

conf: $(STAMP) ## Regenerate conf/bk_server.conf and its man page from the configuration keys
	$(PY) conf/make.py

docs: $(STAMP) ## Regenerate docs/cli.md (JSON keys of every command), the pictures of top, and conf/completion
	$(PY) docs/make_cli.py
	$(PY) docs/make_top.py
	@$(VENV)/bin/bkctl --show-completion bash >conf/completion/bkctl.bash
	@$(VENV)/bin/bkctl --show-completion zsh >conf/completion/_bkctl
	@$(VENV)/bin/bkctl --show-completion fish >conf/completion/bkctl.fish

site: $(STAMP) $(SITE_TOOLS)/.installed ## Build the documentation as a site with search: build/site
	@PYTHONPATH=$(SITE_TOOLS) NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --config-file .ci/site/mkdocs.yml

$(SITE_TOOLS)/.installed: $(SITE_PINS)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target $(SITE_TOOLS) \
	  --requirement $<
	@touch $@

sbom: $(STAMP) ## List the packages of a plain installation and of all extras, as CycloneDX, in build/sbom
	$(PY) .ci/sbom.py build/sbom

wheel: $(STAMP) $(WHEEL_TOOLS)/.installed ## Build a wheel for Linux, Python 3.11 and later, that installs without a compiler: build/wheel
	@$(PY) .ci/wheel.py build/wheel $(WHEEL_TOOLS)

wheel-demo: wheel ## Install that wheel into an empty environment, and tell the story of the demo from there
	@.ci/wheel_demo build/wheel/bkctl-*.whl $(PY) .ci/constraints.txt build/wheel-demo

$(WHEEL_TOOLS)/.installed: .ci/wheel-constraints.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target $(WHEEL_TOOLS) \
	  --requirement $<
	@touch $@

spark-archive: $(STAMP) ## Pack an interpreter, bkctl and its kernels for Spark's executors: build/bkctl-spark.tar.gz
	$(PY) .ci/spark_archive.py build/bkctl-spark.tar.gz

lock: ## Pin the packages of .venv anew, with hashes; ARGS=--upgrade takes the newest ones
	sh .ci/lock build/lock "$(PYTHON)" $(PINS) $(SITE_PINS) $(ARGS)

fmt: $(STAMP) ## Format the code and mend what ruff can mend
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## Remove the environment and everything generated at run time
	rm -f bkctl/_kernels/*.so bkctl/_kernels/_native.c
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find bkctl tests bench man -name __pycache__ -prune -exec rm -rf {} +
