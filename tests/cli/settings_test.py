"""A user's own defaults: where they stand between the environment and the table, and what is refused."""
import os

from command import Case, MODEL, ROOT, main

GENERATE = ("generate", "-m", MODEL, "-p", "x", "--print-config")


class Settings(Case):
    def write(self, text, name="settings.json"):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def config(self, *words, env=None):
        lines = self.ok(*words, env=env).decode().splitlines()
        return {line.split(" = ")[0]: line.split(" = ", 1)[1].split("  # ") for line in lines}

    def test_order(self):
        """Command line, environment, the command's section, the part for all commands, the default."""
        path = self.write('{"threads": 3, "seed": 5, "generate": {"seed": 6, "temperature": 0.25}, "mask draw": {"q-len": 4}}')
        given = self.config(*GENERATE, "--settings", path)
        self.assertEqual(given["threads"], ["3", "settings"])
        self.assertEqual(given["seed"], ["6", "settings"])
        self.assertEqual(given["temperature"], ["0.25", "settings"])
        self.assertEqual(given["color"], ["auto", "default"])
        self.assertEqual(self.config(*GENERATE, env={"REGARD_SETTINGS": str(path), "REGARD_SEED": "7"})["seed"], ["7", "environment"])
        self.assertEqual(self.config(*GENERATE, "--settings", path, "--seed", 8, env={"REGARD_SEED": "7"})["seed"], ["8", "command line"])
        self.assertEqual(self.config("mask", "draw", "causal", "--print-config", "--settings", path)["q-len"], ["4", "settings"])
        self.assertEqual(self.config("poem", "-m", MODEL, "-a", "x", "--print-config", "--settings", path)["seed"], ["5", "settings"])

    def test_is_what_the_command_line_would_do(self):
        path = self.write('{"mask draw": {"q-len": 5}}')
        self.assertEqual(self.ok("mask", "draw", "causal", "--settings", path), self.ok("mask", "draw", "causal", "--q-len", 5))

    def test_the_example_of_the_page(self):
        page = (ROOT / "docs" / "cli.md").read_text()
        path = self.write(page.split("```json\n")[1].split("```")[0])
        self.assertEqual(self.config(*GENERATE, "--settings", path)["stop"], ["END, ###", "settings"])
        self.assertEqual(self.config("mask", "draw", "causal", "--print-config", "--settings", path)["q-len"], ["16", "settings"])
        self.assertEqual(self.config("poem", "-m", MODEL, "-a", "x", "--print-config", "--settings", path)["seed"], ["7", "settings"])

    def test_lists_and_switches(self):
        path = self.write('{"quiet": true, "no-progress": "on", "generate": {"stop": ["END", "# \\u4E00"]}}')
        given = self.config(*GENERATE, "--settings", path)
        self.assertEqual(given["stop"], ["END, # \u4E00", "settings"])
        self.assertEqual(given["quiet"], ["true", "settings"])
        self.assertEqual(given["no-progress"], ["true", "settings"])

    def test_users_file(self):
        self.write('{"seed": 9}', "config/regard/settings.json")
        self.write('{"seed": 10}', "home/.config/regard/settings.json")
        config, home = str(self.directory / "config"), str(self.directory / "home")
        self.assertEqual(self.config(*GENERATE, env={"XDG_CONFIG_HOME": config, "HOME": home})["seed"], ["9", "settings"])
        self.assertEqual(self.config(*GENERATE, env={"XDG_CONFIG_HOME": "", "HOME": home})["seed"], ["10", "settings"])
        self.assertEqual(self.config(*GENERATE, env={"XDG_CONFIG_HOME": "relative", "HOME": home})["seed"], ["10", "settings"])
        self.assertEqual(self.config(*GENERATE, env={"HOME": home})["seed"], ["0", "default"])

    def test_refusals(self):
        for text, says in (('{"sed": 1}', "unknown option 'sed'; did you mean 'seed'?"),
                           ('{"generat": {"seed": 1}}', "unknown command 'generat'; did you mean 'generate'?"),
                           ('{"mask drw": {"q-len": 1}}', "unknown command 'mask drw'; did you mean 'mask draw'?"),
                           ('{"mask": {"draw": {"q-len": 1}}}', "'mask' is the first word of several commands; write \"mask draw\": {...}"),
                           ('{"tokens": {"no": 1}}', "write \"tokens encode\": {...}"),
                           ('{"generate": {"q-len": 1}}', "unknown option of generate 'q-len'"),
                           ('{"seed": 1, "seed": 2}', "'seed' stands there twice"),
                           ('{"generate": {"seed": 1}, "generate": {}}', "'generate' stands there twice"),
                           ('{"threads": 0}', "threads of"),
                           ('{"threads": 1e999}', "a number is too large"),
                           ('{"threads": 1.5}', "'1.5'; give a whole number"),
                           ('{"threads": "many"}', "'many'; give a whole number"),
                           ('{"threads": [1, 2]}', "has 2 values; give one"),
                           ('{"seed": []}', "'seed' has no value"),
                           ('{"seed": null}', "the value of 'seed' is null"),
                           ('{"seed": [{}]}', "the value of 'seed' is an object"),
                           ('{"help": true}', "unknown option 'help'"),
                           ('{"settings": "other"}', "unknown option 'settings'"),
                           ('{"generate": {"quiet": "perhaps"}}', "'perhaps' is not true or false"),
                           ("[1]", "not a JSON object"),
                           ("", "not JSON, at byte"),
                           ('{"seed": 1', "not JSON, at byte"),
                           ("\x00\x01", "not JSON, at byte")):
            with self.subTest(text):
                path = self.write(text)
                message = self.refused(2, says, *GENERATE, "--settings", path)
                self.assertIn(str(path), message)
                self.assertTrue(self.ok("generate", "--help", "--settings", path).startswith(b"usage:"))
        self.refused(3, "cannot read", *GENERATE, "--settings", self.directory / "none.toml")
        self.refused(2, "not a regular file", *GENERATE, "--settings", self.directory)
        self.refused(2, "not a regular file", *GENERATE, "--settings", "/dev/zero")
        os.mkfifo(self.directory / "pipe")
        self.refused(2, "not a regular file", *GENERATE, "--settings", self.directory / "pipe")
        self.refused(2, "settings have at most", *GENERATE, "--settings", self.write(" " * (1 << 21) + "{}"))


if __name__ == "__main__":
    main()
