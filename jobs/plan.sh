#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the memory and traffic of a batch script's run on the login node: needs no MPI, GPU or job.
#
#   jobs/plan.sh many_nodes.sbatch                      the ranks and the run file that the script names
#   RUN=other.toml jobs/plan.sh many_nodes.sbatch --nodes=8 --show memory
#
# --nodes=N and --ntasks-per-node=N win over the script's lines, as they do with sbatch; all other arguments go to trireme plan.
# TRIREME is the program.
set -euo pipefail

fail() { printf 'plan: error: %s\n' "$1" >&2; exit "$2"; }

script=${1:-}
[[ -r $script ]] || fail "give a batch script that can be read: jobs/plan.sh one_node.sbatch" 2
shift
# directive NAME: the value of the last #SBATCH --NAME=value before the first command, as sbatch reads it.
directive() { sed -n '/^[^#]/q; s/^#SBATCH .*--'"$1"'=\([0-9]*\).*/\1/p' "$script" | tail -n 1; }
# variable NAME: the default of `: "${NAME:=value}"`.
variable() { sed -n 's/^: "\${'"$1"':=\([^}]*\)}".*/\1/p' "$script" | head -n 1; }

nodes=$(directive nodes)
tasks=$(directive ntasks-per-node)
arguments=()
for argument in "$@"; do
  case $argument in
    --nodes=*) nodes=${argument#*=} ;;
    --ntasks-per-node=*) tasks=${argument#*=} ;;
    *) arguments+=("$argument") ;;
  esac
done
[[ ${nodes:-x}${tasks:-x} != *[!0-9]* ]] || fail "$script names no --nodes=N and --ntasks-per-node=N" 2
run=${RUN:-$(variable RUN)}
trireme=${TRIREME:-$(variable TRIREME)}
command -v "$trireme" >/dev/null || fail "there is no program $trireme: load its module, or set TRIREME" 5
echo "plan: $run on $nodes nodes of $tasks ranks"
exec "$trireme" plan "$run" --ranks $((nodes * tasks)) "${arguments[@]}"
