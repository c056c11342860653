# SPDX-License-Identifier: Apache-2.0
"""Tokenizers and texts for a comparison with the `tokenizers` package, and the comparison.

peer.py make DIRECTORY MEGABYTES     trains small tokenizers of every kind there, KIND/tokenizer.json, and writes texts/*.txt
peer.py compare DIRECTORY KIND.bin...    compares what `trireme tokenize` made of the texts with what the package does
peer.py rate TOKENIZER.json TEXT     bytes per second of the package on one thread
"""

import array
import json
import os
import pathlib
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from peer_texts import make_texts  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
NEMO = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}"
    r"\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def bpe(**settings):
    return Tokenizer(models.BPE(**settings))


def trained_bytes(training, size, specials=("<|endoftext|>",)):
    """Byte-level BPE, whose model all kinds of it share."""
    tokenizer = bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(training, trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), initial_alphabet=alphabet, show_progress=False))
    return tokenizer


def sentencepiece_like(training, size):
    """BPE whose pieces begin with U+2581 and that has a token for every byte."""
    tokenizer = bpe(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(training, trainers.BpeTrainer(vocab_size=size, special_tokens=specials, limit_alphabet=600, show_progress=False))
    raw = json.loads(tokenizer.to_str())
    raw["added_tokens"] = [token for token in raw["added_tokens"] if not token["content"].startswith("<0x")]
    return raw


def from_raw(raw):
    return Tokenizer.from_str(json.dumps(raw))


def template(begin, ids):
    return processors.TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, ids)])


def kinds(training):
    """Every kind by its name, as the files of the models that it is named after."""
    made = {}
    byte_level = trained_bytes(training, 12000)

    def of_bytes(name, pre_tokenizer, decoder=None, normalizer=None, add=(), **changes):
        raw = json.loads(byte_level.to_str())
        raw["model"].update(changes)
        tokenizer = from_raw(raw)
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoder or decoders.ByteLevel()
        if normalizer:
            tokenizer.normalizer = normalizer
        for token in add:
            (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
        made[name] = tokenizer
        return tokenizer

    def split(pattern, behavior="isolated", invert=False):
        return pre_tokenizers.Split(Regex(pattern), behavior, invert)

    level = pre_tokenizers.ByteLevel
    plain = level(add_prefix_space=False, use_regex=False)
    of_bytes("gpt2", level(add_prefix_space=False))
    llama3 = of_bytes("llama3", pre_tokenizers.Sequence([split(LLAMA3), plain]), ignore_merges=True, add=[AddedToken("<|begin_of_text|>", special=True)])
    begin = llama3.token_to_id("<|begin_of_text|>")
    llama3.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template("<|begin_of_text|>", begin)])
    of_bytes("qwen2", pre_tokenizers.Sequence([split(QWEN2), plain]), normalizer=normalizers.NFC())
    of_bytes("nemo", pre_tokenizers.Sequence([split(NEMO), plain]), ignore_merges=True)
    of_bytes("starcoder", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level(add_prefix_space=False)]))
    of_bytes(
        "falcon",
        pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), level(add_prefix_space=False), pre_tokenizers.Digits(), split("[0-9][0-9][0-9]")]),
    )
    of_bytes(
        "roberta",
        level(add_prefix_space=True),
        add=[AddedToken(" <mask>", lstrip=True, special=True), AddedToken("[MASK]", rstrip=True, normalized=True), AddedToken("foo", single_word=True)],
        normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]),
    )
    of_bytes(
        "merging",
        pre_tokenizers.Sequence([split(r"\s+", "merged_with_previous"), split(r"[\p{Han}\d]", "merged_with_next"), split(r"\w+", "contiguous", True), plain]),
        normalizer=normalizers.NFD(),
    )

    raw = sentencepiece_like(training, 8000)
    raw["normalizer"] = {
        "type": "Sequence",
        "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}],
    }
    raw["pre_tokenizer"] = None
    raw["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    made["llama2"] = from_raw(raw)
    made["llama2"].post_processor = template("<s>", 1)
    mistral = dict(raw, normalizer=None, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False})
    mistral["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    made["mistral"] = from_raw(mistral)
    gemma = dict(
        raw,
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
    )
    made["gemma"] = from_raw(gemma)
    made["gemma"].add_tokens([AddedToken(text, normalized=False) for text in ("\n\n", "\n\n\n", "▁▁", "▁▁▁", "<td>", "</td>")])
    no_bytes = json.loads(json.dumps(raw))
    no_bytes["model"].update(byte_fallback=False, fuse_unk=False)
    made["unknown"] = from_raw(no_bytes)
    fused = json.loads(json.dumps(no_bytes))
    fused["model"].update(fuse_unk=True)
    made["fused"] = from_raw(fused)

    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()
    some = ["".join(c for c in text if c < "\u0600") for text in training]  # the others are unknown
    unigram.train_from_iterator(some, trainers.UnigramTrainer(vocab_size=4000, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False))
    made["unigram"] = unigram
    with_bytes = json.loads(unigram.to_str())
    with_bytes["model"]["vocab"] += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
    with_bytes["model"]["byte_fallback"] = True
    made["unigram-bytes"] = from_raw(with_bytes)

    words = bpe(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="##")
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.decoder = decoders.BPEDecoder()
    words.train_from_iterator(
        training[:20],
        trainers.BpeTrainer(vocab_size=4000, special_tokens=["<unk>", "</s>"], end_of_word_suffix="</w>", continuing_subword_prefix="##", show_progress=False),
    )
    made["words"] = words
    return made


def make(folder, megabytes):
    training = make_texts(folder / "texts", megabytes)
    for name, tokenizer in kinds(training).items():
        (folder / name).mkdir()
        tokenizer.save(str(folder / name / "tokenizer.json"))
        # An added token where there is one: as transformers does, Trireme adds an eos_token that is none, and the package does not.
        added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        wanted = [end for end in ("<|endoftext|>", "</s>") if tokenizer.token_to_id(end) is not None]
        end = next((end for end in wanted if end in added), wanted[0] if wanted else "<|endoftext|>")
        (folder / name / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))


