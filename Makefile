# The few commands a newcomer needs; each does its own set-up. The build itself is CMake's, see HACKING.md.
MODEL  ?= smollm2
PROMPT ?= The three primary colours are

help:
	@echo "make demo     build, fetch SmolLM2-135M and let it write (MODEL=gemma3, PROMPT=\"...\")"
	@echo "make test     everything that is checked before a change lands (about 35 minutes on 2 cores)"
	@echo "make test-full, make test-models, make fuzz    longer runs: see HACKING.md"
	@echo "make bench    speed against other libraries, answers checked first"
	@echo "make bench-peers  attention beside PyTorch, ggml and ONNX Runtime (fetches several GB)"

build/release/apps/cli/regard: FORCE
	@tools/setup build
	@test -f build/release/build.ninja || cmake --preset release -DREGARD_BUILD_TESTS=OFF
	@ninja -C build/release regard-cli

demo: build/release/apps/cli/regard
	@tools/setup demo
	@model=$$(tools/get-model $(MODEL)) && build/release/apps/cli/regard generate -m "$$model" --prompt "$(PROMPT)" --max-tokens 48 --echo && \
	  echo "program: build/release/apps/cli/regard    model: $$model"

test:
	@tools/setup test
	@tools/test

test-full:
	@tools/setup test demo
	@tools/test full

test-models: build/release/apps/cli/regard
	@tools/setup test demo
	@tools/test models

fuzz:
	@tools/setup test
	@tools/test fuzz

bench:
	@tools/setup bench
	@tools/bench

bench-peers:
	@tools/setup bench
	@tools/bench-peers

FORCE:
.PHONY: help demo test test-full test-models fuzz bench bench-peers FORCE
