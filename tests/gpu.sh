#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# All checks that need a GPU: tests, parity, memory checker, benchmarks against PyTorch, a trace, the 2,000-step curve.
#
#   tests/gpu.sh [STEP...]            on a machine with a GPU and the toolkit: installs, builds, runs
#   tests/gpu.sh pack DIR             on any machine with the toolkit: builds and gathers in DIR what a bare machine needs (below 64 MiB)
#   tests/gpu.sh run DIR [STEP...]    on a machine with a GPU, the CUDA libraries and a Python with PyTorch 2.11, and nothing else
#
# First, within seconds: every library is found and `trireme doctor` sees a GPU, or it ends there. Then the steps, in this order
# where none are named: tests kernels speed-1b trace parity | speed-3b trace-3b variants-1b | curve variants-3b | nccl | nccl-more mixture mpi | clocks attention products overlap | big sanitizer
# (each | about ten minutes of a device). None may take more than nine minutes, and a failing one stops no other. A step's verdicts are printed when
# it ends. Results are added to ${OUT:-gpu-results} as they are measured: results.txt with the output of the steps,
# kernels.json, traces (.json.gz), measured.jsonl, expected.md (the tables of docs/lab/2026-11-27-h200.md with these measurements), and summary.txt, which
# is printed last: how every step ended, and gpu_judge.py's verdicts, `PASS|FAIL|SKIPPED|NOT RUN  criterion  measured  allowed`. gpu_judge.py FILE... judges runs of several days.
# The exit code is 0 if every requested step succeeded and all its criteria passed.
#
#   GPU_SECONDS   time limit of the whole (default 580): steps that would not end in time are skipped and listed in the summary
#   GPU_PYTHON    a Python with PyTorch for the comparisons (default: python3, or the environment that compare.py made)
#   GPU_REHEARSAL set: tiny shapes and the peer on the CPU, for a machine without a GPU (tests/support/simulated_gpu/rehearsal_test.sh)
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
self=$here/$(basename "${BASH_SOURCE[0]}")
readonly here self
readonly steps_in_order="tests kernels speed-1b trace parity speed-3b trace-3b variants-1b curve variants-3b nccl nccl-more mixture mpi clocks attention products overlap big sanitizer"
readonly limit_bytes=$((64 << 20))

fail() { echo "gpu: error: $*" >&2; exit 5; }

# The build folder, with everything that the steps run.
build() {
  local source=$here/..
  "$source/jobs/setup.sh" --cuda >&2 || fail "jobs/setup.sh --cuda did not end well"
  # shellcheck disable=SC2046  # a list of targets
  TRIREME_CMAKE_ARGS="-DTRIREME_CUDA=ON ${TRIREME_CMAKE_ARGS:-}" "$source/jobs/build.sh" trireme kernels_gpu_bench gpu_limits_bench nccl_probe $(gpu_tests) >&2 ||
    fail "the build for GPUs did not end well"
  "$source/jobs/build.sh" --directory
}

# The test programs that need a GPU: one a layer, and one a file of those that need ranks as well.
gpu_tests() {
  (cd "$here" && find . -name '*_gpu_test.cpp' | cut -d/ -f2 | sort -u | sed 's/$/_gpu_tests/'
    find . -name '*_gpu_mpi_test.cpp' | sed -E 's|^\./([^/]+)/(.*/)?([^/]+)\.cpp$|\1_\3|' | sort)
}

