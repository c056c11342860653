# SPDX-License-Identifier: Apache-2.0
#
# Sourced by tests that read our files with other software. Sets `python` to an interpreter with PyTorch, numpy, h5py and
# transformers: an environment in ${TRIREME_CACHE:-~/.cache/trireme}, shared with tests/bench, made at the first run by pip from
# its configured index. If no index is reachable, the test prints that and is skipped. PyTorch's CUDA libraries are those that
# jobs/setup.sh installed with libtorch, if any: else 3 GB of wheels.
# shellcheck shell=bash

readonly torch=2.11.0 h5py=3.16.0 transformers=5.23.0
home=${TRIREME_CACHE:-$HOME/.cache/trireme}/peer-torch-$torch
python=$home/bin/python

make_environment() {
  local cuda=${home%/*}/libtorch-$torch/nvidia install=("$python" -m pip install --quiet --retries 1 --timeout 15)
  local packages=(numpy safetensors "h5py==$h5py" "transformers==$transformers")
  if [[ -e $home/ready || ! -e $cuda ]]; then
    [[ -e $home/ready ]] || python3 -m venv --clear "$home" || return
    "${install[@]}" "torch==$torch" "${packages[@]}" || return
  else
    python3 -m venv --clear "$home" || return
    "${install[@]}" "${packages[@]}" filelock typing-extensions sympy networkx jinja2 fsspec || return
    "${install[@]}" --no-deps "torch==$torch" || return
    ln -s "$cuda" "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia" || return
    "$python" -c 'import torch' || return
  fi
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
