# SPDX-License-Identifier: Apache-2.0
#
# `trireme tokenize` gives the tokens of the `tokenizers` package, id by id: on 4 MB of many languages, code, emoji, odd
# white space and broken UTF-8 (10 MB with TRIREME_TEST_LONG=1) for the kinds of tokenizer.json that open models have, and on 1 MB
# for rarer components.
# timeout: 600
# labels: slow
source "$TRIREME_SOURCE/tests/support/python.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
readonly peer=$TRIREME_SOURCE/tests/tokenizer/peer.py

check() {  # check DIRECTORY KIND...
  local directory=$1 kind
  shift
  for kind; do
    "$TRIREME" tokenize --tokenizer "hf:$directory/$kind" -o "$directory/$kind.bin" "$directory"/texts/*.txt >out.txt 2>err.txt ||
      { cat err.txt; echo "FAILED: $kind"; exit 1; }
  done
  grep -q 'U+FFFD' err.txt || { echo 'FAILED: broken UTF-8 is not mentioned'; exit 1; }
  "$python" "$peer" compare "$directory" "$directory"/*.bin || exit 1
}

"$python" "$peer" make much "$([[ -n ${TRIREME_TEST_LONG:-} ]] && echo 10 || echo 4)"
"$python" "$peer" make some 1
main=(gpt2 llama3 qwen2 llama2 mistral gemma unigram)
others=()
for folder in some/*/tokenizer.json; do
  kind=$(basename "${folder%/*}")
  [[ " ${main[*]} " == *" $kind "* ]] || others+=("$kind")
done
((${#others[@]} == 9)) || { echo "FAILED: ${#others[@]} other kinds"; exit 1; }
check some "${others[@]}"
check much "${main[@]}"