pack() {
  local to=$1 folder stage program size
  folder=${GPU_BUILD:-$(build)} || exit 5
  mkdir -p "$to" || fail "cannot make $to"
  stage=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder's name now: it is local
  trap "rm -rf '$stage'" EXIT
  mkdir -p "$stage/bin" "$stage/lib" "$stage/openmpi" "$stage/python"
  for program in trireme kernels_gpu_bench gpu_limits_bench nccl_probe $(gpu_tests); do
    cp "$folder/$program" "$stage/bin/" || fail "$folder/$program is not built"
    strip "$stage/bin/$program" 2>/dev/null || true  # a rehearsal packs scripts, too
  done
  mkdir -p "$stage/libexec/trireme"  # as installed: `trireme` starts the full program from there
  cp "$folder/libexec/trireme/trireme" "$stage/libexec/trireme/" || fail "$folder/libexec/trireme/trireme is not built"
  strip "$stage/libexec/trireme/trireme" 2>/dev/null || true
  pack_open_mpi "$stage"
  pack_libraries "$stage"
  cp "$here"/bench/step_vs_pytorch/*.py "$here/gpu_judge.py" "$here/support/one_gpu_rank.sh" "$stage/python/"
  tar -C "$stage" -c . | xz -T0 ${GPU_REHEARSAL:+-0} >"$to/trireme-gpu.tar.xz" || fail "could not write $to/trireme-gpu.tar.xz"
  cp "$here/gpu.sh" "$here/gpu_judge.py" "$to/"
  size=$(du -sb "$to" | cut -f1)
  echo "gpu: packed $(ls "$stage/bin" | wc -l) programs and $(ls "$stage/lib" | wc -l) libraries: $((size >> 20)) MiB in $to"
  [[ $size -lt $limit_bytes ]] || fail "that is more than 64 MiB"
}

# Open MPI finds its parts below OPAL_PREFIX if all of them are there.
pack_open_mpi() {
  local stage=$1 plugins
  plugins=$(ompi_info --path pkglibdir --parsable | cut -d: -f3-) || fail "ompi_info is missing: the pack takes Open MPI with it"
  mkdir -p "$stage/openmpi/bin" "$stage/openmpi/lib/openmpi3" "$stage/openmpi/share" "$stage/openmpi/etc"
  cp -L "$(command -v mpirun.openmpi || command -v mpirun)" "$stage/openmpi/bin/mpirun"
  cp -L "$(command -v orted)" "$stage/openmpi/bin/orted"
  cp -L "$plugins"/mca_*.so "$stage/openmpi/lib/openmpi3/"
  # Networks and launchers that a single machine does not have: these components only add library dependencies.
  (cd "$stage/openmpi/lib/openmpi3" && rm -f mca_*_{ucx,ofi,psm2,psm,cuda,tm,slurm,lsf,portals4,yalla,mxm,openib,usnic,ucc,hcoll}.so mca_*{pvfs2,lustre,gpfs}*.so)
  cp -rL "$(ompi_info --path pkgdatadir --parsable | cut -d: -f3-)" "$stage/openmpi/share/openmpi"
}

# Libraries of the programs other than libtorch, CUDA and the C and C++ libraries of any recent Linux.
pack_libraries() {
  local stage=$1 library
  find "$stage/bin" "$stage/libexec" "$stage/openmpi" -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} \; 2>/dev/null |
    awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libtorch|libc10|libgomp|libcu(da|bla|dnn|fft|rand|solver|sparse|pti|file)|libnccl|libnv|libcaffe2|libshm|ld-linux)[^/]*$' |
    grep -vE '/(libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|libstdc\+\+|libgcc_s)\.so[^/]*$' |
    while read -r library; do cp -L "$library" "$stage/lib/"; done
}

# Sets python and program paths for a packed folder. The programs are started by a script that sets the loader's path: PyTorch's own
# libraries before those of the machine, and what the variable named before, with the usual folder of a mounted driver, last. Python
# itself does not see it.
unpack() {
  local from=$1 folder path program
  root=${TMPDIR:-/tmp}/trireme-gpu
  mkdir -p "$root" && tar -C "$root" -xJf "$from/trireme-gpu.tar.xz" || fail "cannot unpack $from/trireme-gpu.tar.xz"
  python=${GPU_PYTHON:-python3}
  local torch
  torch=$("$python" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parent)') || fail "$python has no PyTorch: name one in GPU_PYTHON"
  path=$root/lib:$torch/lib
  for folder in "$torch"/../nvidia/*/lib; do [[ ! -d $folder ]] || path+=:$folder; done
  path+=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:/usr/local/nvidia/lib64:/usr/local/cuda/lib64
  mkdir -p "$root/start"
  # shellcheck disable=SC2016  # expanded by that script
  printf '#!/usr/bin/env bash\nexport LD_LIBRARY_PATH=%q\nname=${0##*/}\n[[ $name == mpirun ]] && exec %q "$@"\nexec %q/"$name" "$@"\n' \
    "$path" "$root/openmpi/bin/mpirun" "$root/bin" >"$root/start/.start"
  chmod +x "$root/start/.start"
  for program in mpirun $(cd "$root/bin" && ls); do ln -sf .start "$root/start/$program"; done
  loader_path=$path
  export OPAL_PREFIX=$root/openmpi OPAL_LIBDIR=$root/openmpi/lib OPAL_PKGLIBDIR=$root/openmpi/lib/openmpi3
  export OPAL_DATADIR=$root/openmpi/share OPAL_PKGDATADIR=$root/openmpi/share/openmpi OPAL_SYSCONFDIR=$root/openmpi/etc
  # A machine without ssh: Open MPI looks for its remote shell at MPI_Init, and never calls it on one node. PMIx misses compression.
  export OMPI_MCA_plm_rsh_agent=$BASH
  export PMIX_MCA_pcompress_base_silence_warning=1 PMIX_MCA_pmix_mca_base_component_show_load_errors=none
  export PATH=$root/start:$PATH
  bin=$root/start scripts=$root/python wrapper=$root/python/one_gpu_rank.sh
}

