"""Make the files of tests/golden/converted, and check with llama.cpp what `regard convert` writes.

  python converted.py block             q8_0_block.npy: one block of 32 numbers as Q8_0: uint8 [34], of PyPI gguf
  python converted.py golden REGARD     llama_cpp.json: the ids of texts, and greedy continuations, that llama.cpp gives for the
                                        checkpoint hf/gpt2 with the characters of tokenizer.json (printable ASCII and the line
                                        end), converted to f32 by the command REGARD
  python converted.py check REGARD DIR  converts the checkpoint DIR with the command REGARD to an f32 GGUF file, and compares ids of
                                        texts and greedy continuations with those of llama.cpp
  python converted.py transformers REGARD   converts the files of tests/golden/gguf to directories, and compares logits and ids with
                                        those of transformers

Made with gguf 0.19.0, llama-cpp-python 0.3.36, numpy 2.4.6, torch 2.15.0, transformers 5.24.0.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
TIE = 1e-3  # two logits nearer than this may change places: llama.cpp sums in another order


def block():
    values = np.array([np.float32((i * 37 % 64 - 31) * (i + 1)) / np.float32(50) for i in range(32)], np.float32)
    np.save(GOLDEN / "converted" / "q8_0_block.npy", gguf.quants.quantize(values[None], gguf.GGMLQuantizationType.Q8_0)[0])


def golden(regard):
    from llama_cpp import Llama

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.gguf"
        checkpoint = shutil.copytree(GOLDEN / "hf" / "gpt2", f"{folder}/checkpoint")
        shutil.copy(GOLDEN / "converted" / "tokenizer.json", checkpoint)
        subprocess.run([regard, "convert", checkpoint, path, "--type", "f32"], check=True)
        engine = Llama(path, n_ctx=0, logits_all=True, verbose=False, type_k=0, type_v=0)
        texts, greedy = [], []
        for text in ["The sea", " two  spaces \n", "caf\u00e9 \u6d77", "<unk> <0x41>"]:
            texts.append({"text": text, "ids": engine.tokenize(text.encode(), add_bos=False, special=False)})
        for prompt in ([40, 41, 7], [90, 3, 3, 17, 60], [11]):
            engine.reset()
            engine.eval(prompt)
            found = []
            for _ in range(24):
                scores = engine.scores[engine.n_tokens - 1]
                first, second = np.sort(scores)[[-1, -2]]
                assert first - second > TIE, (prompt, found)
                found.append(int(np.argmax(scores)))
                engine.eval(found[-1:])
            greedy.append({"prompt": prompt, "ids": found})
    (GOLDEN / "converted" / "llama_cpp.json").write_text(json.dumps({"texts": texts, "greedy": greedy}) + "\n")


def check(regard, checkpoint, prompts):
    from llama_cpp import Llama

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.gguf"
        subprocess.run([regard, "convert", checkpoint, path, "--type", "f32"], check=True)
        engine = Llama(path, n_ctx=0, logits_all=True, verbose=False, type_k=0, type_v=0)
        texts = ids = steps = ties = 0
        for prompt in prompts:
            run = [regard, "tokens", "encode", "-m", path, prompt]
            ours = [int(i) for i in subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()]
            theirs = engine.tokenize(prompt.encode(), add_bos=False, special=False)
            assert ours == theirs, (prompt, ours, theirs)
            texts += 1
            ids += len(ours)
            run = [regard, "generate", "-m", path, "-p", prompt, "-n", "20", "--temperature", "0", "--json"]
            answer = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
            engine.reset()
            engine.eval(theirs)
            for token in answer["results"][0]["ids"]:
                scores = engine.scores[engine.n_tokens - 1]
                best = int(np.argmax(scores))
                if best != token:
                    assert scores[best] - scores[token] < TIE, (prompt, steps, best, token, scores[best], scores[token])
                    ties += 1
                engine.eval([token])
                steps += 1
        print(f"{texts} texts, {ids} ids equal; {steps} greedy tokens equal, {ties} of them ties below {TIE}")


def in_transformers(regard):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = "The river runs, we're 1984  ok"
    for name, scored in dict(qwen2_q5_0=0, qwen3_16bit=0, gpt2_q8_0=0, gemma3_q4_k=1, llama_mixed=1).items():
        with tempfile.TemporaryDirectory() as folder:
            command = [regard, "convert", str(GOLDEN / "gguf" / f"{name}.gguf"), folder, "--force", "--type", "f32"]
            subprocess.run(command + ["--without-tokenizer"] * scored, check=True)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            ids, want = (np.load(GOLDEN / "gguf" / f"{name}.{kind}.npy") for kind in ("ids", "logits"))
            with torch.no_grad():
                got = model(torch.from_numpy(ids)[None]).logits[0].numpy()
            apart = np.abs(got - want).max() / np.abs(want).max()
            assert apart < 2e-5, (name, apart)
            if not scored:
                run = [regard, "tokens", "encode", "-m", folder, text]
                ours = [int(i) for i in subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()]
                assert AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"] == ours
            print(f"{name}: logits of transformers differ by {apart:.0e}")


if __name__ == "__main__":
    if sys.argv[1] == "block":
        block()
    elif sys.argv[1] == "golden":
        golden(sys.argv[2])
    elif sys.argv[1] == "transformers":
        in_transformers(sys.argv[2])
    else:
        check(sys.argv[2], sys.argv[3], sys.argv[4:] or ["ROMEO:", "the", "What say you", "I will "])
