"""Make tests/golden/unigram: small tokenizer.json files of Unigram models, with ids and decoded texts.

The format of the cases is that of hf_tokenizers.py. The reference finds special tokens in plain text, too, where the
vocabulary has their pieces; text from a user must stay text, so "plain" comes from a copy of the model in which those
pieces have names that no text has.

  t5             Precompiled (a small table made by sentencepiece), WhitespaceSplit and Metaspace, template with </s>
  precompiled    Precompiled, Strip, Replace of runs of spaces, Metaspace, as transformers converts such models now
  bytes          Metaspace first, byte fallback
  some_bytes     a byte fallback that lacks some bytes; no pre-tokenizer: pieces may hold spaces
  ties           scores that are equal, positive and 0

Run:  python unigram_tokenizers.py [CASES]
With CASES, 5000 say, it writes as many cases into each file, for a check that is not kept.
Made with tokenizers 0.23.3, sentencepiece 0.2.3, Python 3.11.
"""

import base64
import json
import pathlib
import random
import shutil
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import corpus
from hf_tokenizers import GAP, TRAINING, special, strings, template

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "unigram"
# What is replaced by what: compatibility forms, accents to compose, control characters, kinds of spaces, case.
RULES = {
    "\u00a0": " ", "\u3000": " ", "\u2003": " ", "\t": " ", "\n": " ", "\r": " ", "\u2028": " ", "\u200b": " ", "\u0085": " ",
    "\u0007": "", "\u007f": "", "\u00ad": "", "\ufeff": "",
    "\ufb01": "fi", "\u00bd": "1\u20442", "\u2460": "1", "\uff21": "A", "\uff41": "a", "\u2122": "TM", "\u2026": "...",
    "e\u0301": "\u00e9", "a\u0308": "\u00e4", "o\u0308": "\u00f6", "A\u030a": "\u00c5", "\u304b\u3099": "\u304c",
    "\u212b": "\u00c5", "\u1112\u1161\u11ab": "\ud55c", "\ufdfa": "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647",
    "\u2019": "'", "\u201c": "\"", "\u201d": "\"", "a\u0308\u0304": "\u01df",
}  # fmt: skip


