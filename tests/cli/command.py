"""What the tests of the command share: running it, reading its reference page, small .npy files.

Every test script is called with the program and the root of the sources.
"""
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/dev/apps/cli/regard")
ROOT = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).resolve().parents[2])
GOLDEN = ROOT / "tests" / "golden"
MODEL = str(GOLDEN / "gguf" / "llama_q4_1.gguf")


def clean_environment(**more):
    """The environment without what would change the program's mind, such as REGARD_ISA of the test run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REGARD_") and name != "NO_COLOR"}
    kept["XDG_CONFIG_HOME"] = "/nowhere"  # not the settings of whoever runs the tests
    kept.update(more)
    return kept


def run(*words, stdin=b"", env=None, timeout=120, cwd=None):
    """Runs the program; streams come back as bytes."""
    return subprocess.run([PROGRAM, *map(str, words)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                          cwd=cwd, env=clean_environment(**(env or {})))


def start(*words, env=None, stdin=subprocess.PIPE):
    return subprocess.Popen([PROGRAM, *map(str, words)], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=clean_environment(**(env or {})))


class Option:
    def __init__(self, names, value, facts):
        self.name = names[-1]
        self.letter = names[0] if len(names) > 1 else None
        self.value = value
        self.facts = facts

    @property
    def environment(self):
        return "REGARD_" + self.name[2:].upper().replace("-", "_")

    def sample(self):
        """A value that the option accepts, and one that is not its default where there is a choice."""
        if self.value is None:
            return "true"
        if self.name == "--settings":
            return str(ROOT / "tests" / "cli" / "settings.json")
        if self.value == "FIELD=VALUE":
            return "run.steps=7"
        choices = re.search(r"\(([a-z0-9_-]+(?:, [a-z0-9_-]+)+)\)$", self.facts["help"])
        if choices:
            return choices.group(1).split(", ")[-1]
        bounds = re.search(r"([0-9.e+-]+) (?:to|or more)", self.facts["value"])
        if bounds:
            return bounds.group(1)
        default = re.search(r"default ([^;]+)", self.facts["value"])
        return default.group(1) if default else "0.5"


def reference():
    """The commands of docs/cli.md: name -> list of options, those of every command included."""
    commands, current, common = {}, None, []
    for line in (ROOT / "docs" / "cli.md").read_text().splitlines():
        if line.startswith("## "):
            title = line[3:]
            current = common if title == "Options of every command" else commands.setdefault(title[7:], []) if title.startswith("regard ") else None
        elif line.startswith("| `-") and current is not None:
            cells = [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            names = re.findall(r"`(--?[a-z0-9-]+)", cells[0])
            value = re.search(r"`--[a-z0-9-]+ ([^`]+)`", cells[0])
            current.append(Option(names, value.group(1) if value else None, {"help": cells[1].strip(), "value": cells[2].strip()}))
    return {name: options + common for name, options in commands.items()}


TYPES = {"f4": "f", "f8": "d", "i8": "q", "u1": "B", "b1": "?"}


def save_npy(path, kind, shape, values):
    shape_text = "(" + "".join(f"{n}, " for n in shape) + ")"
    order = "|" if kind in ("u1", "b1") else "<"
    header = f"{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': {shape_text}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                                   struct.pack(f"<{len(values)}{TYPES[kind]}", *values))
    return str(path)


def load_npy(path):
    """Shape and flat values."""
    data = pathlib.Path(path).read_bytes()
    assert data[:6] == b"\x93NUMPY", data[:6]
    size = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + size].decode()
    kind = re.search(r"'descr': '[<|]([a-z]\d)'", header).group(1)
    shape = tuple(int(n) for n in re.findall(r"\d+", re.search(r"'shape': \(([^)]*)\)", header).group(1)))
    body = data[10 + size:]
    return shape, list(struct.unpack(f"<{len(body) // struct.calcsize(TYPES[kind])}{TYPES[kind]}", body))


class Case(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self):
        self._directory = tempfile.TemporaryDirectory()
        self.directory = pathlib.Path(self._directory.name)
        self.addCleanup(self._directory.cleanup)

    def path(self, name):
        return str(self.directory / name)

    def ok(self, *words, **options):
        result = run(*words, **options)
        self.assertEqual(result.returncode, 0, (words, result.stderr.decode(errors="replace")))
        return result.stdout

    def refused(self, status, part, *words, **options):
        """The program says why on one or more lines of standard error, and nothing on standard output."""
        result = run(*words, **options)
        message = result.stderr.decode()
        self.assertEqual(result.returncode, status, (words, message))
        self.assertIn(part, message)
        self.assertTrue(message.startswith("regard"), message)
        self.assertEqual(result.stdout, b"")
        return message


def main():
    unittest.main(argv=[sys.argv[0]])
