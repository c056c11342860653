# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# tests/gpu.sh from end to end without a GPU: `pack` here, `run` in an empty root without a network, as on a device machine: the
# program with the simulated GPU, a simulated nvidia-smi, tiny shapes, and PyTorch on the CPU as the peer. Libraries, launcher, Python
# scripts, run files, records and verdicts are the real ones, and a library or a file that the pack forgot is missing. Then the pack of a
# build for GPUs, as far as it goes there: all its programs find their libraries, it is below 64 MiB, and ends where no GPU is seen.
#
# Environment: TRIREME, the full program with the simulated GPU; FRONT, `trireme`, which starts it; REAL, the folder of a build for GPUs, or
# empty. Where the kernel refuses user namespaces the pack runs in the machine's own root. Exit code 77: no Python with PyTorch could be made
# here; with TRIREME_CI set that fails.
# Fault, hangs: a rank over NCCL is killed -> exit code 7 within seconds over sockets, else at the deadline
cannot() { echo "skipped: $*" >&2; [[ -z ${TRIREME_CI:-} ]] || fail "CI has to rehearse"; exit 77; }
fail() { echo "rehearsal: FAILED: $*" >&2; exit 1; }

bash -eu "$TRIREME_SOURCE/tests/support/python.sh" || cannot "no Python with PyTorch"
source "$TRIREME_SOURCE/tests/support/python.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build" "$work/root"

# Contents of the build folder. Only the program is real: kernels and test programs need a GPU.
mkdir -p "$work/build/libexec/trireme"
ln -s "$FRONT" "$work/build/trireme"
ln -s "$TRIREME" "$work/build/libexec/trireme/trireme"
if [[ -n $REAL && -x $REAL/nccl_probe ]]; then
  ln -s "$REAL/nccl_probe" "$work/build/nccl_probe"
else
  printf '#!/bin/bash\necho "PASS $1 simulated 0"\n' >"$work/build/nccl_probe"
fi
for name in device_gpu_tests kernels_gpu_tests nn_gpu_tests optim_gpu_tests comm_device_gpu_mpi_test train_device_gpu_mpi_test train_experts_gpu_mpi_test; do
  printf '#!/bin/bash\necho "[==========] 1 test from 1 test suite ran."\n' >"$work/build/$name"
