"""Make tests/golden/tokens/{smollm2,gemma3}.jsonl: the token ids that llama.cpp gives for a corpus of varied strings.

One JSON object per line: {"text": str, "special": bool, "ids": [int]}. No BOS or EOS is added. `special` says whether
special tokens written in the text are parsed; user-defined tokens (Gemma's line breaks, runs of spaces, HTML tags)
are in either case. The corpus comes from corpus.py; strings whose bytes the vocabulary cannot spell are left out
(SmolLM2 has no token for the bytes 04 06 13 14 16 1D F1 F2, and llama.cpp drops such bytes without a word). Every
other string is decoded again and must come back as it was.

Run:  python model_tokens.py SMOLLM2.gguf GEMMA3.gguf       (files from tools/get-model)
Made with llama-cpp-python 0.3.36 (its own llama.cpp), Python 3.11 (Unicode 14).
"""

import ctypes
import json
import pathlib
import sys

import gguf
import llama_cpp
from llama_cpp import Llama

import corpus

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokens"
SPECIALS = {
    "smollm2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>", "<jupyter_code>"],
    "gemma3": ["<bos>", "<eos>", "<pad>", "<start_of_turn>", "<end_of_turn>", "<unused7>", "[multimodal]", "</table>"],
}


def byte_level_alphabet():
    """The GPT-2 map from bytes to printable characters."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in plain}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(0x100 + len(table) - len(plain))
    return table


def unspellable(path):
    """The bytes for which a byte-level vocabulary has no token."""
    fields = gguf.GGUFReader(path).fields
    if fields["tokenizer.ggml.model"].contents() != "gpt2":
        return set()
    tokens = set(fields["tokenizer.ggml.tokens"].contents())
    return {byte for byte, char in byte_level_alphabet().items() if char not in tokens}


def piece(model, token):
    buffer = ctypes.create_string_buffer(256)
    length = llama_cpp.llama_token_to_piece(model._model.vocab, token, buffer, 256, 0, True)
    assert length >= 0
    return buffer.raw[:length]


def main(paths):
    OUT.mkdir(parents=True, exist_ok=True)
    for name, path in zip(SPECIALS, paths, strict=True):
        model = Llama(path, vocab_only=True, verbose=False)
        missing = unspellable(path)
        left_out = 0
        lines = []
        for text, special in corpus.texts(SPECIALS[name], seed=20260):
            raw = text.encode()
            if missing & set(raw):
                left_out += 1
                continue
            ids = model.tokenize(raw, add_bos=False, special=special)
            assert b"".join(piece(model, i) for i in ids) == raw, text
            lines.append(
                json.dumps({"text": text, "special": special, "ids": ids}, ensure_ascii=False, separators=(",", ":"))
            )
        (OUT / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        print(
            f"{name}: {len(lines)} strings, {left_out} left out, {sum(len(line.encode()) + 1 for line in lines)} bytes"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
