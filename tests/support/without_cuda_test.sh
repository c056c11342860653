# SPDX-License-Identifier: Apache-2.0
#
# A program linked from the no_cuda files: it needs no CUDA library, and reports why it uses no GPU. In a build for GPUs `trireme`
# starts it if there is no driver, and loads the CUDA libraries if there is one.
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

loaded() {  # how many of CUDA's libraries `trireme` loads for these arguments
  LD_DEBUG=files "$TRIREME" "$@" 2>&1 >out.txt | grep -cE 'calling init: .*(torch_cuda|libcublas|libnccl)' || true
}
ldconfig -p | grep 'libcuda\.so\.1 ' >/dev/null || [[ $(loaded doctor --nonsense) == 0 ]] || fail "libraries of CUDA are loaded where there is no driver"
cc -shared -x c -o libcuda.so.1 /dev/null
export LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
(($(loaded doctor --nonsense) >= 3)) || fail "no library of CUDA is loaded where there is a driver"
# ... nor where a command uses no GPU, whatever the machine has.
printf 'Some text.\n' >text.txt
for arguments in 'doctor --help' 'init --help' models 'tokenize --tokenizer bytes -o tokens.bin text.txt' 'report none' \
  'train none.toml --set device.type=cpu' 'evaluate none tokens.bin --device cpu'; do
  # shellcheck disable=SC2086  # several arguments in one variable
  [[ $(loaded $arguments) == 0 ]] || fail "libraries of CUDA are loaded by $arguments"
done
[[ -s tokens.bin ]] || fail "no tokens: $(cat out.txt)"
"$TRIREME" doctor --help | grep -q 'Usage: trireme doctor' || fail 'no help'
