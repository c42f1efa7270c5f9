#!/usr/bin/env bash
# Tests Spillway on the GPU that is here, in under nine minutes: facts about the driver, the memory core alone, one
# audited step, a GPT of several GB in all ways, a Llama- and a ResNet-shaped step, each compared bit for bit. Needs a
# checkout, what tests/gpu/bundle.sh gathered in build/gpu (or a build on this machine), and a Python with PyTorch.
#   tests/gpu/run.sh [--python PATH] [--build DIR] [--json FILE] [--minutes M] [--device gpu|simcuda] [--size large|small]
#                    [--only PART[,PART]]      parts: self-test, audit, gpt, llama, resnet
# Ends with 0 when everything came out as it must, 1 when not, 2 where there is no device, 3 when time ran out.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/gpu/run_python.sh
. "$ROOT/tests/gpu/run_python.sh"
run_python tests/gpu/run.py "$@"
