"""Make tests/golden/tokenizer: small tokenizer.json files of every BPE pipeline, with ids and decoded texts.

Vocabularies are trained here on sentences written here. NAME.json is the file, NAME.cases.jsonl has one object per
line:
  {"text", "ids"}         ids of the text without special tokens added (those written in the text count as such);
                          further keys only where they differ:
    "with_special"        ids with special tokens added (the post-processor's template); absent: the same as ids
    "plain"               ids when special tokens in the text are not to be parsed; absent: the same as ids
    "decoded"             decode(ids) with special tokens kept; absent: the same as text
    "skipped"             decode(with_special or ids) without special tokens; absent: the same as decoded (or text)
  {"decode", "decoded"}   decode of arbitrary ids, special tokens kept: invalid UTF-8 becomes U+FFFD

  gpt2              ByteLevel with its own regex; merges as "a b" strings
  byte_level_prefix ByteLevel with add_prefix_space; merges as pairs
  smollm2           Digits(individual), ByteLevel
  llama3            Split(regex, Isolated), ByteLevel without regex, ignore_merges, template with a begin token
  qwen2             NFC, Split(regex, Isolated), ByteLevel without regex
  llama2            Prepend and Replace, no pre-tokenizer, byte fallback; decoders Replace, ByteFallback, Fuse, Strip;
                    template
  gemma             Replace, Split(" ", MergedWithPrevious), byte fallback, merges as pairs, user tokens; template
  metaspace_always  Metaspace always, no byte fallback, unknown tokens fused
  metaspace_first   Metaspace first, byte fallback
  metaspace_never   Metaspace never, a byte fallback that lacks some bytes, unknown tokens not fused
  split_behaviors   Split with every behaviour, string and regex patterns, invert
  added_tokens      NFC and added tokens with every flag: special, lstrip, rstrip, single_word, normalized

Run:  python hf_tokenizers.py
Made with tokenizers 0.23.3, Python 3.11.
"""

import json
import pathlib
import random
import shutil

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import corpus
from gguf_files import TEXT, commonest, keep

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer"
GAP = "\u2581"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
TRAINING = TEXT * 3 + [text for text, special in corpus.texts(["<x>"], seed=3) if not special and len(text) < 200]