# Ends within seconds where nothing could run: a library that is not found, or no GPU that our own program sees.
check_machine() {
  local program missing doctor
  for program in ${root:+"$root"/bin/* "$root"/libexec/trireme/*}; do
    missing=$(LD_LIBRARY_PATH=$loader_path ldd "$program" 2>/dev/null | grep "not found" | sort -u)
    [[ -z $missing ]] || fail "${program##*/} cannot be started: $missing (searched: $loader_path)"
  done
  doctor=$("$bin/trireme" doctor 2>&1)
  echo "$doctor" | tee -a "$OUT/results.txt"
  grep -qE "^[a-z]+ +GPU [0-9]" <<<"$doctor" || fail "trireme doctor sees no GPU"
}

prepare_here() {
  bin=${GPU_BUILD:-$(build)} || exit 5
  scripts=$here/bench/step_vs_pytorch wrapper=$here/support/one_gpu_rank.sh
  python=${GPU_PYTHON:-python3}
  if ! "$python" -c 'import torch' 2>/dev/null; then
    python=$(cd "$scripts" && python3 -c 'import compare; print(compare.peer_python())' | tail -1) || fail "no Python with PyTorch"
  fi
}

# ---- The steps. Each prints what it measured and returns whether it passed.

# Runs a test program: COMMAND... on RANKS ranks, and notes how it ended for gpu_judge.py.
judged() {
  local step=$1 program=$2 ranks=$3 code log
  shift 3
  echo "== $program, $ranks ranks"
  log=$(mktemp)
  "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  # GoogleTest's last words: "[==========] 7 tests ..." and "[  SKIPPED ] 2 tests, listed below:".
  printf '{"step": "%s", "program": "%s", "ranks": %d, "code": %d, "tests": %d, "skipped": %d, "without_nccl": %d}\n' "$step" "$program" "$ranks" "$code" \
    "$(last_count '==========' "$log")" "$(last_count '  SKIPPED ' "$log")" "$(grep -c 'an NCCL_HOSTID of its own' "$log")" >>"$OUT/measured.jsonl"
  rm -f "$log"
  return "$code"
}
# The number that follows [WORD] in the last such line of a log; 0 without one.
last_count() { sed -nE "s/^\[$1\] ([0-9]+) tests?.*/\1/p" "$2" | tail -1 | grep . || echo 0; }

