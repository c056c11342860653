# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Sourced, with their arguments, by scripts that run on a bare Debian 12: creates a root of its minimal packages in a new folder in
# $1 (default: /var/tmp), with this machine's network, without user settings, removed at the end. $root is that root, $work its
# parent. Needs root and a Debian mirror (the machine's own). Exit code 77: a requirement is missing.

this=$(basename "$0" .sh)
say() { printf '\n%s: %s\n' "$this" "$*"; }
fail() { printf '%s: FAILED: %s\n' "$this" "$*" >&2; exit 1; }
cannot() { printf 'skipped: %s\n' "$*" >&2; exit 77; }

((EUID == 0)) || cannot "needs root, for debootstrap and chroot"
command -v apt-get >/dev/null || cannot "there is no apt-get whose mirror could be used"
# Private mounts, which end with the script.
if [[ ${DEBIAN_ROOT_MOUNTS:-} != own ]]; then
  DEBIAN_ROOT_MOUNTS=own exec unshare --mount --propagation private -- "$0" "$@" || cannot "the kernel refuses mount namespaces"
fi

work=$(mktemp -d "${1:-/var/tmp}/trireme-debian-root.XXXXXX")
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
# This root is temporary: dpkg need not sync every file, which takes most of the time under load.
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
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

for file in proc sys dev dev/shm; do mkdir -p "$root/$file"; done
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"

# inside USER COMMAND: a login with nothing else in the environment. Its exit code.
inside() {
  local user=$1 home=/root
  shift
  [[ $user == root ]] || home=/home/$user
  chroot --userspec="$user" "$root" env -i "HOME=$home" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    "${network[@]}" bash -c "$*"
}