def compare(folder, kinds_and_tokens):
    """The ids in every token file are those of the package, each text with the template and the end."""
    texts = [path.read_bytes().decode(errors="replace") for path in sorted((folder / "texts").iterdir())]
    for path in kinds_and_tokens:
        kind = pathlib.Path(path).stem
        tokenizer = Tokenizer.from_file(str(folder / kind / "tokenizer.json"))
        end = tokenizer.token_to_id(json.loads((folder / kind / "tokenizer_config.json").read_text())["eos_token"])
        mine = array.array("H", pathlib.Path(path).read_bytes())
        at = 0
        for number, text in enumerate(texts):
            theirs = array.array("H", tokenizer.encode(text).ids + [end])
            if mine[at : at + len(theirs)] != theirs:
                first = next((i for i, (a, b) in enumerate(zip(mine[at:], theirs)) if a != b), len(theirs))
                shown = [[tokenizer.id_to_token(i) for i in ids[max(0, first - 4) : first + 8]] for ids in (mine[at : at + len(theirs)], theirs)]
                sys.exit(f"{kind}: text {number} has other tokens, from {first} on: ours {shown[0]}, theirs {shown[1]}")
            at += len(theirs)
        if at != len(mine):
            sys.exit(f"{kind}: {len(mine)} tokens, {at} by the package")
        print(f"{kind}: {at} tokens of {len(texts)} texts are equal")


def rate(tokenizer, text):
    tokenizer = Tokenizer.from_file(tokenizer)
    data = pathlib.Path(text).read_bytes()
    lines = data.decode(errors="replace").splitlines(keepends=True)
    texts = ["".join(lines[i : i + 100]) for i in range(0, len(lines), 100)]
    tokenizer.encode_batch(texts[:10])
    begin = time.perf_counter()
    for part in texts:
        tokenizer.encode(part)
    print(len(data) / (time.perf_counter() - begin))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]), float(sys.argv[3]))
    elif sys.argv[1] == "compare":
        compare(pathlib.Path(sys.argv[2]), sys.argv[3:])
    else:
        rate(sys.argv[2], sys.argv[3])