def charsmap(rule=None):
    """The table that sentencepiece makes of RULES, or its own of a name."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        (path / "text.txt").write_text("\n".join(text.replace("\n", " ") for text in TRAINING if text.isascii()), encoding="utf-8")
        tsv = "".join(
            " ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n"
            for source, target in RULES.items()
        )
        (path / "rules.tsv").write_text(tsv, encoding="utf-8")
        rules = dict(normalization_rule_name=rule) if rule else dict(normalization_rule_tsv=str(path / "rules.tsv"))
        sentencepiece.SentencePieceTrainer.train(
            input=str(path / "text.txt"), model_prefix=str(path / "m"), vocab_size=200, character_coverage=1.0,
            hard_vocab_limit=False, minloglevel=2, **rules,
        )  # fmt: skip
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString((path / "m.model").read_bytes())
        return proto.normalizer_spec.precompiled_charsmap


def unigram(pieces, pre_tokenizer=None, normalizer=None, before=("<pad>", "</s>", "<unk>"), **options):
    """A model trained on the texts, behind the special tokens of score 0."""
    tokenizer = Tokenizer(models.Unigram())
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.UnigramTrainer(vocab_size=pieces, unk_token="<unk>", special_tokens=[], show_progress=False)
    tokenizer.train_from_iterator([text for text in TRAINING if text.isascii() and len(text) < 300], trainer)
    vocabulary = [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"] if piece != "<unk>"]
    vocabulary = [(piece, round(score, 4)) for piece, score in vocabulary]
    vocabulary = [(piece, 0.0) for piece in before] + vocabulary
    tokenizer.model = models.Unigram(vocabulary, before.index("<unk>"), options.get("byte_fallback", False))
    return tokenizer


def t5(table):
    pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement=GAP)])
    t = unigram(260, pre, normalizers.Precompiled(table))
    t.add_special_tokens(special("<pad>", "</s>", "<unk>", "<extra_id_0>"))
    t.post_processor = template_of(t, "$A </s>")
    t.decoder = decoders.Metaspace(replacement=GAP)
    return t, ["</s>", "<extra_id_0>", "e\u0301", "\ufb01", "\u00a0x"]


def precompiled(table):
    steps = [normalizers.Precompiled(table), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), GAP)]
    t = unigram(200, pre_tokenizers.Metaspace(replacement=GAP), normalizers.Sequence(steps))
    t.add_special_tokens(special("<pad>", "</s>", "<unk>"))
    t.post_processor = template(t, "<pad>", "</s>")
    t.decoder = decoders.Metaspace(replacement=GAP)
    return t, ["</s>", "\u1112\u1161\u11ab", "a\u0308\u0304", " \u3000", "\u2026"]


def with_bytes(missing=(), pre_tokenizer=None):
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256) if byte not in missing]
    t = unigram(150, pre_tokenizer, before=tokens, byte_fallback=True)
    t.add_special_tokens(special("<unk>", "<s>", "</s>"))
    t.post_processor = template(t, "<s>")
    if pre_tokenizer:
        t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(replacement=GAP, prepend_scheme="first")])
    else:
        t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return t, ["<s>", "\u4e2d\u6587", "<0x41>", "\u00e9"]


def ties():
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("a", 1.0), ("b", 1.0), ("ab", 2.0), ("ba", 2.0), ("aba", 3.0), (" ", 0.5), ("a ", 1.5), ("bb", 40.0), ("\u00e9\u00e9", 0.0)]
    t = Tokenizer(models.Unigram(pieces, 0, False))
    t.add_special_tokens(special("<unk>", "</s>"))
    t.decoder = decoders.Fuse()
    return t, ["</s>", "abab", "baab", "abba", "bbb", "ab a", "\u00e9\u00e9", "\u00e9\u00e9\u00e9", "xy", "axyb"]


def template_of(tokenizer, single):
    from tokenizers import processors

    return processors.TemplateProcessing(single=single, pair=single + " $B", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])


def make(name, build, count):
    tokenizer, marks = build()
    state = json.loads(tokenizer.to_str())
    path = OUT / f"{name}.json"
    path.write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8", newline="\n")
    tokenizer = Tokenizer.from_file(str(path))  # what is tested is the file
    names = {token["content"] for token in state["added_tokens"] if token["special"]}
    for pair in state["model"]["vocab"]:
        if pair[0] in names:
            pair[0] = f"\U0010fff0{pair[0]}"
    state["added_tokens"] = []
    state["post_processor"] = None
    plain_tokenizer = Tokenizer.from_str(json.dumps(state))
    texts = strings(marks, name)
    if count:
        rng = random.Random(count)
        texts += [text for seed in range(1 + count // 400) for text, _ in corpus.texts(marks[:1], seed=seed + 7)]
        texts += ["".join(chr(rng.choice((rng.randrange(32, 0x250), rng.randrange(0x300, 0x370), rng.randrange(0xA00, 0xD7FF)))) for _ in range(12)) for _ in range(count)]
    lines = []
    for text in dict.fromkeys(texts):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        full = tokenizer.encode(text, add_special_tokens=True).ids
        case = dict(text=text, ids=ids)
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        skipped = tokenizer.decode(full, skip_special_tokens=True)
        plain = plain_tokenizer.encode(text, add_special_tokens=False).ids
        for key, value, same in (("with_special", full, ids), ("plain", plain, ids), ("decoded", decoded, text), ("skipped", skipped, decoded)):
            if value != same:
                case[key] = value
        lines.append(case)
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    (OUT / f"{name}.cases.jsonl").write_text(text, encoding="utf-8", newline="\n")
    counts = {key: sum(key in line for line in lines) for key in ("with_special", "plain", "decoded", "skipped")}
    print(f"{name:12} {path.stat().st_size:7} + {len(text.encode()):7} bytes, {len(lines)} cases {counts}")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    table = charsmap("nmt_nfkc" if count else None)
    print(f"a table of {len(base64.b64encode(table))} characters")
    make("t5", lambda: t5(table), count)
    make("precompiled", lambda: precompiled(table), count)
    make("bytes", lambda: with_bytes(pre_tokenizer=pre_tokenizers.Metaspace(replacement=GAP, prepend_scheme="first")), count)
    make("some_bytes", lambda: with_bytes(missing=(0xC3, 0xE4)), count)
    make("ties", ties, count)
