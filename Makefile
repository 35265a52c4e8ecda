# A thin front: meson.build describes the build, scripts/ does the work.
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
FUZZ_TARGET ?=

export PREFIX DESTDIR FUZZ_SECONDS FUZZ_TARGET

.DEFAULT_GOAL := build
.PHONY: build demo test test-arm64 bench fuzz install check format clean help

build:
	@scripts/setup build
	@scripts/build build

# not the tests: somebody waits for it
demo:
	@scripts/setup build
	@scripts/build build -- tsleuth
	@scripts/demo

test:
	@scripts/setup test
	@scripts/test

test-arm64:
	@scripts/setup arm64
	@scripts/test-arm64

bench: build
	@scripts/setup bench
	@bench/run
	@bench/serve.py build/tsleuth

fuzz:
	@scripts/setup fuzz
	@scripts/fuzz run

install: build
	@scripts/install

check:
	@scripts/setup check
	@scripts/format --check
	@scripts/check-includes

format:
	@scripts/setup check
	@scripts/format

clean:
	rm -rf build build-asan build-fuzz build-arm64

help:
	@echo 'make            build/tsleuth, after installing what is missing'
	@echo 'make demo       builds, then shows the tool at work on small examples'
	@echo 'make test       every test; ends with "N passed, N failed"'
	@echo 'make test-arm64 the unit and command-line tests on an emulated ARM64 processor; long'
	@echo 'make bench      measures speed on this machine'
	@echo 'make fuzz       each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS); one of them: FUZZ_TARGET=json'
	@echo 'make install    into PREFIX=$(PREFIX), below DESTDIR when it is set'
	@echo 'make check      formatting and include directions only'
	@echo 'make format     formats the C files in place'
	@echo 'make clean      removes build, build-asan, build-arm64 and build-fuzz (with its scratch corpus)'
