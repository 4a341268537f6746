"""Make tests/golden/trained: tokenizers that `regard tokens train` makes of tests/golden/text, with ids of PyPI `tokenizers`.

NAME.json is what the command wrote, NAME.cases.jsonl has the layout of tests/golden/tokenizer (hf_tokenizers.py).

  characters      one token per character of both texts; unknown characters are refused
  characters_unk  of the poems alone, characters that occur twice; others become <unk>
  bytes           256 bytes
  bpe             byte-level BPE of both texts, 700 tokens

The script also checks that the trainer of `tokenizers` makes the same merges of the same texts, and that characters without a
token are an error there too.

Run:  python trained_tokenizers.py PROGRAM     (PROGRAM: the regard command that is built)
Made with tokenizers 0.23.3, Python 3.11.
"""

import json
import pathlib
import random
import shutil
import subprocess
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import corpus

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
OUT = GOLDEN / "trained"
PROSE, POEMS = GOLDEN / "text" / "shakespeare.txt", GOLDEN / "text" / "tang.txt"
SPECIAL = ["--special", "<|endoftext|>", "--special", "<pad>"]
FILES = {
    "characters": [PROSE, POEMS],
    "characters_unk": [POEMS, "--min-count", "2", "--unk", *SPECIAL],
    "bytes": [PROSE, "--kind", "bytes", *SPECIAL],
    "bpe": [PROSE, POEMS, "--kind", "bpe", "--vocab-size", "700", *SPECIAL],
}


def stretches(rng, count):
    """Pieces of the two texts, and mixtures of both."""
    texts = [path.read_text(encoding="utf-8") for path in (PROSE, POEMS)]
    for i in range(count):
        text = texts[i % 2]
        at = rng.randrange(len(text) - 60)
        piece = text[at : at + rng.randrange(1, 60)]
        yield piece
        if i % 4 == 0:
            yield " " + piece[::-1] + "\n\n" + piece[:7]


def strings(name):
    rng = random.Random(name)
    out = ["", " ", "\n", "\n\n\n", "  a", *stretches(rng, 60)]
    if name != "characters":
        out += [text for text, _ in corpus.texts(["<pad>", "<|endoftext|>"], seed=7) if len(text) <= 44][::15]
        out += ["<|endoftext|>", "a<pad>b", "<pad><pad> x", "<|endoftext|>\n"]
    return list(dict.fromkeys(out))


def case_of(tokenizer, text):
    tokenizer.encode_special_tokens = False
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    skipped = tokenizer.decode(ids, skip_special_tokens=True)
    case = dict(text=text, ids=ids)
    for key, value, same in (("plain", plain, ids), ("decoded", decoded, text), ("skipped", skipped, decoded)):
        if value != same:
            case[key] = value
    return case


def make(program, name):
    path = OUT / f"{name}.json"
    subprocess.run([program, "tokens", "train", *map(str, FILES[name]), "--out", str(path), "--quiet"], check=True)
    tokenizer = Tokenizer.from_file(str(path))
    lines = [case_of(tokenizer, text) for text in strings(name)]
    rng = random.Random(name)
    for _ in range(24):
        ids = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randrange(1, 9))]
        lines.append(dict(decode=ids, decoded=tokenizer.decode(ids, skip_special_tokens=False)))
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    (OUT / f"{name}.cases.jsonl").write_text(text, encoding="utf-8", newline="\n")
    print(f"{name:15} {tokenizer.get_vocab_size():5} tokens, {len(lines)} cases, {len(text)} characters")
    return tokenizer


def check_merges():
    """The merges of `tokenizers`, which breaks ties by the same rule and begins with the same ids."""
    reference = Tokenizer(models.BPE())
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = [path.read_text(encoding="utf-8") for path in (PROSE, POEMS)]
    trainer = trainers.BpeTrainer(vocab_size=698, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    reference.train_from_iterator(texts, trainer)
    theirs = [tuple(merge) for merge in json.loads(reference.to_str())["model"]["merges"]]
    ours = [tuple(merge.split(" ")) for merge in json.loads((OUT / "bpe.json").read_text(encoding="utf-8"))["model"]["merges"]]
    assert ours == theirs and len(ours) == 698 - 256, [pair for pair in zip(ours, theirs) if pair[0] != pair[1]][:3]


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    made = {name: make(sys.argv[1], name) for name in FILES}
    check_merges()
    try:
        made["characters"].encode("\u2603")
        raise SystemExit("a character without a token was encoded")
    except Exception as error:
        assert "WordLevel error" in str(error), error
