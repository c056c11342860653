# SPDX-License-Identifier: Apache-2.0
#
# Ranks of a node share memory for gathered parameters; if one cannot (tests/support/system_calls), each has a separate copy, the
# job's first rank warns once, and losses are the same to the last digit.
# timeout: 120
# processors: 2
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

sed -e 's/^hidden_size = .*/hidden_size = 320/; s/^intermediate_size = .*/intermediate_size = 704/; s/^seq_len = .*/seq_len = 16/' \
  -e 's/^global = .*/global = 6/; s/^steps = .*/steps = 3/' -i run.toml
warning='cannot share memory'
losses() { python3 -c 'import json, sys; print(*[(r["loss"], r["grad_norm"]) for r in map(json.loads, open("out/metrics.jsonl"))])'; }
train() {  # train RULE: what it logs as a warning, counted; and its losses
  echo "$1" >rules
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n 3 env LD_PRELOAD="$SYSTEM_CALLS" SYSTEM_CALLS_LOG="$work/calls" SYSTEM_CALLS_RULES="$work/rules" \
    "$TRIREME" train run.toml --set run.overwrite=true
  expect_done
  warnings=$(cat out.txt err.txt | grep -c "$warning" || true)
}

train ''
shared=$(losses)
((warnings == 0)) || fail 'memory is shared here, and a warning is logged'
grep -q 'truncate .*trireme-window' calls || fail 'nothing was shared, so this tests nothing'
for rule in 'truncate 0 1 ENOSPC trireme-window' 'open 2 1 EACCES /fd/' 'open 1 2 EMFILE /fd/'; do
  train "$rule"
  ((warnings == 1)) || fail "$warnings warnings, expected 1, with: $rule"
  [[ $(losses) == "$shared" ]] || fail "other losses with: $rule"
done
