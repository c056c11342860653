# SPDX-License-Identifier: Apache-2.0
#
# A test that cannot run here counts as skipped in ctest, and tests/run.sh ends with the reason; failures are not hidden by that.
# Environment: DATA_TESTS (a program of GoogleTest's), TRIREME_SOURCE.
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-skips-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { printf 'FAILED: %s\n' "$*"; cat out.txt; exit 1; }

# The parts of scripts.
# shellcheck disable=SC2016  # for the scripts
prepare='work=$(mktemp -d); source "$TRIREME_SOURCE/tests/support/skips.sh"'
printf '%s\nnot_tried "a full disk: no tmpfs"\ntouch rest\n' "$prepare" >partly.sh
printf '%s\nnot_tried "a full disk: no tmpfs"\nexit 3\n' "$prepare" >fails.sh
printf '%s\n' "$prepare" >whole.sh
for test in partly fails whole; do
  printf 'add_test(%s bash -eu %s.sh)\nset_tests_properties(%s PROPERTIES SKIP_RETURN_CODE 77)\n' $test $test $test
done >CTestTestfile.cmake
# A program of GoogleTest's: the tests that need another program are skipped.
cat >>CTestTestfile.cmake <<CMAKE
add_test(program "$DATA_TESTS" --gtest_brief=1 --gtest_filter=*SentencePiece*)
set_tests_properties(program PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT PATH=$work)
CMAKE
status=0
ctest --output-on-failure --test-output-size-passed 65536 --output-junit report.xml 2>&1 |
  python3 "$TRIREME_SOURCE/tests/support/skips.py" report.xml >out.txt || status=$?
((status == 8)) || fail "ctest's exit code is lost: $status"
[[ -e rest ]] || fail 'what comes after a part that was not tried is not tried'
for line in 'partly .*Skipped' 'fails .*Failed' 'whole .*Passed' 'program .*Skipped' '^2 tests were skipped, or parts of them:$' \
  '^  partly: a full disk: no tmpfs$' '^  program: .*: spm_train is not installed'; do
  grep -q -- "$line" out.txt || fail "not printed: $line"
done
tail -n 3 out.txt | grep -q 'Errors while running CTest' || fail "ctest's closing lines are not the last"
(($(grep -n '^2 tests were skipped' out.txt | cut -d: -f1) < $(grep -n 'tests passed' out.txt | cut -d: -f1))) || fail 'the order'
