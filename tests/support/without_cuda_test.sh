# SPDX-License-Identifier: Apache-2.0
#
# A program that was linked out of the no_cuda files: it needs nothing of CUDA, and says why it uses no GPU. In a build for GPUs
# `trireme` starts it where there is no driver, and loads the libraries of CUDA where there is one.
# Environment: PROGRAM, TRIREME_SOURCE; in a build for GPUs REASON (of no GPU) and TRIREME.
fail() { printf 'FAILED: %s\n' "$1"; exit 1; }
calls=$(nm -D --undefined-only "$PROGRAM" | grep -E ' (cuda|cu[A-Z]|nccl[A-Z])|c10.*cuda' || true)
[[ -z $calls ]] || fail "it calls CUDA: $calls"
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-without-cuda.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
status=0
"$PROGRAM" train "$TRIREME_SOURCE/inputs/quickstart.toml" --set device.type=cuda 2>err.txt || status=$?
((status == 5)) || fail "exit code $status: $(cat err.txt)"
grep -q "device.type = \"cuda\", but .*${REASON:-this trireme was built without CUDA}" err.txt || fail "$(cat err.txt)"
[[ -n ${TRIREME:-} ]] || exit 0

loaded() {  # how many of CUDA's libraries `trireme` loads
  LD_DEBUG=files "$TRIREME" doctor --help 2>&1 >help.txt | grep -cE 'calling init: .*(torch_cuda|libcublas|libnccl)' || true
  grep -q 'Usage: trireme doctor' help.txt || fail "no help: $(cat help.txt)"
}
ldconfig -p | grep 'libcuda\.so\.1 ' >/dev/null || [[ $(loaded) == 0 ]] || fail "libraries of CUDA are loaded where there is no driver"
cc -shared -x c -o libcuda.so.1 /dev/null
export LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
(($(loaded) >= 3)) || fail "no library of CUDA is loaded where there is a driver"