done
printf '#!/bin/bash\nfor word; do [[ $word != --benchmark_out=* ]] || echo '\''{"benchmarks": [{"name": "copy", "ratio": 1.0}]}'\'' >"${word#*=}"; done\n' >"$work/build/kernels_gpu_bench"
cat >"$work/build/gpu_limits_bench" <<'BENCH'
#!/bin/bash
for word; do case $word in *filter=^*) step=${word#*^} ;; --benchmark_out=*) to=${word#*=} ;; esac; done
echo "{\"benchmarks\": [{\"name\": \"${step}one/iterations:1/manual_time\", \"TFLOPs\": 1.5, \"of_many\": 2.0, \"gain\": 0.5, \"adamw_ms\": 7.5}]}" >"$to"
BENCH
chmod +x "$work"/build/*_{tests,test,bench}
GPU_REHEARSAL=1 GPU_BUILD=$work/build bash "$TRIREME_SOURCE/tests/gpu.sh" pack "$work/root/pack" || fail "pack"

# A root with a shell, its tools and their libraries; Python with PyTorch is mounted at its path.
cd "$work/root"
mkdir -p usr/bin usr/lib64 smi proc dev/shm tmp etc home
for folder in bin lib lib64; do ln -s "usr/$folder" "$folder"; done
mkdir -p usr/lib
printf 'root:x:0:0:root:/home:/bin/bash\n' >etc/passwd
printf '127.0.0.1 localhost\n' >etc/hosts
printf '#!/bin/bash\ncase $* in *gpu=name\ *) echo "a simulated GPU" ;; *name,*) echo "a simulated GPU, 0, 8192" ;; *memory.total*) echo 8192 ;; *clocks.sm*) while sleep 0.1; do echo "1700, 650.5, 0x0000000000000004"; done ;; *) echo 1234 ;; esac\n' >smi/nvidia-smi
chmod +x smi/nvidia-smi
tools="bash sh env cat cp ls ln rm mkdir mktemp tee tail head grep sed awk sort tar xz gzip chmod touch dirname basename timeout nice true sleep uname ldd ip mount chroot hostname cut"
for tool in $tools; do
  path=$(type -P "$tool") && cp -L "$path" "usr/bin/$tool"
done
# Libraries that PyTorch's wheel requires from the system: C and C++, and Python's such as zlib.
base=$("$python" -c 'import sys; print(sys.base_prefix)')
# The libraries of CUDA that PyTorch loads: in its wheels, or where jobs/setup.sh put them, with links into the toolkit.
cuda=$(realpath "$home"/lib/python*/site-packages/nvidia)
linked=$(find "$cuda" -type l -lname '/*' -printf '%l\n' | sed 's|/[^/]*$||' | sort -u)
{
  for tool in $tools; do ldd "$(type -P "$tool")" 2>/dev/null || true; done
  find "$base/lib" -name '*.so*' -type f -exec ldd {} + 2>/dev/null || true
  ldd "$(readlink -f "$python")" "$home"/lib/python*/site-packages/torch/lib/*.so 2>/dev/null || true
  ldd "$TRIREME" | grep -E '/(libc|libm|libdl|librt|libpthread|libresolv|libutil|libstdc\+\+|libgcc_s|libgomp)\.so'
} | grep -oE '/[^ ]+\.so[^ ]*' | grep -E '^/(usr/)?lib' | sort -u | while read -r library; do
  [[ -e $library ]] || continue
  case $library in */libhdf5* | */libmpi* | */libopen-* | */libfmt* | */libspdlog* | */libhwloc* | */libevent*) continue ;; esac
  mkdir -p ".$(dirname "$(readlink -m "/usr/${library#/usr/}")")"
  cp -L "$library" "./usr/${library#/usr/}" 2>/dev/null || { mkdir -p "./usr/$(dirname "${library#/usr/}")"; cp -L "$library" "./usr/${library#/usr/}"; }
done

cat >inside.sh <<INSIDE
set -eu
mount -t proc proc "$work/root/proc"
mount --rbind /dev "$work/root/dev"
for folder in "$base" "$home" "$cuda" $linked; do mkdir -p "$work/root\$folder" && mount --bind "\$folder" "$work/root\$folder"; done
ip link set lo up
exec chroot "$work/root" /usr/bin/env -i PATH=/smi:/usr/bin HOME=/home TMPDIR=/tmp \$SETTINGS /usr/bin/bash /pack/gpu.sh run /pack \$*
INSIDE
export SETTINGS="GPU_REHEARSAL=1 GPU_PYTHON=$python OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1 GPU_SECONDS=100000"
run() { unshare --user --map-root-user --mount --net --pid --fork --kill-child bash "$work/root/inside.sh" "$@" 2>&1 | tee "$work/out.txt"; }
if ! unshare --user --map-root-user --mount --net --pid --fork true 2>/dev/null; then
  echo "rehearsal: the kernel refuses user namespaces: in this machine's own root, with its libraries"
  # shellcheck disable=SC2086  # a list of words
  run() { env -i PATH="$work/root/smi:$PATH" HOME="$work/root/home" TMPDIR="$work/root/tmp" $SETTINGS bash pack/gpu.sh run pack "$@" 2>&1 | tee "$work/out.txt"; }
fi
run tests kernels speed-1b trace parity speed-3b trace-3b variants-1b curve variants-3b nccl nccl-more mixture mpi clocks attention products overlap big sanitizer || true

# Criteria of a real GPU's speed or tools may fail; all criteria of running and of results pass.
results=$work/root/gpu-results
expect() { grep -qE "$1" "$results/summary.txt" || fail "no line in the summary: $1"; }
for step in tests kernels speed-1b trace parity speed-3b trace-3b variants-1b curve variants-3b nccl nccl-more mixture mpi clocks attention products overlap; do expect "^$step: passed in"; done
for case in "fp32: GPU against CPU" "bf16: GPU against CPU" "bf16: graphs against op by op" "fp32: four ranks on one GPU by MPI against one" \
  "fp32: logits of generate" "fp32: experts, GPU against CPU" "bf16: experts, GPU against CPU" "fp32: two expert ranks" \
  "128 experts: it trains" "1b: Trireme, recompute selective runs" "1b: Trireme, recompute selective, graphs runs" "1b: PyTorch compiled runs" \
  "3b: PyTorch compiled runs" "1b: Trireme, offload activations runs" "1b: Trireme, offload optimizer runs" "3b: PyTorch compiled, recompute block runs" \
  "NCCL alone, 2 ranks: basic" "NCCL against MPI: hsdp" "NCCL against MPI: pipeline zbv" "NCCL against MPI: windows" "NCCL against MPI: deterministic, twice" \
  "NCCL against MPI: a rank stopped for half of the deadline" "killed rank, 2 ranks" "killed rank, 4 ranks" "stopped rank" "refused: one id for all" \
  "refused: a rank without an id" \
  "1b, 4 microbatches a step +[0-9.]+% at 1700 MHz, 65[01] W" "attention/one +2 TFLOP" "products/one +2, of many 2" "overlap/one +50% of 7.5 ms hidden" \
  "1b: trace of three steps" "3b: trace of three steps" "tests on the GPU" "tests of ranks that share the GPU"; do
  expect "^PASS +$case"
done
expect "^(PASS|FAIL) +160M, bf16: mean gap to FSDP2 +[0-9.]+% over the last 1 of 4"
expect "^(PASS|FAIL) +1b: speed by compiled FSDP2, fastest of both +[0-9.]+x"
expect "^(PASS|FAIL) +3b: memory by compiled FSDP2, both with recompute block +[0-9.]+%"
expect "^SKIPPED +3b: MFU, fastest of ours .*this is a simulated GPU$"
expect "^(PASS|FAIL) +6B: it trains +loss [0-9.]+ to"
expect "^sanitizer: FAILED"  # compute-sanitizer is not there
[[ -s $results/trace-1b.json.gz && -s $results/trace-3b.json.gz && -s $results/kernels.json ]] || fail "no traces"
for row in "step \| \| [0-9]+ \| [0-9.]+ \| \| [0-9]+ \| [0-9.]+ " "program's start to .*( \| [0-9.]+){6} " "Trireme, offload optimizer \| [0-9.]+ \| [0-9.]+ "; do
  grep -qE "^\| $row" "$results/expected.md" || fail "no row in expected.md: $row"
done

# Where no GPU is seen it ends at once; with the real programs after their libraries were all found.
rm "$results"/*
if [[ -n $REAL ]]; then
  rm -r "$work"/root/{pack,tmp}/*
  # The benchmark is built on request: here the one from above replaces it.
  for program in "$work"/build/* "$work/build/libexec/trireme/trireme"; do
    [[ ! -x $REAL/${program#"$work/build/"} || -d $program ]] || ln -sf "$REAL/${program#"$work/build/"}" "$program"
  done
  GPU_REHEARSAL=1 GPU_BUILD=$work/build bash "$TRIREME_SOURCE/tests/gpu.sh" pack "$work/root/pack" || fail "the pack of the real programs"
fi
SETTINGS+=" TRIREME_SIMULATED_GPUS=0"
! run kernels >/dev/null || fail "it ran without a GPU"
grep -q "trireme doctor sees no GPU" "$work/out.txt" || { cat "$work/out.txt"; fail "no word about the GPU"; }
echo "rehearsal: passed in $SECONDS s"
