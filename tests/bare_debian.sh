#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# README's two commands on a bare Debian 12: a root of its minimal packages, without CUDA, git, a cache or anybody's settings, in
# which a user who may not install is told what is missing, and root gets from a copy of this checkout to a trained model
# and through the tests of the value layers. Needs root, a Debian mirror (the machine's own) and a package index for pip; takes
# half an hour on two cores and 12 GB of disk. Run before an issue is closed, not in every CI.
#
#   tests/bare_debian.sh [FOLDER]     the root in a new folder in FOLDER (default: /var/tmp), removed at the end
#
# Exit code 77: what it needs is not here.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly source
say() { printf '\nbare_debian: %s\n' "$*"; }
fail() { printf 'bare_debian: FAILED: %s\n' "$*" >&2; exit 1; }
cannot() { printf 'skipped: %s\n' "$*" >&2; exit 77; }

((EUID == 0)) || cannot "needs root, for debootstrap and chroot"
command -v apt-get >/dev/null || cannot "there is no apt-get whose mirror could be used"
# Mounts of its own, which end with it.
if [[ ${BARE_DEBIAN_MOUNTS:-} != own ]]; then
  BARE_DEBIAN_MOUNTS=own exec unshare --mount --propagation private -- "$0" "$@" || cannot "the kernel refuses mount namespaces"
fi

work=$(mktemp -d "${1:-/var/tmp}/trireme-bare-debian.XXXXXX")
readonly root=$work/root
end_of_test() {
  local mount
  for mount in $(cut -d ' ' -f 2 /proc/mounts | grep "^$root/" | sort -r || true); do umount -l "$mount" || true; done
  rm -rf --one-file-system "$work"
}
trap end_of_test EXIT

say "a root of Debian's minimal packages"
mirror=$(apt-get indextargets --format '$(CODENAME) $(SITE) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" { mirror = $3 } END { print mirror }')
[[ -n $mirror ]] || cannot "apt's sources name no mirror of Debian 12"
debootstrap=debootstrap
if ! command -v debootstrap >/dev/null; then  # it is a script: unpacked, it runs
  (cd "$work" && apt-get -qq download debootstrap >apt.log 2>&1 && dpkg-deb -x debootstrap_*.deb debootstrap) ||
    cannot "no debootstrap, and it cannot be downloaded: $(tail -n 1 "$work/apt.log")"
  export DEBOOTSTRAP_DIR=$work/debootstrap/usr/share/debootstrap
  debootstrap=$work/debootstrap/usr/sbin/debootstrap
fi
"$debootstrap" --variant=minbase bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || { tail -n 20 "$work/debootstrap.log"; fail "debootstrap"; }
for program in git cmake g++ python3 nvcc sudo; do
  ! chroot "$root" sh -c "command -v $program" >/dev/null || fail "$program is there: this root is not bare"
done

# The network as this machine reaches it: names, proxies, certificates and pip's index; no settings of a user.
cp /etc/resolv.conf /etc/hosts "$root/etc/"
mkdir -p "$root/etc/apt/apt.conf.d" "$root/usr/local/share"
cp -r /usr/local/share/ca-certificates "$root/usr/local/share/" 2>/dev/null || true  # the site's own authorities
cp /etc/pip.conf "$root/etc/" 2>/dev/null || true
apt-config dump | grep -iE '^Acquire::(https?::proxy|Check-)' >"$root/etc/apt/apt.conf.d/99network" || true
network=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT; do
  [[ -z ${!name:-} ]] || network+=("$name=${!name}")
done

mkdir "$root/trireme"
(cd "$source" && { git ls-files -z 2>/dev/null || find . -path ./build -prune -o -type f -print0; } | tar --null --no-recursion -T - -c) | tar -x -C "$root/trireme"
for file in proc sys dev dev/shm; do mkdir -p "$root/$file"; done
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"
chroot "$root" useradd --create-home someone

# inside USER COMMAND: a login with nothing else in the environment. Its exit code.
inside() {
  local user=$1 home=/root
  shift
  [[ $user == root ]] || home=/home/$user
  chroot --userspec="$user" "$root" env -i "HOME=$home" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    "${network[@]}" bash -c "$*"
}

say "a user who may not install"
for command in jobs/quickstart.sh 'tests/run.sh -L values'; do
  status=0
  inside someone "cd && /trireme/$command" >"$work/someone.log" 2>&1 || status=$?
  cat "$work/someone.log"
  ((status == 5)) || fail "$command: exit code $status, expected 5"
  missing=$(grep '^setup: error: these packages are missing and need root to install: ' "$work/someone.log") ||
    fail "$command does not say what is missing"
  for package in g++ cmake ninja-build libopenmpi-dev libhdf5-openmpi-dev libgtest-dev python3 python3-pip unzip; do
    [[ " $missing " == *" $package "* ]] || fail "$command does not say that $package is missing"
  done
  [[ $(grep -c . "$work/someone.log") -le 12 ]] || fail "$command says more than what is missing"
done

say "root: jobs/quickstart.sh"
inside root 'cd && /trireme/jobs/quickstart.sh' || fail "quickstart: exit code $?"
inside root 'test -s ~/runs/quickstart/metrics.jsonl && test -s ~/runs/quickstart/export/model.safetensors' || fail "quickstart left nothing"
say "root: tests/run.sh -L values"
inside root 'cd && /trireme/tests/run.sh -L values' || fail "tests: exit code $?"
say "passed in $SECONDS s"
