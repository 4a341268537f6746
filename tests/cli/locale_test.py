"""Numbers are read and written the same where the locale has a decimal comma and groups thousands by dots.

The locale is made in a directory of its own, and a preloaded library (foreign_locale.cc) puts the program under it: the program
itself never asks for the environment's locale, but one that uses the library may.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

from command import Case, MODEL, clean_environment, main, run, save_npy

PRELOADED = os.path.abspath(sys.argv[3])


class Locale(Case):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", pathlib.Path(directory.name) / "de_DE.UTF-8"], check=True)
        cls.german = {"LOCPATH": directory.name, "LC_ALL": "de_DE.UTF-8", "LD_PRELOAD": PRELOADED}

    def test_the_locale_is_in_force(self):
        """The library puts a program that sets no LC_NUMERIC of its own under the locale."""
        program = "import ctypes; b = ctypes.create_string_buffer(9); " \
                  "ctypes.CDLL(None).snprintf(b, 9, b'%.1f', ctypes.c_double(1.5)); print(b.value.decode())"
        for given, printed in ((self.german, "1,5"), ({"LC_ALL": "C"}, "1.5")):
            result = subprocess.run([sys.executable, "-c", program], env=clean_environment(**given), stdout=subprocess.PIPE, check=True)
            self.assertEqual(result.stdout.decode().strip(), printed)

    def same(self, *words, env=None, status=0):
        """What the program prints under either locale."""
        plain = run(*words, env={**(env or {}), "LC_ALL": "C"})
        german = run(*words, env={**(env or {}), **self.german})
        self.assertEqual(plain.returncode, status, (words, plain.stderr))
        self.assertEqual((german.returncode, german.stdout, german.stderr), (status, plain.stdout, plain.stderr), words)
        return plain.stdout.decode()

    def test_options_environment_and_settings(self):
        words = ("generate", "-m", MODEL, "-p", "x", "--print-config")
        settings = self.directory / "settings.json"
        settings.write_text('{"generate": {"temperature": 0.25, "max-tokens": 12345}}')
        self.assertIn("temperature = 0.25  # command line", self.same(*words, "--temperature", "0.25"))
        self.assertIn("temperature = 0.25  # environment", self.same(*words, env={"REGARD_TEMPERATURE": "0.25"}))
        printed = self.same(*words, "--settings", settings)
        self.assertIn("temperature = 0.25  # settings", printed)
        self.assertIn("max-tokens = 12345  # settings", printed)

    def test_a_decimal_comma_is_refused(self):
        self.same("generate", "-m", MODEL, "-p", "x", "--temperature", "0,25", status=2)

    def test_masks(self):
        self.assertIn("8390656", self.same("mask", "count", "causal & window(4095, 0)", "--q-len", 4096))
        self.same("mask", "draw", "causal & (window(3, 0) | prefix(2))", "--q-len", 12)

    def test_attention(self):
        q, k = [0.5, -1.25, 2.0, 0.75], [1.5, 0.25, -0.5, 1.0]
        words = ["attend", "--q", save_npy(self.path("q.npy"), "f4", (1, 2, 1, 2), q)]
        for name in ("k", "v"):
            words += [f"--{name}", save_npy(self.path(name + ".npy"), "f4", (1, 2, 1, 2), k)]
        results = []
        for softcap in ("1.5", "1.0"):
            for env in ({"LC_ALL": "C"}, self.german):
                lse = pathlib.Path(self.path("lse.npy"))
                self.ok(*words, "--softcap", softcap, "--alibi", "0.5,0.25", "--mask", "causal", "-o", self.path("o.npy"), "--lse", lse, env=env)
                results.append(lse.read_bytes())
                lse.unlink()
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[2], results[3])
        self.assertNotEqual(results[0], results[2])  # 1.5 is not read as 1

    def test_json_of_a_model(self):
        self.assertIn('"', self.same("info", "-m", MODEL, "--json"))


if __name__ == "__main__":
    main()
