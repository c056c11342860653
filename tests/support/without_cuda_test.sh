# SPDX-License-Identifier: Apache-2.0
#
# In a build for GPUs, the program that was linked out of the no_cuda files: it needs nothing of CUDA, and says so.
# Environment: PROGRAM, TRIREME_SOURCE.
fail() { printf 'FAILED: %s\n' "$1"; exit 1; }
calls=$(nm -D --undefined-only "$PROGRAM" | grep -E ' (cuda|cu[A-Z]|nccl[A-Z])|c10.*cuda' || true)
[[ -z $calls ]] || fail "it calls CUDA: $calls"
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-without-cuda.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
status=0
"$PROGRAM" train "$TRIREME_SOURCE/inputs/quickstart.toml" --set device.type=cuda 2>err.txt || status=$?
((status == 5)) || fail "exit code $status: $(cat err.txt)"
grep -q 'device.type = "cuda", but this trireme was built without CUDA' err.txt || fail "$(cat err.txt)"