def byte_level_model(pre_tokenizer, size=330, normalizer=None, **options):
    """A BPE over the byte alphabet, trained with this pre-tokenizer. Ids 0..255 are the bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(
        TRAINING,
        trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
        ),
    )
    state = json.loads(tokenizer.to_str())["model"]
    tokenizer.model = models.BPE(state["vocab"], [tuple(pair) for pair in state["merges"]], **options)
    return tokenizer


def fallback_model(pieces=90, missing_bytes=(), pre_tokenizer=None, **options):
    """A BPE over characters: <unk> <s> </s>, bytes (if byte_fallback), characters and merges, U+2581 for spaces."""
    tokenizer = Tokenizer(models.BPE())
    texts = [text.replace(" ", GAP) for text in TRAINING if text.isascii()]
    alphabet = commonest(texts, 52)
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(
        [keep(text, alphabet) for text in texts],
        trainers.BpeTrainer(vocab_size=pieces, initial_alphabet=alphabet, max_token_length=12, show_progress=False),
    )
    state = json.loads(tokenizer.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>"]
    if options.get("byte_fallback"):
        tokens += [f"<0x{byte:02X}>" for byte in range(256) if byte not in missing_bytes]
    tokens += [piece for piece in sorted(state["vocab"], key=state["vocab"].get)]
    return Tokenizer(
        models.BPE(
            {token: i for i, token in enumerate(tokens)},
            [tuple(pair) for pair in state["merges"]],
            unk_token="<unk>",
            **options,
        )
    )


def special(*tokens):
    return [AddedToken(token, special=True, normalized=False) for token in tokens]


def template(tokenizer, begin, end=None):
    single = f"{begin} $A" + (f" {end}" if end else "")
    tokens = [(token, tokenizer.token_to_id(token)) for token in (begin, end) if token]
    return processors.TemplateProcessing(single=single, pair=f"{begin} $A {begin}:1 $B:1", special_tokens=tokens)


def gpt2():
    t = byte_level_model(pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.add_special_tokens(special("<|endoftext|>"))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    return t, ["<|endoftext|>"], "strings"


def byte_level_prefix():
    t = byte_level_model(pre_tokenizers.ByteLevel(add_prefix_space=True))
    t.add_special_tokens(special("<s>", "</s>"))
    t.post_processor = template(t, "<s>", "</s>")
    t.decoder = decoders.ByteLevel()
    return t, ["<s>", "</s>"], "pairs"


def smollm2():
    t = byte_level_model(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    )
    t.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    t.decoder = decoders.ByteLevel()
    return t, ["<|im_start|>", "<|im_end|>"], "strings"


def split_pattern(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def llama3():
    t = byte_level_model(split_pattern(LLAMA3), ignore_merges=True)
    # A word that no chain of merges reaches: with ignore_merges it is one token all the same.
    state = json.loads(t.to_str())["model"]
    words = dict(state["vocab"])
    for word in ("\u0120antidisestablishment", "zqzqzq", "\u00c3\u00a9t\u00c3\u00a9"):
        words[word] = len(words)
    t.model = models.BPE(words, [tuple(pair) for pair in state["merges"]], ignore_merges=True)
    t.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(t, "<|begin_of_text|>")])
    t.decoder = decoders.ByteLevel()
    return t, ["<|begin_of_text|>", "<|eot_id|>"], "strings"


def qwen2():
    t = byte_level_model(split_pattern(QWEN2), normalizer=normalizers.NFC())
    t.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    t.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    return t, ["<|im_start|>", "<tool_call>"], "pairs"


def llama2():
    t = fallback_model(byte_fallback=True, fuse_unk=True)
    t.normalizer = normalizers.Sequence([normalizers.Prepend(GAP), normalizers.Replace(" ", GAP)])
    t.add_special_tokens(special("<unk>", "<s>", "</s>"))
    t.post_processor = template(t, "<s>")
    t.decoder = decoders.Sequence(
        [decoders.Replace(GAP, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return t, ["<s>", "</s>"], "strings"


def gemma():
    t = fallback_model(byte_fallback=True, fuse_unk=True)
    t.normalizer = normalizers.Replace(" ", GAP)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_special_tokens(special("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"))
    t.add_tokens(
        [
            AddedToken(token, special=False, normalized=False)
            for token in ("\n", "\n\n", "\n\n\n", GAP * 2, GAP * 3, "<table>", "</table>", "\t")
        ]
    )
    t.post_processor = template(t, "<bos>")
    t.decoder = decoders.Sequence([decoders.Replace(GAP, " "), decoders.ByteFallback(), decoders.Fuse()])
    return t, ["<bos>", "<start_of_turn>", "<table>", "\n\n"], "pairs"


def metaspace(scheme, **options):
    pre = pre_tokenizers.Metaspace(replacement=GAP, prepend_scheme=scheme)
    t = fallback_model(pre_tokenizer=pre, **options)
    t.pre_tokenizer = pre
    t.add_special_tokens(special("<unk>", "<s>", "</s>"))
    t.post_processor = template(t, "<s>", "</s>")
    parts = [decoders.ByteFallback(), decoders.Metaspace(replacement=GAP, prepend_scheme=scheme)]
    t.decoder = decoders.Sequence(parts) if options.get("byte_fallback") else parts[1]
    return t, ["<s>", "</s>"], "pairs"


def split_behaviors():
    split = pre_tokenizers.Split
    t = byte_level_model(
        pre_tokenizers.Sequence(
            [
                split(Regex(r"\d+"), "merged_with_previous"),
                split("-", "merged_with_next"),
                split(Regex(r"[,;.]"), "contiguous"),
                split("_", "removed"),
                split(Regex(r"[A-Za-z_ \-]+"), "isolated", invert=True),
                split(" ", "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    )
    t.add_special_tokens(special("<s>"))
    t.decoder = decoders.ByteLevel()
    return t, ["<s>", "a_b", "x--1,,2;", "12-3_-", "_"], "pairs"


def added_tokens():
    t = byte_level_model(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.NFC())
    t.add_special_tokens(
        special("<s>", "</s>")
        + [
            AddedToken("<mask>", special=True, lstrip=True, normalized=False),
            AddedToken("<sep>", special=True, rstrip=True, normalized=False),
            AddedToken("<both>", special=True, lstrip=True, rstrip=True, normalized=True),
        ]
    )
    t.add_tokens(
        [
            AddedToken("river", single_word=True, normalized=False),
            AddedToken("token", single_word=True, normalized=True),
            AddedToken("caf\u00e9", normalized=True),
            AddedToken("nai\u0308ve", normalized=False),
            AddedToken("ab", normalized=False),
            AddedToken("abc", normalized=False),
            AddedToken("bcd", normalized=True),
            AddedToken("  ", normalized=False),
            AddedToken("[x]", lstrip=True, rstrip=True, single_word=False, normalized=False),
        ]
    )
    t.post_processor = template(t, "<s>", "</s>")
    t.decoder = decoders.ByteLevel()
    return (
        t,
        [
            "<mask>",
            "<sep>",
            "<both>",
            "river",
            "token",
            "caf\u00e9",
            "cafe\u0301",
            "nai\u0308ve",
            "na\u00efve",
            "ab",
            "abc",
            "abcd",
            "bcd",
            "  ",
            "[x]",
            "_river",
        ],
        "pairs",
    )


def strings(marks, seed):
    """About 150 short texts: a thinned corpus, and texts thick with this tokenizer's own tokens."""
    rng = random.Random(seed)
    general = [text for text, _ in corpus.texts(marks[:2], seed=5) if len(text) <= 44]
    out = general[:: len(general) // 95]
    for mark in marks[:16]:
        out += [mark, f"a{mark}b", f" {mark} ", f"x {mark}  y", mark * 2]
    pieces = marks * 2 + [
        "a",
        " ",
        "  ",
        "\n",
        "The river",
        " 12",
        ".",
        "\u00e9",
        "\u4e2d",
        "'s",
        "_",
        "\t",
        "zqzqzq",
        " zqzqzq",
        " antidisestablishment",
    ]
    while len(out) < 150 + len(marks):
        out.append("".join(rng.choice(pieces) for _ in range(rng.randrange(2, 9))))
    return list(dict.fromkeys(out))


def make(name, build):
    tokenizer, marks, merges = build()
    state = json.loads(tokenizer.to_str())
    pairs = state["model"]["merges"]
    if merges == "strings":
        state["model"]["merges"] = [" ".join(pair) for pair in pairs]
    path = OUT / f"{name}.json"
    path.write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8", newline="\n")
    tokenizer = Tokenizer.from_file(str(path))  # what is tested is the file
    assert json.loads(tokenizer.to_str())["model"]["merges"] == pairs
    lines = []
    for text in strings(marks, name):
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        full = tokenizer.encode(text, add_special_tokens=True).ids
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        case = dict(text=text, ids=ids)
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        skipped = tokenizer.decode(full, skip_special_tokens=True)
        for key, value, same in (
            ("with_special", full, ids),
            ("plain", plain, ids),
            ("decoded", decoded, text),
            ("skipped", skipped, decoded),
        ):
            if value != same:
                case[key] = value
        lines.append(case)
    rng = random.Random(name)
    size = tokenizer.get_vocab_size()
    for i in range(24):
        ids = [rng.randrange(size if i % 2 else min(size, 259)) for _ in range(rng.randrange(1, 9))]
        lines.append(dict(decode=ids, decoded=tokenizer.decode(ids, skip_special_tokens=False)))
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    (OUT / f"{name}.cases.jsonl").write_text(text, encoding="utf-8", newline="\n")
    counts = {key: sum(key in line for line in lines) for key in ("with_special", "plain", "decoded", "skipped")}
    sizes = f"{path.stat().st_size:6} + {len(text.encode()):6} bytes"
    print(f"{name:18} {size:4} tokens, {sizes}, {len(lines)} cases {counts}")


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    make("gpt2", gpt2)
    make("byte_level_prefix", byte_level_prefix)
    make("smollm2", smollm2)
    make("llama3", llama3)
    make("qwen2", qwen2)
    make("llama2", llama2)
    make("gemma", gemma)
    make("metaspace_always", lambda: metaspace("always", fuse_unk=True))
    make("metaspace_first", lambda: metaspace("first", byte_fallback=True, fuse_unk=True))
    make("metaspace_never", lambda: metaspace("never", byte_fallback=True, fuse_unk=False, missing_bytes=(0xE4, 0xF0)))
    make("split_behaviors", split_behaviors)
    make("added_tokens", added_tokens)
