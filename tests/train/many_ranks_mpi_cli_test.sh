# SPDX-License-Identifier: Apache-2.0
#
# 64 ranks start, train three steps, save and stop; 32 load that, train a step and stop: tests/bench/many_ranks.sh, which takes
# a quarter of a minute alone on two cores. Here it may take as long as other tests make it.
# timeout: 300
# labels: slow
bash "$TRIREME_SOURCE/tests/bench/many_ranks.sh" "$TRIREME" 64 0