step_tests() {
  local test failed=0
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || { echo "no GPU here: nothing was tested"; return 1; }
  "$bin/trireme" --version
  # The layers from below: what fails there explains the others.
  for test in device kernels optim nn; do
    [[ -e $bin/${test}_gpu_tests ]] || continue
    judged tests "${test}_gpu_tests" 1 timeout 90 "$bin/${test}_gpu_tests" --gtest_brief=1 || failed=1
  done
  return $failed
}
# Ranks that share the GPU, so that a context switch comes with each of their kernels. The cases that differ most come first; the
# others run as long as the step may.
step_mpi() {
  local test ranks failed=0
  local first='*Immediate:*ReplicatedSelective:*/Graphs:*Bf16ParametersOffloaded:*/Tensor:*/Pipeline:*/ContextGather:*Nccl'
  export OMP_NUM_THREADS=2
  together() { judged mpi "$1" "$2" timeout "$3" mpirun --oversubscribe --bind-to none -n "$2" "$bin/$4" --gtest_brief=1 --gtest_filter="$5" || failed=1; }
  for ranks in 1 2 4; do together comm_device_gpu_mpi_test $ranks 90 comm_device_gpu_mpi_test '*'; done
  for ranks in 1 2 4; do together "train_device_gpu_mpi_test, first cases" $ranks 120 train_device_gpu_mpi_test "$first"; done
  for ranks in 1 2 4; do together "train_device_gpu_mpi_test, others" $ranks 240 train_device_gpu_mpi_test "-$first"; done
  return $failed
}
# Ranks that share the GPU over NCCL, where NCCL_HOSTID makes each a separate node: first NCCL without Trireme, then Trireme's tests and
# runs. If NCCL's own checks fail, only the runs that a signal ends follow, and the log with all of NCCL's output.
one_gpu() { local ranks=$1; shift; mpirun --oversubscribe --bind-to none "${one_gpu_options[@]}" -n "$ranks" bash "$wrapper" "$@"; }
one_gpu_options=()
probe() {
  local ranks=$1 group=$2 code log
  log=$(mktemp)
  if [[ -n ${GPU_REHEARSAL:-} ]]; then  # the library, and the expected values
    if [[ $group == basic ]]; then
      { OMPI_COMM_WORLD_RANK=0 bash "$wrapper" "$bin/nccl_probe" --load && PROBE_SMALL=1 one_gpu "$ranks" "$bin/nccl_probe" --oracle-only; } 2>&1 | tee "$log"
    else
      echo "PASS $group/rehearsed - 0" | tee "$log"
    fi
  else
    timeout 150 mpirun --oversubscribe --bind-to none "${one_gpu_options[@]}" -n "$ranks" bash "$wrapper" "$bin/nccl_probe" "$group" 2>&1 | tee "$log"
  fi
  code=${PIPESTATUS[0]}
  "$python" - "$log" "$OUT/measured.jsonl" "$ranks" "$group" "$code" <<'PYTHON'
import json, re, sys
log, measured, ranks, group, code = sys.argv[1:]
checks = re.findall(r"^(?:\[[^]]*\])?(PASS|FAIL) (\S+) (\S+) ([0-9.]+)\s*$", open(log, errors="replace").read(), re.M)
rows = [{"check": name, "passed": word == "PASS", "value": value, "seconds": float(seconds)} for word, name, value, seconds in checks]
# mpirun ends with an error where a rank was killed on purpose.
ended = bool(rows) and (int(code) == 0 or group == "kill")
with open(measured, "a") as file:
    for row in rows + [{"check": f"{group}/ends", "passed": ended, "value": code, "seconds": 0.0}]:
        file.write(json.dumps({"step": "nccl", "probe": group, "ranks": int(ranks)} | row) + "\n")
sys.exit(not ended or not all(row["passed"] for row in rows))
PYTHON
  code=$?
  rm -f "$log"
  return "$code"
}
step_nccl() {
  local failed=0 ranks group
  if ! NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$OUT/nccl.%p.log probe 2 basic; then
    echo "NCCL does not work between ranks of one GPU here. Its log:"
    NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,NET,GRAPH,P2P timeout 60 mpirun --oversubscribe --bind-to none -n 2 bash "$wrapper" "$bin/nccl_probe" basic 2>&1 | tail -200
    NCCL_ALGO=Ring NCCL_PROTO=Simple probe 2 basic || true
    timeout 90 "$python" "$scripts/gpu.py" nccl --part ends --trireme "$bin/trireme" --wrapper "$wrapper" --measured "$OUT/measured.jsonl"
    return 1
  fi
  one_gpu_options=(--mca odls_base_sigkill_timeout 10)
  for group in cost windows order graph abort kill; do probe 2 $group || failed=1; done
  CUDA_MODULE_LOADING=LAZY probe 2 lazy || echo "kernels that are loaded at their first launch hold up the GPU: the program loads them at its start"
  CUDA_MODULE_LOADING=EAGER probe 2 lazy || failed=1  # as in the program; this one is judged
  for group in basic order kill; do probe 4 $group || failed=1; done
  one_gpu_options=()
  shared_gpu comm_device_gpu_mpi_test 2 60 '*' || failed=1
  shared_gpu train_device_gpu_mpi_test 2 150 '*Nccl*' || failed=1
  compare nccl --part first --wrapper "$wrapper" || failed=1
  return $failed
}
# Runs and checks that show less, or take longer.
step_nccl-more() {
  local failed=0 group
  shared_gpu train_experts_gpu_mpi_test 2 90 '*Nccl*' || failed=1
  shared_gpu train_device_gpu_mpi_test 4 150 '*NcclPipelineZbH1Tensor:*NcclContextHeadsTensor:*NcclContextGatherBf16Pipeline:*NcclReplicated*:*/Nccl' || failed=1
  shared_gpu comm_device_gpu_mpi_test 4 60 '*' || failed=1
  compare nccl --part rest --wrapper "$wrapper" || failed=1
  for group in stop many free; do probe 2 $group || failed=1; done
  for group in many windows abort; do probe 4 $group || failed=1; done
  PROBE_SMALL=1 probe 8 basic || failed=1
  return $failed
}
# Test programs whose ranks all take part in NCCL: judged as such.
shared_gpu() { judged "nccl" "$1" "$2" timeout "$3" mpirun --oversubscribe --bind-to none -n "$2" bash "$wrapper" "$bin/$1" --gtest_brief=1 --gtest_filter="$4"; }

