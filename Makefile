# Each target makes .venv and installs what it needs, system packages too where it can.
.PHONY: help demo test check bench clean
.DEFAULT_GOAL := help

help:  ## what there is to make
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo:  ## four questions, answered on this machine: no key, no GPU
	@scripts/setup demo
	@scripts/demo

test:  ## the tests
	@scripts/setup test
	.venv/bin/python -m pytest -q

check:  ## format, lint, types
	@scripts/setup check
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

bench:  ## one benchmark of bench/, such as: make bench NAME=overhead
	@test -n "$(NAME)" || { echo "say which: make bench NAME=overhead"; ls bench/*.py; exit 2; }
	@scripts/setup bench
	.venv/bin/python bench/$(NAME).py $(ARGS)

clean:  ## forget the environments
	rm -rf .venv .bench-venv
