"""A run that is killed at random moments and then goes on ends with the parameters of one that nothing disturbed, to the bit.

REGARD_RESUME_POINTS says how many moments (default 4), REGARD_RESUME_SEED which ones.
"""
import hashlib
import os
import pathlib
import random
import signal
import struct
import time

from command import Case, main, start

POINTS = int(os.environ.get("REGARD_RESUME_POINTS", "4"))
SEED = int(os.environ.get("REGARD_RESUME_SEED", "1"))
STEPS = 48


def begun(out):
    """Whether there is a checkpoint: its directory appears a moment before the link to it."""
    return any(out.glob("step-*"))


class Resume(Case):
    def setUp(self):
        super().setUp()
        data = self.path("ids.bin")
        pathlib.Path(data).write_bytes(struct.pack("<4000H", *(i * i * 7919 % 1009 % 23 for i in range(4000))))
        # All that has a state of its own: moments, an average of the weights, dropout, outliers, accumulation, the best checkpoint.
        self.words = ["train", "--quiet"]
        for field in (f"data.files={data}", "model.hidden_size=32", "model.layers=2", "model.heads=2", "model.residual_dropout=0.1",
                      "model.attention_dropout=0.1", "optimizer.average_decay=0.9", "optimizer.outlier_deviations=4", f"run.steps={STEPS}",
                      "run.sequence=16", "run.batch=6", "run.micro_batch=2", "run.evaluate_every=7", "run.save_every=3", "run.log_every=1"):
            self.words += ["--set", field]

    def hash_of(self, out):
        parts = [hashlib.sha256((out / "latest" / name).read_bytes()).hexdigest() for name in ("model.safetensors", "state")]
        self.assertEqual(os.readlink(out / "latest"), f"step-{STEPS:09d}")
        return parts

    def killed(self, out, step, pause, *more):
        """Starts the run and kills it `pause` seconds after it has saved `step`; whether it was still running."""
        process = start(*self.words, *more, "--out", out)
        latest = out / "latest"
        while process.poll() is None and not (latest.is_symlink() and int(os.readlink(latest).removeprefix("step-")) >= step):
            time.sleep(0.001)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return process.returncode == -signal.SIGKILL

    def test_killed_anywhere(self):
        whole = pathlib.Path(self.path("whole"))
        began = time.monotonic()
        self.ok(*self.words, "--out", whole)
        pause = 3 * (time.monotonic() - began) / STEPS  # three steps and their checkpoint
        expected = self.hash_of(whole)
        moments, killed = random.Random(SEED), 0
        for point in range(POINTS):
            step, wait = moments.randrange(STEPS - 5), moments.random() * pause
            out = pathlib.Path(self.path(f"run{point}"))
            killed += self.killed(out, step, wait)
            self.ok(*self.words, "--out", out, *(["--resume"] if begun(out) else []))
            self.assertEqual(self.hash_of(out), expected, f"killed {wait:.4f} s after step {step}, point {point} of seed {SEED}")
            left = sorted(entry.name for entry in out.iterdir() if entry.name.startswith("."))
            self.assertEqual(left, [], "a checkpoint that was never finished is still there")
        self.assertGreater(killed, POINTS // 2, "the runs ended before they were killed")

    def test_killed_again_and_again(self):
        """The same run, killed every few steps."""
        whole, out = pathlib.Path(self.path("whole")), pathlib.Path(self.path("run"))
        self.ok(*self.words, "--out", whole)
        moments = random.Random(SEED + 1)
        for point in range(POINTS):
            self.killed(out, (point + 1) * (STEPS - 5) // (POINTS + 1), moments.random() * 0.01, *(["--resume"] if begun(out) else []))
        self.ok(*self.words, "--out", out, *(["--resume"] if begun(out) else []))
        self.assertEqual(self.hash_of(out), self.hash_of(whole))
        # What is compared depends on the run.
        other = pathlib.Path(self.path("other"))
        self.ok(*self.words, "--set", "run.seed=2", "--out", other)
        self.assertNotEqual(self.hash_of(other)[0], self.hash_of(whole)[0])

if __name__ == "__main__":
    main()