step_mixture() {  # tests of experts, small ones also on the CPU, one at full size
  local ranks failed=0 test=train_experts_gpu_mpi_test
  for ranks in 1 2; do judged mixture $test $ranks timeout 90 mpirun --oversubscribe --bind-to none -n $ranks "$bin/$test" --gtest_brief=1 || failed=1; done
  compare mixture && return $failed
}
compare() { "$python" "$scripts/gpu.py" "$@" ${GPU_REHEARSAL:+--rehearsal} --trireme "$bin/trireme" --measured "$OUT/measured.jsonl"; }
step_parity() { compare parity; }
# Passes where every kernel ran; gpu_judge.py compares those that move memory with a copy.
step_kernels() {
  "$bin/kernels_gpu_bench" --benchmark_counters_tabular=true --benchmark_out="$OUT/kernels.json" --benchmark_out_format=json || return 1
  "$python" - "$OUT/kernels.json" "$OUT/measured.jsonl" <<'PYTHON'
import json, sys
rows = json.load(open(sys.argv[1]))["benchmarks"]
with open(sys.argv[2], "a") as measured:
    for row in rows:
        failed = {"error": row.get("error_message", "error")} if row.get("error_occurred") else {}
        figures = failed or {key: row[key] for key in ("ratio", "GBps", "TFLOPs") if key in row}
        measured.write(json.dumps({"step": "kernels", "name": row["name"].split("/min_time")[0]} | figures) + "\n")
sys.exit(not rows or any(row.get("error_occurred") for row in rows))
PYTHON
}
# Measurements that decide about changes for speed: clocks and power of a step, attention and products at sustained clocks, AdamW concurrent with products.
step_clocks() { compare clocks --model 1b --micro 4; }
step_attention() { limits attention; }
step_products() { limits products; }
step_overlap() { limits overlap; }
limits() { "$python" "$scripts/gpu_clocks.py" "$OUT/measured.jsonl" "$1" "$bin/gpu_limits_bench"; }
step_speed-1b() { compare speed --model 1b --micro 4 --part first; }
step_speed-3b() { compare speed --model 3b --micro 2 --steps 12 --part first; }
step_variants-1b() { compare speed --model 1b --micro 4 --steps 12 --part rest; }
step_variants-3b() { compare speed --model 3b --micro 2 --steps 9 --part rest; }
step_trace() { traced trace-1b trace --model 1b --micro 4; }
step_trace-3b() { traced trace-3b trace --model 3b --micro 2; }
step_curve() { compare curve --limit 400; }  # three runs side by side
step_sanitizer() {
  local test failed=0
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not here: it comes with the CUDA toolkit"; return 1; }
  for test in kernels optim; do
    judged sanitizer "${test}_gpu_tests" 1 timeout 120 compute-sanitizer --error-exitcode 9 "$bin/${test}_gpu_tests" \
      --gtest_brief=1 --gtest_filter='*OnDevice*-ProductsOnDevice*' || failed=1
  done
  return $failed
}
# A model of 6 billion parameters below 40 GiB, with parameters in host memory; the trace shows the overlap.
step_big() { traced trace-6b big; }
traced() {
  local file=$OUT/$1.json code
  shift
  compare "$@" --trace "$file"
  code=$?
  [[ ! -e $file ]] || gzip -f "$file"
  return $code
}

