# SPDX-License-Identifier: Apache-2.0
#
# Every system call of small commands fails once (tests/support/system_calls/sweep.py): train with resume, save, evaluation and
# export; tokenize, import, export, evaluate, report. Nothing is lost, nothing is wrong silently. A random half minute of it;
# TRIREME_TEST_LONG=1: all.
# labels: slow
# timeout: 600
# processors: 1
# Fault, files: each system call of small commands fails once -> no wrong loss, lost checkpoint or silent end; the
#   same command then succeeds (all: `tests/run.sh --long`)
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
python3 "$TRIREME_SOURCE/tests/support/system_calls/sweep.py" "$work"
