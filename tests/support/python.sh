# SPDX-License-Identifier: Apache-2.0
#
# Sourced by tests that look at our files as others do. Sets `python` to an interpreter with PyTorch, numpy, h5py and
# transformers: an environment in ${TRIREME_CACHE:-~/.cache/trireme}, the one that tests/bench uses, made at the first
# run by pip from whatever index it is configured for. Where no index is reachable the test says so and is skipped.
# shellcheck shell=bash

readonly torch=2.11.0 h5py=3.16.0 transformers=5.23.0
home=${TRIREME_CACHE:-$HOME/.cache/trireme}/peer-torch-$torch
python=$home/bin/python

make_environment() {
  [[ -e $home/ready ]] || python3 -m venv --clear "$home" || return
  "$python" -m pip install --quiet --retries 1 --timeout 15 "torch==$torch" numpy safetensors "h5py==$h5py" \
    "transformers==$transformers" || return
  touch "$home/ready" "$home/ready-readers"
}

if [[ ! -e $home/ready-readers ]] && ! "$python" -c 'import torch, h5py, transformers' 2>/dev/null; then
  mkdir -p "${home%/*}"
  (flock 9 && make_environment) 9>"$home.lock" >/tmp/trireme-python.$$ 2>&1 || {
    echo "skipped: no environment with torch $torch, h5py $h5py, transformers $transformers could be made in $home:"
    tail -n 3 /tmp/trireme-python.$$
    rm -f /tmp/trireme-python.$$
    exit 77
  }
  rm -f /tmp/trireme-python.$$
fi