limit_of() {
  case $1 in
    tests) echo 180 ;; kernels | clocks | attention | overlap) echo 120 ;; products) echo 180 ;; speed-1b) echo 300 ;; trace | trace-3b) echo 120 ;; parity | sanitizer) echo 240 ;;
    speed-3b | mixture) echo 360 ;; curve | big) echo 420 ;; variants-1b | variants-3b | mpi | nccl | nccl-more) echo 540 ;;
    *) fail "there is no step $1: $steps_in_order" ;;
  esac
}
# Minimum time of a step: it is skipped with less time left.
least_of() { case $1 in tests | parity | kernels | sanitizer | trace* | clocks | attention | products | overlap) echo 20 ;; *) echo 90 ;; esac; }

run_steps() {
  local step left limit began code failed=0
  local -a later=()
  # shellcheck disable=SC2086  # a list of words
  [[ $# -gt 0 ]] || set -- $steps_in_order
  OUT=${OUT:-gpu-results} && mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd -P) || fail "cannot make $OUT"
  export OUT bin scripts wrapper python OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
  : >"$OUT/summary.txt"
  touch "$OUT/results.txt" "$OUT/measured.jsonl"
  for step in "$@"; do limit_of "$step" >/dev/null || exit 5; done
  check_machine
  for step in "$@"; do
    limit=$(limit_of "$step") || exit 5
    left=$((${GPU_SECONDS:-580} - SECONDS))
    if [[ $left -lt $(least_of "$step") ]]; then
      echo "$step: NOT RUN, no time was left" >>"$OUT/summary.txt"
      later+=("$step")
      failed=1
      continue
    fi
    began=$SECONDS
    echo "== $step" | tee -a "$OUT/results.txt"
    timeout -k 10 $((limit < left ? limit : left)) bash "$self" step "$step" 2>&1 | tee -a "$OUT/results.txt"
    code=${PIPESTATUS[0]}
    case $code in
      0) echo "$step: passed in $((SECONDS - began)) s" ;;
      124 | 137) echo "$step: FAILED, stopped after $((SECONDS - began)) s" ;;
      *) echo "$step: FAILED with $code after $((SECONDS - began)) s" ;;
    esac >>"$OUT/summary.txt"
    printf '\n{"step": "%s", "ended": %d, "seconds": %d}\n' "$step" "$code" $((SECONDS - began)) >>"$OUT/measured.jsonl"
    [[ $code -eq 0 ]] || failed=1
    tail -1 "$OUT/summary.txt"
    "$python" "$here/gpu_judge.py" --only "$step" "$OUT/measured.jsonl" || true
  done
  "$python" "$scripts/gpu_expected.py" "$OUT/measured.jsonl" >"$OUT/expected.md" || { echo "expected.md: FAILED" >>"$OUT/summary.txt"; failed=1; }
  [[ ${#later[@]} -eq 0 ]] || echo "next: tests/gpu.sh ... ${later[*]}" >>"$OUT/summary.txt"
  "$python" "$here/gpu_judge.py" --asked "$(IFS=,; echo "$*")" "$OUT/measured.jsonl" >>"$OUT/summary.txt" || failed=1
  echo "== summary"
  cat "$OUT/summary.txt"
  return $failed
}

case ${1:-} in
  step) "step_$2" ;;
  pack) [[ $# -eq 2 ]] || fail "tests/gpu.sh pack DIR"; pack "$2" ;;
  run)
    [[ $# -ge 2 ]] || fail "tests/gpu.sh run DIR [STEP...]"
    unpack "$2"
    shift 2
    run_steps "$@"
    ;;
  *)
    prepare_here
    run_steps "$@"
    ;;
esac
