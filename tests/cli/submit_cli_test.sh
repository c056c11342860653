# SPDX-License-Identifier: Apache-2.0
#
# trireme submit: one self-contained job script, from the run file's mesh and a node's GPUs; without Slurm it prints the script's
# path; init prints the command if the ranks exceed one machine.
# timeout: 60
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-submit-test.XXXXXX")
source "$TRIREME_SOURCE/tests/support/skips.sh"
cd "$work"
fail() { printf 'FAILED: %s\n' "$*"; head -n 40 out err 2>/dev/null; exit 1; }

cat >run.toml <<'TOML'
[run]
name = "big run"
[model]
vocab_size = 257
hidden_size = 32
intermediate_size = 64
layers = 2
heads = 4
kv_heads = 2
[data]
train = "tokens.bin"
seq_len = 32
[batch]
global = 64
micro = 1
[train]
steps = 6
TOML

submit() {  # submit CODE ARGUMENTS...
  local status=0 code=$1
  shift
  "$TRIREME" submit "$@" >out 2>err || status=$?
  ((status == code)) || fail "exit code $status, expected $code: submit $*"
}
has() { grep -qxF -- "$1" out || fail "no line: $1"; }
says() { grep -qF -- "$1" err || fail "not printed: $1"; }

# The node's GPUs: of --gpus-per-node, of a machine file, of the default one.
submit 0 run.toml --nodes 4 --gpus-per-node 4 --account mine --partition gpu --time 02:00:00 --option=--gres=gpu:4 --dry-run
for line in '#SBATCH --job-name=big-run' '#SBATCH --nodes=4' '#SBATCH --ntasks-per-node=4' '#SBATCH --gpus-per-node=4' '#SBATCH --mem=0' \
  '#SBATCH --account=mine' '#SBATCH --partition=gpu' '#SBATCH --time=02:00:00' '#SBATCH --gres=gpu:4' 'train --set device.type=cuda'; do has "$line"; done
[[ ! -e run.sbatch ]] || fail "--dry-run wrote a file"
bash -n out
if command -v shellcheck >/dev/null; then shellcheck --severity=warning --shell=bash out || fail "shellcheck"; fi
submit 0 run.toml --nodes 2 --machine h100 --dry-run
has '#SBATCH --ntasks-per-node=8'
submit 0 run.toml --nodes 2 --dry-run
has '#SBATCH --gpus-per-node=8'
# CPUs: from the run file, or by --set.
submit 0 run.toml --nodes 2 --set device.type=cpu --dry-run
has '#SBATCH --ntasks-per-node=2'
has 'train --set device.type=cpu'
! grep -q '^#SBATCH --gpus' out || fail "GPUs for a run on CPUs"
submit 0 run.toml --nodes 2 --gpus-per-node 0 --ranks-per-node 4 --dry-run
has '#SBATCH --ntasks-per-node=4'
# A mesh that is fixed decides.
submit 0 run.toml --nodes 2 --gpus-per-node 8 --set mesh.tensor=2 --set mesh.shard=2 --dry-run
has '#SBATCH --ntasks-per-node=2'
submit 2 run.toml --nodes 3 --gpus-per-node 8 --set mesh.tensor=2 --set mesh.shard=2 --dry-run
says 'has 4 ranks, which 3 nodes of 8 ranks do not hold evenly'
submit 2 run.toml --nodes 2 --gpus-per-node 4 --set mesh.tensor=3 --dry-run  # what train refuses on 8 ranks
submit 2 run.toml --nodes 0 --dry-run
submit 2 run.toml --nodes 2 --set 'run.name=a b' --dry-run
says 'put it into the run file'
# shellcheck disable=SC2016
submit 2 run.toml --nodes 2 --account 'a b' --dry-run

# Spares are nodes in addition, in a job that survives the loss of one.
submit 0 run.toml --nodes 2 --spares 1 --gpus-per-node 4 --dry-run
has '#SBATCH --nodes=3'
has '#SBATCH --no-kill'
has ': "${SPARES:=1}"               # nodes of the job that wait for another one'"'"'s failure'
submit 0 run.toml --nodes 2 --gpus-per-node 4 --dry-run
! grep -qE 'SPARES:=|no-kill$' out || fail "spares without a request"

# Without Slurm the script is written, and its path printed; it may be replaced, other files may not.
PATH=/usr/bin/nowhere submit 5 run.toml --nodes 2
says 'The job script is run.sbatch: run `sbatch run.sbatch`'
PATH=/usr/bin/nowhere submit 5 run.toml --nodes 1
grep -qx '#SBATCH --nodes=1' run.sbatch || fail "the script was not replaced"
echo mine >own.sbatch
submit 2 run.toml --nodes 1 -o own.sbatch
says 'own.sbatch exists and was not written by `trireme submit`'
[[ $(cat own.sbatch) == mine ]] || fail "a user's file was replaced"

# sbatch gets the file; the script runs without any other, from any directory.
mkdir bin
printf '#!/bin/sh\necho "Submitted batch job 7: $1"\nexit 3\n' >bin/sbatch
chmod +x bin/sbatch
PATH=$work/bin:$PATH submit 3 run.toml --nodes 1
has 'Submitted batch job 7: run.sbatch'
cat >bin/srun <<'SH'
#!/bin/sh
[ "$1" != --mpi=list ] || { echo pmix; exit; }
echo "srun $*"
SH
printf '#!/bin/sh\nexit 0\n' >bin/trireme
chmod +x bin/*
mkdir spool
cp run.sbatch spool/slurm_script
PATH=$work/bin:$PATH TRIREME=trireme SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1 bash spool/slurm_script >out 2>err ||
  fail "the script ended with $?"
grep -q '^srun --mpi=pmix .* trireme train run.toml --set device.type=cuda$' out || fail "how the ranks are started: $(cat out)"

# The scripts of jobs/ are one file each, too.
for script in one_node many_nodes cpu requeue; do
  cp "$TRIREME_SOURCE/jobs/$script.sbatch" spool/slurm_script
  PATH=$work/bin:$PATH TRIREME=trireme SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1 bash spool/slurm_script >out 2>err ||
    fail "$script.sbatch ended with $?"
  grep -q '^srun .* trireme train run.toml' out || fail "how $script.sbatch starts the ranks"
done
grep -q ' train run.toml --set checkpoint.resume=auto$' out || fail "requeue.sbatch changes the run file's settings: $(cat out)"
