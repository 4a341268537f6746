# The few commands a newcomer needs; each does its own set-up. The build itself is CMake's, see HACKING.md.
# MODEL=smollm2 or gemma3 lets a published model write in the demo, PROMPT="..." says how its text begins.
MODEL  ?=
PROMPT ?= The three primary colours are

help:
	@echo "make demo     build, write an acrostic poem and a line of Shakespeare, show where the models looked"
	@echo "              (MODEL=smollm2 or MODEL=gemma3: fetch a published model and let it write)"
	@echo "make test     everything that is checked before a change lands (about 30 minutes on 2 cores)"
	@echo "make test-full, make test-models, make fuzz    longer runs: see HACKING.md"
	@echo "make train-suite  kills runs at 20 moments and goes on; trains small models and checks what they must learn (ARGS=\"--long --shakespeare FILE\" and more: tools/train-suite --help)"
	@echo "make bench    speed against other libraries, answers checked first"
	@echo "make bench-peers  attention and training beside PyTorch, ggml and ONNX Runtime (fetches several GB)"

build/release/apps/cli/regard: FORCE
	@tools/setup build
	@test -f build/release/build.ninja || cmake --preset release -DREGARD_BUILD_TESTS=OFF
	@ninja -C build/release regard-cli

demo: build/release/apps/cli/regard
	@tools/demo $(if $(MODEL),$(MODEL) "$(PROMPT)")

test:
	@tools/setup test
	@tools/test

test-full:
	@tools/setup test demo
	@tools/test full

test-models: build/release/apps/cli/regard
	@tools/setup test demo
	@tools/test models

train-suite: build/release/apps/cli/regard
	@REGARD_RESUME_POINTS=20 python3 tests/cli/resume_test.py build/release/apps/cli/regard $(CURDIR)
	@tools/train-suite $(ARGS)

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
.PHONY: help demo test test-full test-models train-suite fuzz bench bench-peers FORCE
